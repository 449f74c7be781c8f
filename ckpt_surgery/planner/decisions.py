"""Decides what becomes of every leaf, from a recipe and the listings of the sources.

Each pass turns the tree of the first source into the next one; the last pass makes the target's structure.
The problems of a pass are raised together at its end, because later passes would only repeat them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from ckpt_surgery.core.errors import PlanError, Problem, SurgeryError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.notices import Notice
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import number_of
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.language.expressions.operators import truth
from ckpt_surgery.language.expressions.scope import ExpressionError, Scope
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.schema.fields import Pass, reads_uint16_as_bfloat16
from ckpt_surgery.planner.disguised import bfloat16_of, is_uint16
from ckpt_surgery.planner.entries import PLACEHOLDER, Decisions, Drop, Entry, Tree, names_of_sources
from ckpt_surgery.planner.limits import PlanLimits
from ckpt_surgery.planner.passes import run_pass
from ckpt_surgery.planner.problems import Problems
from ckpt_surgery.planner.running import PassRun, count_of
from ckpt_surgery.planner.target import Target, target_leaves

OnPass = Callable[[PassRun], None]
"""Called with each pass that has been run, which then keeps what its outputs are made of."""

KEEP = "A checkpoint must have at least one leaf."
CLAIM = "Where the target has `...`, only a rule that claims the key gives a value: `{fill: KEY}`, say."


def decide(
    loaded: LoadedRecipe,
    listings: Mapping[str, Mapping[str, Leaf]],
    target: Target | None,
    on_pass: OnPass | None = None,
) -> Decisions:
    """Run all passes over the leaves of the sources, listed by source name; the first source is transformed.

    `on_pass` is called after each pass that has no problem.

    Raises PlanError with every problem of the first pass that has one, for hooks that are not allowed, and if
    no leaf is left.
    """
    if loaded.recipe.hooks is not None and loaded.hooks is None:  # a recipe is data, and hooks are a program
        message = f"the recipe has hooks: Python code, in {loaded.recipe.hooks} beside it"
        hint = "Read that file; then allow it to run: `allow_hooks=True`."
        raise PlanError(Problem(message, loaded.place(("hooks",)), hint, Code.HOOKS))
    as_bfloat16 = reads_uint16_as_bfloat16(loaded.recipe)
    trees: dict[str, Tree] = {}
    for name, listing in listings.items():
        reads = ((text, leaf, Read(name, leaf)) for text, leaf in listing.items())
        trees[name] = {
            text: Entry(leaf.key, leaf, bfloat16_of(read) if as_bfloat16 and is_uint16(leaf) else read)
            for text, leaf, read in reads
        }
    first = next(iter(trees))
    limits = PlanLimits(sum(map(len, listings.values())) + (0 if target is None else len(target.leaves)))
    chosen = [(i, p) for i, p in enumerate(loaded.recipe.passes) if _applies(loaded, i, p, trees, limits)]
    passes = chosen or [(0, Pass(rules=()))]
    drops: list[Drop] = []
    unused: list[Drop] = []
    decided_ids: Set[int] = frozenset()
    notices: list[Notice] = []
    named_target = target_leaves(target)
    for index, pass_ in passes:
        problems = Problems(loaded, index)
        run = PassRun(pass_, trees, named_target, problems, limits, decided_ids, on_pass is not None)
        last = index == passes[-1][0]
        run_pass(run, target if last else None, last)
        problems.raise_all()
        if on_pass is None:
            run.rules = ()  # they refer to the run, so all matches would stay until garbage is collected
        else:
            on_pass(run)
        limits.add_pass(len(run.tree))
        trees = {**trees, first: run.tree}
        decided_ids = run.decided_ids
        drops += run.drops
        unused += run.unused
        notices += problems.notices
    if not trees[first]:
        raise PlanError(*_nothing_left(loaded, drops, chosen or not any(listings.values())))
    return Decisions(tuple(trees[first].values()), (*drops, *unused), tuple(notices))


def _nothing_left(loaded: LoadedRecipe, drops: Sequence[Drop], ran: object) -> Iterator[Problem]:
    """Rules and policies that have dropped all the leaves, each at its place.

    `ran`: false where no pass has run over leaves; then it is the condition of each pass.
    """
    if loaded.recipe.unmatched == "drop" and not ran:
        why = "this condition is false, so no pass runs, and `unmatched: drop` takes all"
        for index, _ in enumerate(loaded.recipe.passes):
            hint = "Look at what the source holds."
            place = loaded.place(("passes", index, "when"))
            yield Problem(f"no leaf is left: {why}", place, hint, Code.NOTHING_LEFT)
        return
    counts = Counter((drop.rule, drop.why) for drop in drops)
    if not counts:
        yield Problem("no leaf is left: there was none", None, KEEP, Code.NOTHING_LEFT)
    for (rule, why), count in counts.items():
        who, hint = "this rule drops" if rule else f"`{why}` takes", CLAIM if why == PLACEHOLDER else KEEP
        where = ("unmatched",) if rule is None else rule.location
        given = loaded.place(where) if rule or where in loaded.document.marks else None
        message = f"no leaf is left: {who} {number_of(count, 'leaf')}"
        yield Problem(message, given, hint, Code.NOTHING_LEFT)


def _applies(
    loaded: LoadedRecipe, index: int, pass_: Pass, trees: Mapping[str, Tree], limits: PlanLimits
) -> bool:
    """Whether a pass runs. Its `when` sees the sources as given, not what the passes before make of them."""
    if pass_.when is None:
        return True
    names = {**loaded.names, **names_of_sources(trees)}
    first = next(iter(trees.values()))
    try:
        counted = partial(count_of, tree=first, matching=limits.matching)
        return truth(pass_.when.evaluate(Scope(names, "", counted)))
    except SurgeryError as error:
        span = (error.start, error.end) if isinstance(error, ExpressionError) else (None, None)
        place = loaded.place(("passes", index, "when"), *span)
        raise PlanError(*(replace(p, place=place) for p in error.problems)) from None
