"""`invert`: draft the recipe that undoes another one on its result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from ckpt_surgery.core.arguments import CheckpointLike, PathLike, RecipeLike, takes
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.documents import Versioned
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.protocols import Encoder
from ckpt_surgery.core.summary import LINES, Represented, Summary, text_rows
from ckpt_surgery.core.text import number_of
from ckpt_surgery.inference.drafts.drafting import draft_recipe
from ckpt_surgery.inference.undoing.inverting import IN_RANGE, Inversion, IrreversibleLeaf, invert_plan
from ckpt_surgery.inference.values.comparing import changed, structure_problems, try_on_random_values
from ckpt_surgery.inputs import output_files
from ckpt_surgery.inputs.opening import with_recipe
from ckpt_surgery.inputs.options import InvertOptions
from ckpt_surgery.inputs.preparing import prepare
from ckpt_surgery.inputs.request import Request, read_recipe, requested
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.yaml.writing import SCHEMA
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.planner.outputs import arrays_in_memory
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.planner.prepared import Prepared
from ckpt_surgery.planner.target import TARGET

MOST_LINES = 20
"""Maximum number of reasons that the comment at the beginning of a draft lists."""


@dataclass(frozen=True, repr=False)
class Inverse(Represented):
    """Result of `invert`: the recipe that undoes another one on one checkpoint, as far as possible."""

    recipe: str
    """The recipe, as YAML. Its source is the result of the inverted recipe."""
    irreversible: tuple[IrreversibleLeaf, ...]
    """Leaves of the source that do not come back: the `key` of each, and `why`."""
    problems: tuple[str, ...]
    """Deviations of the recipe from the checkpoint, one sentence each: mistakes of `invert`."""
    sampled: tuple[str, ...]
    """Keys of leaves that are too large to be compared whole: random regions of them were. Empty with
    `check=False`."""

    def _summary(self) -> Summary:
        lost = len(self.irreversible)
        verb = "does" if lost == 1 else "do"
        about = f"{number_of(lost, 'leaf')} {verb} not come back" if lost else "every leaf comes back"
        return Summary(about, (), text_rows(self.recipe), self.problems, noun=LINES)


@dataclass(frozen=True, kw_only=True)
class InvertDocument(Versioned):
    """`invert`."""

    recipe: str
    """The recipe that goes back, as YAML."""
    irreversible: tuple[IrreversibleLeaf, ...]
    """Leaves of SRC that do not come back."""
    problems: tuple[str, ...]
    """Mistakes of the program: leaves that the recipe makes otherwise than it should."""


@takes(InvertOptions, Request)
def invert(
    recipe: RecipeLike | LoadedRecipe | MigratedRecipe,
    *sources: CheckpointLike,
    check: bool = True,
    out: PathLike | None = None,
    overwrite: bool = False,
    **options: Unpack[InvertOptions],
) -> Inverse:
    """Draft the recipe that undoes a recipe: it leads from the result back to the checkpoint.

    `recipe`, `sources` and the options are what `plan` takes. Of several sources, the first comes back. What
    the recipe moves, stacks, splits or casts to a wider type comes back bit for bit; what it drops, rounds or
    computes from several leaves does not, and `irreversible` says why. What it multiplies or divides by a
    power of two comes back where no number leaves the range of its dtype: with `check` these leaves are read
    to find out, without it they are in `irreversible` too. Leaves that the recipe added or took from the
    target are dropped.

    The draft is planned, and its keys, shapes and dtypes are compared with the source's. With `check` both
    recipes are also run in memory, region by region, on random values in place of the source's. `out` is the
    path of a file to which the recipe is written; one that is there already is replaced only with
    `overwrite`.

    Raises RecipeError, PlanError, SourceError or UsageError where `recipe` and `sources` do not go together;
    StorageError where `out` cannot be written, DestinationError where it is there already.
    """
    request = requested(recipe, sources, None, options)
    if out is not None:
        request = with_recipe(request)
        output_files.check_documents([out], *output_files.named_in(request))
        output_files.check_kept(out, overwrite)
    inverse = _inverse(prepare(request), check)
    if out is not None:
        output_files.check_kept(out, overwrite)  # it took a while: somebody may have made the file
        output_files.write_document(out, inverse.recipe.encode())
    return inverse


@memory_errors("invert the recipe")
def _inverse(prepared: Prepared, check: bool) -> Inverse:
    plan = prepared.plan
    source = plan.inputs[0].name
    leaves = prepared.sources[source].leaves()
    inversion = invert_plan(plan, source, leaves)
    problems: Sequence[str] = ()
    sampled: Sequence[str] = ()
    if inversion.findings.formations:
        try:
            back = _plan_back(_draft(plan, inversion), plan, prepared)
        except SurgeryError as error:
            problems = [f"the draft is refused: {problem.message}" for problem in error.problems]
        else:
            inversion = _with_unproved(inversion, prepared, back, source, check)
            lost = frozenset(leaf.key for leaf in inversion.irreversible)
            problems = structure_problems(back, leaves, lost, back=True)
            if check and not problems:
                problems, sampled = try_on_random_values(plan, back)
    return Inverse(_draft(plan, inversion), inversion.irreversible, tuple(problems), tuple(sampled))


OUT_OF_RANGE = "a number leaves the range of its dtype, or is rounded at the end of it"
NOT_PROVED = "it comes back only where no number leaves the range of its dtype, and no value was looked at"


def _with_unproved(
    inversion: Inversion, prepared: Prepared, back: Plan, source: str, check: bool
) -> Inversion:
    """Add the leaves that come back only within the range of their dtype, unless their values prove it.

    Values are read if `check` is true.
    """
    sources, leaves = prepared.sources, prepared.sources[source].leaves()

    def read(name: str, leaf: Leaf, region: Region) -> np.ndarray:
        return sources[name].read(leaf, region)

    scaled = {one.target: leaves[one.target] for one in inversion.findings.formations if one.why == IN_RANGE}
    why = OUT_OF_RANGE if check else NOT_PROVED
    wrong = changed(scaled, source, prepared.plan, back, read) if check else scaled
    reasons = {leaf.key: leaf.why for leaf in inversion.irreversible} | dict.fromkeys(wrong, why)
    lost = tuple(IrreversibleLeaf(key, reasons[key]) for key in leaves if key in reasons)
    return replace(inversion, irreversible=lost)


def _draft(plan: Plan, inversion: Inversion) -> str:
    """The text of the draft, which begins with the reasons why leaves do not come back."""
    sources = " ".join(source.path for source in plan.inputs if source.name != TARGET)
    header = [
        SCHEMA,
        f"Drafted by `ckpt-surgery invert {plan.recipe} {sources}`.",
        "  ckpt-surgery apply THIS RESULT DST",
    ]
    reasons: dict[str, list[str]] = {}
    for leaf in inversion.irreversible:
        reasons.setdefault(leaf.why, []).append(leaf.key)
    header += [f"does not come back: {few_keys(keys)}: {why}" for why, keys in reasons.items()][:MOST_LINES]
    return draft_recipe(inversion.findings, header).text


class _AnyArrays(Encoder):
    """Encoder that accepts every kind of leaf and adopts no stored bytes."""

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        return []

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        return False


def _plan_back(text: str, plan: Plan, prepared: Prepared) -> Plan:
    """Plan the draft over the result of `plan`. Raises SurgeryError."""
    tree = {step.leaf.key.text: step.leaf for step in plan.steps}
    target = arrays_in_memory(_AnyArrays())
    return make_plan(
        read_recipe(text), {"source": tree}, None, [], {}, target, prepared.memory, prepared.workers
    )
