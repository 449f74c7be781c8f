"""Open inputs: recipes, checkpoints at a path, pytrees in memory, and the configs of models beside them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ckpt_surgery.core.arguments import Function
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.file_states import changes, changes_text
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.history import CONFIG, RECORD, history_entry, own_metadata
from ckpt_surgery.core.memory import without_collection
from ckpt_surgery.core.protocols import RetypedSource, Source, details_of
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.formats import opening
from ckpt_surgery.formats.shared.config_files import check_access, config_place, read_config, read_object
from ckpt_surgery.functions.arrays import reads
from ckpt_surgery.inputs.options import SourceOptions
from ckpt_surgery.inputs.request import InMemory, OpenedPath, Request, read_recipe
from ckpt_surgery.language.expressions.lookups import Config, Configs, Layer
from ckpt_surgery.language.expressions.scope import CONFIGS
from ckpt_surgery.live.source import FORMAT, TreeSource
from ckpt_surgery.live.tree import is_abstract, live_tree
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.storage.samples import states, states_by_path

if TYPE_CHECKING:
    from ckpt_surgery.live.carrying_out import Restoration
    from ckpt_surgery.planner.plan import Input, Plan
    from ckpt_surgery.planner.prepared import Prepared

R = TypeVar("R", "Prepared", "Restoration")

TREE = "(tree)"
"""Name of a tree in memory, in messages and reports."""


def open_input(given: str | InMemory, *, is_target: bool = False, **which: Unpack[SourceOptions]) -> Source:
    """Open a checkpoint, or list a tree; one that is the target (`is_target`) need not have values.

    Raises SourceError for a checkpoint that cannot be opened, or that has changed since a program opened it,
    UsageError for a tree with a step, an item or a format, and for one with two leaves of the same name.
    """
    if isinstance(given, str):
        source = opening.open_source(str(given), *choice_at(given, **which))
        if isinstance(given, OpenedPath) and source.fingerprint() != given.fingerprint:
            now = states_by_path(source.files())
            raise changed_since_opening(given, changes(given.files, now, times=True) if given.files else ())
        return source
    called = "(target)" if is_target else TREE
    for name, value in which.items():
        if value is not None:
            what = f"it has no {name.removeprefix('src_')}, and {abridged(value)} is given"
            raise UsageError(f"{called} is a tree in memory: {what}")
    tree = given.tree
    return tree if isinstance(tree, TreeSource) else TreeSource(live_tree(tree, is_target), called)


def choice_at(path: str, **which: Unpack[SourceOptions]) -> tuple[str | None, int | None, str | None]:
    """Format, step and item to open a path with: an open checkpoint's own. Raises UsageError for others."""
    given: Mapping[str, Any] = {"src_format": None, "step": None, "item": None, **which}
    chosen = {name: getattr(path, name) for name in given} if isinstance(path, OpenedPath) else given
    for name, value in given.items():
        if value not in (None, chosen[name]):
            opened = f"{shown(path)} is open with the {name.removeprefix('src_')} {chosen[name]!r}"
            hint = "Leave it out, or give the path."
            raise UsageError(f"{opened}, and {abridged(value)} is given", hint=hint)
    return chosen["src_format"], chosen["step"], chosen["item"]


def changed_since_opening(path: str, changed: Sequence[tuple[str, str]]) -> SourceError:
    """Error for files that changed since a program opened a checkpoint. `changed`: see `changes`."""
    what = f": {changes_text(changed)}" if changed else ""
    hint = "Open it again once nothing writes to it."
    return SourceError(f"{shown(path)} has changed since it was opened{what}", hint=hint)


def open_sources(request: Request) -> list[Source]:
    """Open the sources of a request, or one for each of the last steps. Raises SourceError, UsageError."""
    pairs = [(source, request.step) for source in request.sources]
    if request.last is not None:
        pairs = [(source, step) for step in last_steps(request) for source in request.sources]
    item, format = request.item, request.src_format
    return [open_input(source, step=step, item=item, src_format=format) for source, step in pairs]


def with_recipe(request: Request) -> Request:
    """Read the recipe of a request, unless it was read before; a function is traced, with its sources open.

    Raises RecipeError, and for a function what `open_sources` and `traced` raise.
    """
    from ckpt_surgery.language.loading import LoadedRecipe

    if request.recipe is None or isinstance(request.recipe, LoadedRecipe):
        return request
    if callable(request.recipe):
        sources = open_sources(request)
        recipe = traced(request.recipe, sources, request.uint16)
        request = replace(request, recipe=recipe, opened=tuple(sources))
    return replace(request, recipe=read_recipe(request.recipe, request.set), set=())


@without_collection()
def traced(function: Function, sources: Iterable[Source], uint16: str | None) -> MigratedRecipe:
    """Trace a function with the listings of its sources. Raises UsageError for what no recipe can say."""
    from ckpt_surgery.migration.functions.tracing import recipe_of_function  # imports what functions need
    from ckpt_surgery.migration.originals import original_of_leaves, original_of_live
    from ckpt_surgery.planner.disguised import as_bfloat16, is_uint16

    known = [
        original_of_live(one.tree) if isinstance(one, TreeSource) else original_of_leaves(one.leaves())
        for one in sources
    ]
    stored = [leaf for original in known for leaf in original.leaves.values()]
    if uint16 != "bfloat16" or not any(map(is_uint16, stored)):
        return recipe_of_function(function, known)
    read = [{text: as_bfloat16(leaf) for text, leaf in original.leaves.items()} for original in known]
    retyped = [replace(original, leaves=leaves) for original, leaves in zip(known, read, strict=True)]
    return recipe_of_function(function, retyped, uint16)


def last_steps(request: Request) -> list[int]:
    """Find the latest finished steps of the one source of a request, ascending, as many as it asks for."""
    count = request.last or 0
    wrong = "the number of steps is at least 1" if count < 1 else None
    if len(request.sources) != 1:
        wrong = f"the steps are those of one source; {len(request.sources)} are given"
    elif request.step is not None:
        wrong = f"`step={request.step}` chooses one step"
    if wrong is not None:
        hint = "Name one directory of steps, or leave out `last=N`."
        raise UsageError(f"`last={count}`: {wrong}", hint=hint)
    source = open_input(request.sources[0], item=request.item, src_format=request.src_format)
    steps = details_of(source).choices().steps
    if len(steps) < count:
        has = f"has the finished steps {', '.join(map(str, steps))}"
        has, hint = has if steps else "is not a directory of steps", "Ask for fewer, or name its run."
        raise UsageError(f"`last={count}`: {shown(source.path)} {has}", hint=hint)
    return list(steps[-count:])


def in_memory(source: Source) -> bool:
    """True if a source is a tree in memory: it has neither a path nor files."""
    return source.format == FORMAT


def on_disk(sources: Iterable[Source]) -> list[Source]:
    """Select the sources that are checkpoints with a path."""
    return [source for source in sources if not in_memory(source)]


def without_values(source: Source) -> frozenset[str]:
    """Keys of a source's leaves that have only shape and dtype, no values."""
    source = source.stored if isinstance(source, RetypedSource) else source
    if not isinstance(source, TreeSource):
        return frozenset()
    return frozenset(text for text, value in source.tree.values.items() if is_abstract(value))


def with_samples(planned: R) -> R:
    """Add samples of the sources' files to a plan, so that `check_unchanged` notices changed contents.

    Call it once data will be read or the plan saved: no file is sampled for a plan that is only shown.
    Raises SourceError where leaves of a tree are read that have no values.
    """
    plan, sources = planned.plan, planned.sources
    check_values(plan, sources)
    return replace(planned, plan=replace(plan, inputs=with_states(plan.inputs, sources)))


def with_states(inputs: "Sequence[Input]", sources: Mapping[str, Source]) -> "tuple[Input, ...]":
    """Add file states to the inputs of a plan that lack them. Raises SourceError."""
    return tuple(i if i.files else replace(i, files=states(sources[i.name].files())) for i in inputs)


def check_values(plan: "Plan", sources: Mapping[str, Source]) -> None:
    """Raise SourceError where a plan reads leaves of a tree that have no values."""
    for name, source in sources.items():
        lacking = without_values(source)
        used = (read for step in plan.steps if lacking for read in reads(step.value) if read.source == name)
        keys = [read.leaf.key.text for read in used if read.leaf.key.text in lacking]
        if keys:
            problem = f"{source.path} has no values for {few_keys(keys)}: shapes alone, or donated arrays"
            raise SourceError(problem, hint="Give a tree of arrays that exist, or a checkpoint.")


def check_unchanged(plan: "Plan", sources: Mapping[str, Source], hint: str) -> None:
    """Raise SourceError if a source has changed since the plan was made. `hint`: what to do.

    Times, sizes and samples must be equal. A change between samples that leaves size and time goes unnoticed.
    """
    for before in plan.inputs:
        source = sources[before.name]
        changed = changes(before.files, states(source.files()), times=True) if before.files else ()
        if changed or source.fingerprint() != before.fingerprint:
            what = f": {changes_text(changed)}" if changed else ""
            raise SourceError(f"{shown(before.path)} changed while it was read{what}", hint=hint)


# --- their configs ----------------------------------------------------------------------------------------

ConfigFile = tuple[str, Mapping[str, Any]]
"""Name and content of a config."""


class ConfigFiles:
    """Config files of the sources, each read on first use."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        given: str | None = None,
        known: Mapping[str, ConfigFile | None] | None = None,
    ):
        """`given`: path of the JSON file that is the config of the first source, in place of one beside it.
        `known`: files by source that are not read again; None for a source without one."""
        self.sources = sources
        self.read: dict[str, ConfigFile | None] = dict(known or {})
        """Files read so far, by source; None for a source without one."""
        self.given = {} if given is None else {next(iter(sources)): given}
        """Path of the file that the caller gave, by source."""

    def of(self, name: str) -> ConfigFile | None:
        """The config file of a source; None where there is none. Raises SourceError."""
        if name not in self.read:
            given, source = self.given.get(name), self.sources[name]
            if given is not None:
                self.read[name] = os.path.basename(given), read_object(given)
            else:
                self.read[name] = None if in_memory(source) else read_config(source.path)
        return self.read[name]

    def recorded(self, name: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Model config for the history of a result, with a warning if it cannot be read.

        Without a file it is the one that the source's history has. Raises SourceError for a given file.
        """
        before: Mapping[str, Any] = history_entry(self.sources[name].metadata).get(CONFIG, {})
        try:
            file = self.of(name)
        except SourceError as error:
            if self.given.get(name) is not None:
                raise
            return before, (f"the config is not recorded: {error.problems[0].message}",)
        return (before if file is None else file[1]), ()


def configs_of(files: ConfigFiles) -> Configs:
    """Configs of sources by name, each read on first use. Raises StorageError if one may not be read."""
    for source in on_disk(source for name, source in files.sources.items() if name not in files.read):
        check_access(source.path)
    configs: dict[str, Config] = {}
    for name, source in files.sources.items():
        called = f"{CONFIGS}[{name!r}]" if configs else CONFIG
        absent = f"there is no {os.path.basename(config_place(source.path))} beside {shown(source.path)}"
        if in_memory(source):
            absent = f"{source.path} is in memory, where no config is beside it"
        configs[name] = Config(called, absent, partial(_config_layers, name, files))
    return Configs(configs)


def _config_layers(name: str, files: ConfigFiles) -> list[Layer]:
    """The mappings that make up a source's config, those of the highest precedence first."""
    metadata, file = files.sources[name].metadata, files.of(name)
    record = history_entry(metadata)
    earlier = Layer("the record of the conversion", {RECORD: record} if record else {}, of_model=False)
    if file is not None:
        return [Layer(*file), earlier]
    of_user = Layer("the custom metadata", own_metadata(metadata), of_model=False)
    return [Layer("the recorded config", record.get(CONFIG, {})), of_user, earlier]


def describe_inputs(sources: Mapping[str, Source]) -> "list[Input]":
    """Describe the sources as they are now, for the plan. Samples no file."""
    from ckpt_surgery.planner.plan import Input  # looking at a checkpoint does without plans

    return [
        Input(name, s.path, s.format, len(s.leaves()), s.fingerprint(), s.step, s.item)
        for name, s in sources.items()
    ]
