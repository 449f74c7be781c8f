"""The lookup tables of a draft: equal tables are one, and each has a name of its own."""

from collections.abc import Mapping

Entry = str | int
Table = Mapping[str, Entry]


class Tables:
    """The tables that rules have asked for so far."""

    def __init__(self) -> None:
        self._names: dict[tuple[tuple[str, Entry], ...], str] = {}
        self._tables: dict[str, Table] = {}

    def named(self, name: str, table: Table) -> str:
        """The name of this table: `name`, with a number where another table has that name."""
        content = tuple(table.items())
        known = self._names.get(content)
        if known is not None:
            return known
        number, free = 2, name
        while free in self._tables:
            free, number = f"{name}{number}", number + 1
        self._names[content] = free
        self._tables[free] = table
        return free

    def items(self) -> Mapping[str, Table]:
        """All tables by name."""
        return self._tables
