"""`infer`: draft the recipe that turns the structure of one checkpoint into that of another."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack, cast, get_args

from ckpt_surgery.core.arguments import CheckpointLike, PathLike, RecipeLike, bytes_of, described
from ckpt_surgery.core.documents import Versioned
from ckpt_surgery.core.errors import SurgeryError, UsageError
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import CHECKING, READING, ByteCounter, ProgressLike, Report
from ckpt_surgery.core.protocols import RetypedSource
from ckpt_surgery.core.summary import LINES, Represented, Summary, text_rows
from ckpt_surgery.core.text import abridged, did_you_mean, number_of, shown
from ckpt_surgery.inference.documents import Given, InferredCandidate, InferredLeaf, OpenLeaves, header
from ckpt_surgery.inference.drafts.drafting import Draft, InferredRule, draft_recipe
from ckpt_surgery.inference.expressions.formations import (
    COMPARED,
    ConflictEntry,
    EvidenceName,
    Findings,
    Undecided,
)
from ckpt_surgery.inference.finding import infer_findings
from ckpt_surgery.inference.hints import hints_of
from ckpt_surgery.inference.values.comparing import structure_problems, value_problems
from ckpt_surgery.inference.values.reading import Side, fingerprints_of
from ckpt_surgery.inputs import options
from ckpt_surgery.inputs.checkpoints import open_as
from ckpt_surgery.inputs.matching import recipe_of_rules
from ckpt_surgery.inputs.opening import choice_at, without_values
from ckpt_surgery.inputs.options import SourceOptions
from ckpt_surgery.inputs.output_files import CheckpointPath, check_documents, check_kept, write_document
from ckpt_surgery.inputs.preparing import prepare
from ckpt_surgery.inputs.request import checkpoint_or_tree, read_recipe, requested, uint16_at
from ckpt_surgery.inputs.warnings import kept_as_integers
from ckpt_surgery.language.loading import LoadedRecipe, parse_recipe
from ckpt_surgery.language.written import KEEP, document_of
from ckpt_surgery.language.yaml.writing import with_rules
from ckpt_surgery.planner.disguised import is_uint16
from ckpt_surgery.planner.listings import is_listing, read_listing
from ckpt_surgery.planner.prepared import Prepared
from ckpt_surgery.storage.views import forget
from ckpt_surgery.system.progress_bars import reported
from ckpt_surgery.system.resources import default_memory

UNBOUNDED = 1 << 60
"""Memory budget, in bytes, with which no plan has to be cut."""
MOST_ROUNDS = 3
"""Maximum number of drafts, each without what the proof of the one before refuted."""


@dataclass(frozen=True, kw_only=True)
class InferDocument(Versioned):
    """`infer`."""

    source: Given
    """SRC."""
    target: Given
    """TARGET."""
    values: Literal["shared", "partly", "unrelated", "none"]
    """Share of the target's elements that are in the source, in any order: at least half (`shared`), less
    (`partly`), none (`unrelated`); `none` where values were not compared. Leaves of one repeated value count
    for nothing."""
    needs_target: bool
    """True if the recipe needs `--target`."""
    recipe: str
    """The draft."""
    rules: tuple[InferredRule, ...]
    """Its rules."""
    leaves: tuple[InferredLeaf, ...]
    """Leaves of the target that are decided."""
    undecided: tuple[OpenLeaves, ...]
    """Leaves of the target that are not."""
    conflicts: tuple[ConflictEntry, ...]
    """Pairs for which values and names disagree."""
    dropped: tuple[str, ...]
    """Leaves of the source that feed nothing."""
    from_target: tuple[str, ...]
    """Leaves that keep the target's values."""
    problems: tuple[str, ...]
    """Reason why the draft does not do what was found: a mistake of this program, please report it."""
    warnings: tuple[str, ...]
    """Suspicions about SRC or TARGET, such as bfloat16 that is kept as uint16."""


@dataclass(frozen=True, repr=False)
class Inferred(Represented):
    """Result of `infer`."""

    source: str
    """Path of the source."""
    target: str
    """Path of the target."""
    source_leaves: int
    """Number of leaves of the source."""
    target_leaves: int
    """Number of leaves of the target."""
    values: Literal["shared", "partly", "unrelated", "none"]
    """Share of the target's numbers in the source: `shared` (at least half of the elements), `partly`,
    `unrelated`, or `none`, where values were not compared."""
    draft: Draft
    """The recipe, with the evidence for each of its rules."""
    findings: Findings
    """Findings about each leaf."""
    problems: tuple[str, ...] = ()
    """Reasons why the draft does not do what the findings say: bugs of this program."""
    warnings: tuple[str, ...] = ()
    """Possible mistakes in the source or the target, such as bfloat16 that is kept as uint16."""

    @property
    def recipe(self) -> str:
        """The text of the recipe."""
        return self.draft.text

    @property
    def needs_target(self) -> bool:
        """True if the recipe takes values from the target, which it must then be given."""
        return bool(self.findings.from_target)

    @property
    def compared(self) -> int:
        """Number of target leaves whose every element was compared with the recipe's result."""
        return sum(formation.evidence in COMPARED for formation in self.findings.formations)

    @property
    def decided(self) -> bool:
        """True if the recipe makes all of the target; its plan is checked, and values where they decide."""
        return not self.findings.undecided and not self.problems

    def _summary(self) -> Summary:
        word = "decided" if self.decided else "not decided"
        rules = number_of(len(self.draft.rules), "rule")
        about = f"{rules}, {word}: {self.source} → {self.target}"
        return Summary(about, (), text_rows(self.recipe), self.problems, noun=LINES)

    def document(self) -> InferDocument:
        """The JSON document of `infer --json`."""
        findings = self.findings
        return InferDocument.from_attributes(
            self,
            source=Given(self.source, self.source_leaves),
            target=Given(self.target, self.target_leaves),
            rules=self.draft.rules,
            leaves=tuple(
                InferredLeaf(
                    one.target, one.sources, str(one.value), cast(EvidenceName, one.evidence), one.why
                )
                for one in findings.formations
            ),
            undecided=tuple(
                OpenLeaves.from_attributes(
                    one,
                    candidates=tuple(
                        InferredCandidate.from_attributes(each, score=round(each.score, 3))
                        for each in one.candidates
                    ),
                )
                for one in findings.undecided
            ),
            conflicts=findings.conflicts,
            dropped=findings.dropped,
            from_target=findings.from_target,
        )


@described
def infer(
    src: CheckpointLike,
    target: CheckpointLike,
    *,
    step: options.Step = None,
    item: options.Item = None,
    src_format: options.SrcFormat = None,
    uint16: options.Uint16 = None,
    recipe: options.HintRecipe = None,
    rules: options.HintRules = (),
    values: options.Compared = "auto",
    memory: options.Memory = None,
    out: options.Out = None,
    overwrite: options.ReplaceOut = False,
    progress: ProgressLike = None,
) -> Inferred:
    """Draft the recipe that turns the structure of `src` into that of `target`.

    Both are paths of checkpoints, or pytrees; `target` can be a listing of keys, shapes and dtypes, too.
    Where the target holds numbers of the source, they decide, and every element is compared. `step`, `item`
    and `src_format` say how the source is read, `uint16` how both are, and the recipe says that, too.
    `progress`: see `apply`.

    `recipe`, which is what `apply` takes as one, and `rules` are hints: `match` rules of one pass, which also
    teach words and layouts for all that is inferred.

    What evidence does not decide is listed in `findings.undecided`, and is not in the recipe, which then
    stops with an error where it is run; each candidate has the `rules` that decide for it. Raises SourceError
    or UsageError, RecipeError or PlanError for hints that are wrong or contradict the target, and
    DestinationError where `out` is there already.
    """
    with reported(progress) as report, memory_errors("infer the recipe"):
        forget()
        if values not in get_args(options.CompareBy):
            guess = did_you_mean(values, get_args(options.CompareBy))
            raise UsageError(f"`values` is {abridged(values)}{guess}", hint="It can be: auto, ignore.")
        which: SourceOptions = {"step": step, "item": item, "src_format": src_format}
        check_written([out], src, target, recipe, **which)
        if out is not None:
            check_kept(out, overwrite)
        given = _hint_recipe(recipe, rules)
        budget = bytes_of("memory", memory) or default_memory()
        # A recipe reads its sources and its target alike.
        ways = {uint16_at(checkpoint_or_tree(side), uint16) for side in (src, target)}
        read_as = "bfloat16" if "bfloat16" in ways else uint16
        source, wanted = _open_side(src, budget, read_as, **which), _open_target(target, budget, read_as)
        result = _Sides(source, wanted, which, report).infer(given, values == "auto")
        if out is not None:
            check_kept(out, overwrite)  # it took a while: somebody may have made the file
            write_document(out, result.recipe.encode())
        return result


def _hint_recipe(recipe: RecipeLike | None, rules: Sequence[str]) -> LoadedRecipe | None:
    """The recipe of the hints, `rules` behind those of `recipe`; None without any. Raises RecipeError."""
    kept = next((rule for rule in rules if rule.startswith(KEEP)), None)
    if kept is not None:
        hint = "Leave it out: what becomes of all other leaves is inferred."
        raise UsageError(f"not a hint: `-e {shown(kept)}`", hint=hint)
    if recipe is None:
        return read_recipe(recipe_of_rules(rules)) if rules else None
    loaded: LoadedRecipe = recipe if isinstance(recipe, LoadedRecipe) else read_recipe(recipe)
    if not rules or "passes" in loaded.document.value:
        return loaded
    return parse_recipe(with_rules(loaded.document, document_of(rules)["rules"]), loaded.path)


def check_written(
    documents: Sequence[PathLike | None],
    src: CheckpointLike,
    target: CheckpointLike,
    recipe: RecipeLike | None,
    **which: Unpack[SourceOptions],
) -> None:
    """Refuse documents that would be written over one another, or over or into what `infer` reads.

    Raises UsageError or StorageError.
    """
    read = []
    source, other = checkpoint_or_tree(src), checkpoint_or_tree(target)
    if isinstance(source, str):
        choice = choice_at(source, **which)
        read.append(CheckpointPath(source, *choice))
    if isinstance(other, str):
        read.append(CheckpointPath(other, *choice_at(other)))
    checkpoints = [given for given in read if not is_listing(given.path)]
    files = [given.path for given in read]
    if isinstance(recipe, str | os.PathLike) and "\n" not in (path := os.fspath(recipe)):
        files.append(path)
    check_documents(documents, checkpoints, files)


@dataclass(frozen=True, eq=False)
class _OpenSide:
    """A checkpoint, a tree or a listing."""

    given: CheckpointLike
    """Argument that passes it to `plan`."""
    path: str
    side: Side
    retyped: bool = False
    """True if it has arrays of uint16 that are read as bfloat16."""
    warnings: tuple[str, ...] = ()


def _open_side(
    given: CheckpointLike, memory: int, uint16: str | None, **which: Unpack[SourceOptions]
) -> _OpenSide:
    source = open_as(checkpoint_or_tree(given), uint16, **which)
    read = None if without_values(source) else source.read
    side = Side(source.leaves(), {}, read, memory=memory)
    retyped = isinstance(source, RetypedSource) and any(map(is_uint16, source.stored.leaves().values()))
    return _OpenSide(given, source.path, side, retyped, kept_as_integers([source]))


def _open_target(given: CheckpointLike, memory: int, uint16: str | None) -> _OpenSide:
    if isinstance(given, str | os.PathLike) and is_listing(path := os.fspath(given)):
        return _OpenSide(given, path, Side(read_listing(path)))
    return _open_side(given, memory, uint16 if isinstance(checkpoint_or_tree(given), str) else None)


@dataclass(frozen=True)
class _Sides:
    """Both sides, and how they are read."""

    source: _OpenSide
    target: _OpenSide
    options: SourceOptions
    """Options of `plan` with which the source is opened."""
    progress: Report | None

    def infer(self, given: LoadedRecipe | None, compare: bool) -> Inferred:
        """Infer a recipe that does the same as the given rules. `compare`: whether values count."""
        source, target = self.source, self.target
        hints = None if given is None else hints_of(given, source.side, target.side)
        mine, theirs = self._read(compare)
        findings = infer_findings(mine, theirs, hints)
        policies = {"input": {"uint16": "bfloat16"}} if source.retyped or target.retyped else {}
        for _ in range(MOST_ROUNDS):
            draft = draft_recipe(findings, header(source.path, target.path, findings), policies)
            problems, wrong = self._check(findings, draft, theirs)
            if not wrong:
                break
            findings = _without_refuted(findings, wrong)
        else:
            problems = [*problems, *(f"`{key}`: {why}" for key, why in wrong.items())]
        return Inferred(
            source.path,
            target.path,
            len(mine.leaves),
            len(theirs.leaves),
            findings.shared.value,
            draft,
            findings,
            tuple(problems),
            (*source.warnings, *target.warnings),
        )

    def _read(self, compare: bool) -> Iterator[Side]:
        """Both sides with the fingerprints of their leaves, or without values, if these do not count."""
        sides = self.source.side, self.target.side
        compare = compare and all(side.read is not None for side in sides)
        total = sum(leaf.nbytes for side in sides for leaf in side.leaves.values())
        count = ByteCounter(total, self.progress, READING).add
        dtypes = {leaf.spec.dtype for leaf in sides[1].leaves.values() if leaf.spec is not None}
        for side, roundings in zip(sides, (sorted(dtypes, key=str), ()), strict=True):
            if side.read is not None and compare:
                known = fingerprints_of(side.leaves, side.read, side.memory, roundings, count)
                yield replace(side, fingerprints=known)
            else:
                yield replace(side, read=None)

    def _check(self, findings: Findings, draft: Draft, wanted: Side) -> tuple[list[str], dict[str, str]]:
        """Plan the draft; return its problems, and by key why leaves get other values than the target's."""
        formations = findings.formations
        if not formations and not findings.from_target:
            return [], {}  # nothing is decided, so that there is nothing to plan
        try:
            prepared = self._plan_decided(findings, draft)
        except SurgeryError as error:
            return [f"the draft cannot be planned: {problem.message}" for problem in error.problems], {}
        open_keys = {key for undecided in findings.undecided for key in undecided.targets}
        problems = structure_problems(prepared.plan, wanted.leaves, open_keys, formations)
        if problems or wanted.read is None:
            return problems, {}
        given = replace(self.source.side, read=prepared.sources[prepared.plan.inputs[0].name].read)
        total = sum(wanted.leaves[formation.target].nbytes for formation in formations)
        count = ByteCounter(total, self.progress, CHECKING).add
        return [], dict(value_problems(prepared.plan, formations, given, wanted, count))

    def _plan_decided(self, findings: Findings, draft: Draft) -> Prepared:
        """Plan the decided part of a draft, without candidates for the rest."""
        document = dict(draft.document)
        if findings.undecided:
            document["unmatched"] = "drop"
            document["rules"] = document["rules"][: -1 if draft.stops else None]
            document["target"] = {"missing": "fallback"}
        # The plan is only looked at: it is not cut into tasks that fit into memory, which takes long.
        options: Any = {**self.options, "memory": UNBOUNDED}
        if findings.from_target:
            options["target"] = self.target.given
        return prepare(requested(document, (self.source.given,), None, options))


def _without_refuted(findings: Findings, wrong: Mapping[str, str]) -> Findings:
    """Remove refuted formations from the findings."""
    kept = [one for one in findings.formations if one.target not in wrong]
    refuted = [one for one in findings.formations if one.target in wrong]
    undecided = (Undecided((f.target,), f"the values disagree: {wrong[f.target]}") for f in refuted)
    used, lost = ({key for formation in some for key in formation.sources} for some in (kept, refuted))
    return replace(
        findings,
        formations=tuple(kept),
        undecided=(*findings.undecided, *undecided),
        dropped=tuple(key for key in findings.dropped if key in used or key not in lost),
    )
