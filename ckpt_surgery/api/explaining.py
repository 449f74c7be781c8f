"""`explain`: trace one key of a result to its sources, or one key of a source to the result."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from ckpt_surgery.core.arguments import CheckpointLike, Function, RecipeLike, takes
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import SEPARATOR, text_of
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.inputs.options import PlanOptions
from ckpt_surgery.inputs.preparing import prepare
from ckpt_surgery.inputs.request import Request, requested
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.running import PassRun
from ckpt_surgery.planner.target import TARGET
from ckpt_surgery.planner.tracing import Outcome, attempts, last_pass, stages
from ckpt_surgery.report.explanation import UNMATCHED, Explanation, Line, Made, Used, made, rules_of


@takes(PlanOptions, Request)
def explain(
    recipe: RecipeLike | Function | LoadedRecipe | MigratedRecipe | None,
    *sources: CheckpointLike,
    key: str,
    **options: Unpack[PlanOptions],
) -> Explanation:
    """Say where a leaf of the result comes from, and what becomes of a leaf of a source.

    `recipe` and `sources` are what `plan` takes, and like `plan` it reads metadata alone. `key` is the exact
    key of a leaf: of the result, of a source, or of both, and then both are explained. It may be that of a
    subtree, whose leaves are then in the `plan` of the explanation. `name:key` means the key in the source
    of that name alone.

    Raises RecipeError, PlanError, SourceError or UsageError, as `plan` does; UsageError for a key that is
    neither a leaf nor a subtree on either side.
    """
    runs: list[PassRun] = []
    prepared = prepare(requested(recipe, sources, None, options), runs.append)
    plan = prepared.plan
    read = {i.name: prepared.sources[i.name].leaves() for i in plan.inputs if i.name != TARGET}
    asked, key = key, text_of(key)
    wanted, name = key, None
    result = {step.leaf.key.text: step for step in plan.steps}
    if key not in result and not any(key in leaves for leaves in read.values()):
        before, colon, rest = key.partition(":")
        if colon and before in read:
            wanted, name = rest, before
            read, result = {before: read[before]}, {}
    step = result.get(wanted)
    origin = None if step is None else made(step, stages(runs, wanted))
    used = tuple(_used(plan, runs, source, wanted) for source, leaves in read.items() if wanted in leaves)
    if origin is None and not used:
        plan = _below(plan, wanted, name)
        if not plan.steps and not plan.dropped:
            known = [*result, *(text for leaves in read.values() for text in leaves)]
            raise _unknown(wanted, name, runs, known)
    return Explanation(asked, plan, origin, used, _excerpts(runs, origin, used))


def _used(plan: Plan, runs: Sequence[PassRun], source: str, key: str) -> Used:
    read = [step.leaf.key.text for step in plan.steps if (source, key) in step.sources]
    dropped = next((d for d in plan.dropped if (d.source, d.leaf.key.text) == (source, key)), None)
    leaf = runs[0].trees[source][key].leaf
    # Rules that only look leaves up in a source never claim its leaves: that needs no mention.
    met = [a for a in attempts(runs, source, leaf) if not read or a.outcome is not Outcome.SOURCE]
    return Used(source, leaf, tuple(read), dropped, tuple(met))


def _below(plan: Plan, key: str, source: str | None) -> Plan:
    """Restrict a plan to steps and drops of leaves under a key; with `source`, in this source."""
    start = key.rstrip(SEPARATOR) + SEPARATOR

    def under(named: str, text: str) -> bool:
        return text.startswith(start) and source in (None, named)

    steps = [
        step
        for step in plan.steps
        if (source is None and step.leaf.key.text.startswith(start))
        or any(under(*one) for one in step.sources if one[0] != TARGET)
    ]
    dropped = [gone for gone in plan.dropped if under(gone.source, gone.leaf.key.text)]
    return replace(plan, steps=tuple(steps), dropped=tuple(dropped))


def _unknown(key: str, source: str | None, runs: Sequence[PassRun], known: Sequence[str]) -> UsageError:
    """Error for a key that neither side has, with the nearest known one."""
    parts = (text.split(SEPARATOR) for text in known)
    subtrees = (SEPARATOR.join(names[:end]) for names in parts for end in range(1, len(names)))
    guess = did_you_mean(key, dict.fromkeys([*known, *subtrees]))
    where = "the result and the sources have" if source is None else f"the source `{shown(source)}` has"
    hint = "`inspect` lists the keys of a source, `plan` those of the result."
    between = [run.problems.pass_index for run in runs[:-1] if key in run.tree]
    if between and source is None:
        hint = f"There is one between the passes, after passes[{between[0]}]: give the key before or after."
    return UsageError(f"{where} no leaf and no subtree `{shown(key)}`{guess}", hint=hint)


def _excerpts(
    runs: Sequence[PassRun], origin: Made | None, used: Sequence[Used]
) -> Mapping[str, tuple[Line, ...]]:
    """Recipe lines of the rules in the explanation, and of the `unmatched` policy if it dropped a leaf."""
    document = runs[-1].problems.loaded.document
    wanted = {rule.path: rule.location for rule in rules_of(origin, used)}
    for use in used:
        if use.dropped is not None and use.dropped.why.startswith(UNMATCHED):
            run = last_pass(runs, use.source, use.leaf)
            wanted[UNMATCHED] = run.problems.own(UNMATCHED)
    return {path: tuple([Line(*line) for line in document.lines(at)]) for path, at in wanted.items()}
