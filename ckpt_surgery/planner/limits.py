"""Limits of a whole plan: bounds on what a short recipe can ask for.

Each is far above what checkpoints have, and is counted before, or while, things are made, so that a recipe
which asks for too much is refused within the time and the memory of a large plan that is carried out.
"""

from collections.abc import Set

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.functions.arrays import Node
from ckpt_surgery.graph.walks import MOST_FUNCTIONS, functions_of, too_many_functions
from ckpt_surgery.language.expressions.regexes import MatchBudget

MOST_LEAVES = 1_000_000
"""Limit on the leaves of a result, and on what the rules of a pass make: an output for each leaf that a rule
claims, each combination of its `for` variables and each key of its `to`."""
MOST_NAME_BYTES = 128 << 20
"""Limit on the bytes of all keys that the rules of a plan make."""
MOST_COUNTED = 256
"""Limit on the patterns of `count('…')` in one pass."""


MOST_MADE = 100_000
"""Limit on the leaves that a pass makes, and on those by which all passes together multiply leaves, where
MOST_TIMES those of the sources and the target are fewer. The experts and layers of the largest models, each a
leaf, are 70,000."""
MOST_OF_ALL = 300_000
"""Limit on the leaves that all passes together make, where TIMES_OF_ALL those that are given are fewer."""
TIMES_OF_ALL = 16
MOST_GROWN = 1 << 12
"""The same limit in passes after SEVERAL that grew: leaves that pass after pass makes more of have no end."""
MOST_TIMES = 4
SEVERAL = 6
GROWTH = 1.1
"""A pass has grown if it leaves so many times the leaves that it was given."""


class PlanLimits:
    """Counts what one plan has made so far. Its methods raise SurgeryError for what is too much."""

    def __init__(self, given: int) -> None:
        """`given`: number of leaves of all sources and of the target."""
        self._given = self._present = given
        self._grown = 0
        self._added = self._made = self._made_now = 0
        self.matching = MatchBudget()
        """The time that regular expressions take."""
        self.second_looks = MatchBudget()
        """The time that it takes to say why regular expressions match nothing."""
        self._name_bytes = 0
        self._functions = 0

    def add_pass(self, before: int, after: int) -> None:
        """Count a pass that makes so many leaves out of so many."""
        self._grown += after > GROWTH * before
        self._added += max(0, self._made_now - self._present)
        self._made += self._made_now
        self._made_now, self._present = 0, after

    def check_growth(self, count: int) -> None:
        """Refuse leaves that a short recipe multiplies without end, before they are made.

        `count`: what the rules of the pass make up to here. Leaves that a later pass drops again count, too.
        """
        check_leaves(count, "the rules of this pass up to here make")
        self._made_now = max(self._made_now, count)
        times, most = MOST_TIMES * self._given, MOST_MADE if self._grown < SEVERAL else MOST_GROWN
        before = ", with those of the passes before,"
        for number, limit, what in (
            (count, max(times, most), "leaves"),
            (self._added + max(0, count - self._present), max(times, MOST_MADE), f"more leaves{before}"),
            (self._made + count, max(TIMES_OF_ALL * self._given, MOST_OF_ALL), f"leaves{before}"),
        ):
            if number > limit:
                raise SurgeryError(
                    f"the rules of this pass up to here make {number:,} {what} out of the {self._given:,} "
                    f"that are given, after {self._grown} passes that made more of them; the limit is "
                    f"{limit:,}",
                    hint="Make copies of a leaf once, with `for`, and not in pass after pass.",
                    code=Code.TOO_MUCH,
                )

    def add_key(self, text: str) -> None:
        """Count a key that a rule makes."""
        self._name_bytes += len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        if self._name_bytes > MOST_NAME_BYTES:
            raise SurgeryError(
                f"the names of the leaves are too long: more than {MOST_NAME_BYTES >> 20} MiB together",
                code=Code.TOO_MUCH,
            )

    def add_functions(self, value: Node, bases: Set[int]) -> None:
        """Count the functions of a value that were made from those with the identities `bases`."""
        self._functions += functions_of(value, bases)
        if self._functions > MOST_FUNCTIONS:
            raise SurgeryError(too_many_functions("the rules up to here make"), code=Code.TOO_MUCH)


def check_leaves(count: int, what: str) -> None:
    """Raises SurgeryError if there are too many leaves. `what`: the start of the sentence."""
    if count > MOST_LEAVES:
        raise SurgeryError(
            f"{what} {count:,} leaves; a plan can have {MOST_LEAVES:,}",
            hint="Split the work between several recipes, each with a part of the leaves.",
            code=Code.TOO_MUCH,
        )
