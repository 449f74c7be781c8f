"""Recipe + leaf listings → who claims what: all passes, then the target.

Each pass turns one tree of entries into the next; the last one meets the target. Problems are raised
together at the end of the pass that has them: a later pass would only repeat them.
"""

from collections.abc import Mapping

from ckpt_surgery.arrays import Leaf
from ckpt_surgery.entries import Claims, Drop, Entry, Tree
from ckpt_surgery.errors import PlanError, Problem
from ckpt_surgery.expressions import ExpressionError, Scope
from ckpt_surgery.fitting import Target, fitted, target_leaves
from ckpt_surgery.nodes import Read
from ckpt_surgery.passes import Ledger, PassRun
from ckpt_surgery.recipe import LoadedRecipe, Pass


def make_claims(
    loaded: LoadedRecipe, listings: Mapping[str, Mapping[str, Leaf]], target: Target | None
) -> Claims:
    """Run all passes over the listings of the sources (by source name, in order).

    Raises PlanError with every problem of the first pass that has one.
    """
    trees: dict[str, Tree] = {
        name: {text: Entry(leaf.key, leaf, Read(name, leaf), None) for text, leaf in listing.items()}
        for name, listing in listings.items()
    }
    first = next(iter(trees))
    passes = [(i, p) for i, p in enumerate(loaded.recipe.passes) if _applies(loaded, i, p)] or [
        (0, Pass(rules=()))
    ]
    drops: list[Drop] = []
    warnings: list[str] = []
    for index, pass_ in passes:
        ledger = Ledger(loaded, index)
        run = PassRun(loaded, pass_, trees, target_leaves(target), ledger)
        last = index == passes[-1][0]
        trees[first] = fitted(run, target) if last and target else run.merged()
        ledger.close()
        drops += ledger.drops
        warnings += ledger.warnings
    return Claims(tuple(trees[first].values()), tuple(drops), tuple(warnings))


def _applies(loaded: LoadedRecipe, index: int, pass_: Pass) -> bool:
    if pass_.when is None:
        return True
    try:
        return bool(pass_.when.evaluate(Scope(loaded.names)))
    except ExpressionError as error:
        place = loaded.place(("passes", index, "when"), error.start, error.end)
        raise PlanError(*(Problem(p.message, place, p.hint) for p in error.problems)) from None
