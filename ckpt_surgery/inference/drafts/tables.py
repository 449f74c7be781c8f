"""The lookup tables of a draft: equal tables are one, and each has a name of its own."""

from collections.abc import Collection, Mapping

Entry = str | int
Table = Mapping[str, Entry]


class Tables:
    """The tables that rules have asked for so far."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        """`taken`: names that stand for something else."""
        self._taken = taken
        self._names: dict[tuple[tuple[str, Entry], ...], str] = {}
        self._tables: dict[str, Table] = {}
        self._extended: dict[str, dict[str, Entry]] = {}

    def named(self, name: str, table: Table) -> str:
        """The name of this table: `name`, with a number where another table has that name."""
        content = tuple(table.items())
        known = self._names.get(content)
        if known is not None:
            return known
        number, free = 2, name
        while free in self._tables or free in self._taken:
            free, number = f"{name}{number}", number + 1
        self._names[content] = free
        self._tables[free] = table
        return free

    def extended(self, name: str, table: Table) -> str:
        """The name of a table that has these entries, and perhaps others: an earlier one where it agrees.

        For tables that are only asked for entries that they have.
        """
        for known, entries in self._extended.items():
            if known.startswith(name) and all(entries.get(word, new) == new for word, new in table.items()):
                entries |= table
                return known
        number = len(self._extended) + 1
        free = name if number == 1 else f"{name}{number}"
        while free in self._taken:
            free, number = f"{name}{number + 1}", number + 1
        self._extended[free] = dict(table)
        return free

    def items(self) -> Mapping[str, Table]:
        """All tables by name."""
        return {**self._extended, **self._tables}
