"""Limits of a whole plan: bounds on what a short recipe can ask for.

Each is far above what checkpoints have, and is counted before, or while, things are made, so that a recipe
which asks for too much is refused within the time and the memory of a large plan that is carried out.
"""

from collections.abc import Set

from ckpt_surgery.core.errors import Code, SurgeryError
from ckpt_surgery.functions.arrays import Node
from ckpt_surgery.graph.walks import MOST_FUNCTIONS, functions_of, too_many_functions
from ckpt_surgery.language.expressions.regexes import MatchBudget

MOST_LEAVES = 1_000_000
"""Limit on the leaves of a result, and on the outputs that the rules of a pass make."""
MOST_NAME_BYTES = 128 << 20
"""Limit on the bytes of all keys that the rules of a plan make."""
MOST_COUNTED = 256
"""Limit on the patterns of `count('…')` in one pass."""
MOST_ADDED, TIMES_ADDED = 100_000, 4
"""Limit on the leaves that all passes together add: so many, or so many times those of the sources and the
target. The experts and layers of the largest models, each a leaf, are 70,000."""
MOST_MADE, TIMES_MADE = 300_000, 16
"""The same limit on the leaves that all passes together make, of which most may take the place of others."""


class PlanLimits:
    """Counts what one plan has made so far. Its methods raise SurgeryError for what is too much."""

    def __init__(self, given: int) -> None:
        """`given`: number of leaves of all sources and of the target."""
        self._given = self._present = given
        self._added = self._made = self._made_now = 0
        self.matching = MatchBudget()
        """The time that regular expressions take."""
        self.second_looks = MatchBudget()
        """The time that it takes to say why regular expressions match nothing."""
        self._name_bytes = 0
        self._functions = 0

    def add_pass(self, after: int) -> None:
        """Count a pass after which there are so many leaves."""
        self._added += max(0, self._made_now - self._present)
        self._made += self._made_now
        self._made_now, self._present = 0, after

    def check_growth(self, count: int) -> None:
        """Refuse leaves that a short recipe multiplies without end, before they are made.

        `count`: what the rules of the pass make up to here. Leaves that a later pass drops again count, too.
        """
        check_leaves(count, "the rules of this pass up to here make")
        self._made_now = max(self._made_now, count)
        added, made = self._added + max(0, count - self._present), self._made + count
        for number, limit, what in (
            (added, max(TIMES_ADDED * self._given, MOST_ADDED), "more leaves"),
            (made, max(TIMES_MADE * self._given, MOST_MADE), "leaves"),
        ):
            if number > limit:
                raise SurgeryError(
                    f"the rules of this pass up to here make {number:,} {what}, with those of the "
                    f"passes before, out of the {self._given:,} that are given; the limit is {limit:,}",
                    hint="Make copies of a leaf once, with `for`, and not in pass after pass.",
                    code=Code.TOO_MUCH,
                )

    def add_key(self, text: str) -> None:
        """Count a key that a rule makes."""
        self._name_bytes += len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        if self._name_bytes > MOST_NAME_BYTES:
            most = f"more than {MOST_NAME_BYTES >> 20} MiB together"
            raise SurgeryError(f"the names of the leaves are too long: {most}", code=Code.TOO_MUCH)

    def add_functions(self, value: Node, bases: Set[int]) -> None:
        """Count the functions of a value that were made from those with the identities `bases`."""
        self._functions += functions_of(value, bases)
        if self._functions > MOST_FUNCTIONS:
            raise SurgeryError(too_many_functions("the rules up to here make"), code=Code.TOO_MUCH)


def check_leaves(count: int, what: str) -> None:
    """Raises SurgeryError if there are too many leaves. `what`: the start of the sentence."""
    if count > MOST_LEAVES:
        hint = "Split the work between several recipes, each with a part of the leaves."
        message = f"{what} {count:,} leaves; a plan can have {MOST_LEAVES:,}"
        raise SurgeryError(message, hint=hint, code=Code.TOO_MUCH)
