"""The lookup tables of a draft: those that agree are one, and each has a name of its own."""

from collections.abc import Collection, Mapping

Entry = str | int
Table = Mapping[str, Entry]


class Tables:
    """The tables that rules have asked for so far."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        """`taken`: names that stand for something else."""
        self._taken = taken
        self._tables: dict[str, dict[str, Entry]] = {}

    def named(self, name: str, table: Table, alone: bool = False) -> str:
        """The name of a table that has these entries, and perhaps others: an earlier one where it agrees.

        Its name is `name`, with a number where that is another table. `alone`: whether it has these only.
        """
        number, free = 1, name
        while free in self._taken or not self._agrees(free, table, alone):
            number += 1
            free = f"{name}{number}"
        self._tables.setdefault(free, {}).update(table)
        return free

    def _agrees(self, name: str, table: Table, alone: bool) -> bool:
        known = self._tables.get(name)
        return known is None or (
            not alone and all(known.get(w, entry) == entry for w, entry in table.items())
        )

    def items(self) -> Mapping[str, Table]:
        """All tables by name."""
        return self._tables
