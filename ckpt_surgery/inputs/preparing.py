"""From a request to a plan: the recipe is read, the sources are opened, and their leaves are listed.

Reads metadata only, and creates nothing.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ckpt_surgery.core.errors import PlanError, SourceError, UsageError
from ckpt_surgery.core.file_states import changes, changes_text
from ckpt_surgery.core.history import NO_RECIPE
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.optimizer_states import as_containers, as_state_dict
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.protocols import ChosenSource, Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.formats.shared.orbax_layout import is_item
from ckpt_surgery.graph.nodes import reads
from ckpt_surgery.inputs.destination import destination, form_of, resolved
from ckpt_surgery.inputs.history import ConfigFiles, configs_of, noted
from ckpt_surgery.inputs.layer_stacks import with_scan_layers
from ckpt_surgery.inputs.model_configs import config_warnings
from ckpt_surgery.inputs.opening import in_memory, opened, opened_sources, target_leaves, without_values
from ckpt_surgery.inputs.recipes import read_recipe
from ckpt_surgery.inputs.request import InMemory, Request
from ckpt_surgery.inputs.saved_plans import as_saved, check_same_files, load_hooks
from ckpt_surgery.inputs.warnings import (
    chosen_items,
    dequantized,
    destination_warnings,
    disguised_bfloat16,
    filled_chunks,
    repeated_sources,
    unread_weights,
)
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.language.loading import LoadedRecipe, parse_recipe
from ckpt_surgery.language.models import InputPolicy, TargetPolicy, reads_uint16_as_bfloat16
from ckpt_surgery.planner.decisions import Watch
from ckpt_surgery.planner.listings import is_listing, listed_leaves, read_listing
from ckpt_surgery.planner.options import DEFAULT_FORMAT, DEFAULT_ITEM, DestinationOptions, Prepared
from ckpt_surgery.planner.plan import DroppedItem, Input, Plan
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.planner.resharding import without_shardings
from ckpt_surgery.planner.shares import check_sources_used, target_share
from ckpt_surgery.planner.target import TARGET, Target, as_bfloat16, listed_target
from ckpt_surgery.planner.transfers import Destination
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.listing import directory_names, real_path, walk
from ckpt_surgery.storage.samples import states
from ckpt_surgery.system.resources import default_memory, default_workers
from ckpt_surgery.verification.descriptions import record_path


def with_recipe(request: Request) -> Request:
    """The request with its recipe read; unchanged where it has none, or one that was read before.

    Raises RecipeError.
    """
    if request.recipe is None or isinstance(request.recipe, LoadedRecipe):
        return request
    return replace(request, recipe=read_recipe(request.recipe, request.set), set=())


@memory_errors("make the plan")
def prepare(request: Request, watch: Watch = lambda run: None) -> Prepared:
    """The plan that is asked for, with the open sources that it is made from. `watch`: see `decide`.

    Raises RecipeError, PlanError, SourceError or UsageError, with every problem that was found.
    """
    loaded = loaded_recipe(request)
    if request.unshard:
        loaded = replace(loaded, recipe=without_shardings(loaded.recipe))
    options = resolved(request, loaded.recipe.output)
    inputs = open_inputs(request, loaded)
    inputs = replace(inputs, listings=_spelled_for(options.format, inputs))
    loaded, sources = inputs.loaded, inputs.sources
    if options.step is not None and options.item is None:
        options = replace(options, item=inputs.first.item)
    memory = request.memory or default_memory()
    workers = request.workers or default_workers()
    recipe = None if request.recipe is None else loaded
    metadata, notes = noted(inputs.configs, recipe, options.format)
    place = destination(options, metadata, list(sources.values()))
    if (pinned := request.pinned) is not None:
        linked, cut_for = pinned.saved.linked, pinned.saved.request.memory
        place = replace(place, may_link=lambda number: linked[number : number + 1] == "1")
    plan = planned(inputs, place, metadata, memory if pinned is None else cut_for, workers, watch)
    warnings = (
        *request.notes,
        *plan.warnings,
        *notes,
        *(chosen_items(sources.values()) if request.item is None else ()),
        *destination_warnings(options, inputs.first),
    )
    if options.format == DEFAULT_FORMAT:
        keys = [step.leaf.key.text for step in plan.steps]
        metadata = with_scan_layers(metadata, keys, options.step is not None)
    hooks = loaded.hooks if isinstance(loaded.hooks, HookFile) else None
    form = form_of(options)
    if request.made_from is None and form.holds_config:  # a merge changes the entries itself
        warnings = (*warnings, *config_warnings(replace(plan, metadata=metadata)))
    items = dropped_items(sources, options)
    plan = replace(
        plan, warnings=warnings, metadata=metadata, dropped_items=items, destination=options.chosen
    )
    read = dict(inputs.configs.read)
    prepared = Prepared(plan, sources, options, form, memory, workers, hooks, read, inputs.listing)
    return prepared if pinned is None else as_saved(prepared, pinned)


@dataclass(frozen=True)
class Inputs:
    """What a plan is made from: the recipe, and the open sources with their leaves."""

    loaded: LoadedRecipe
    """The recipe, with the configs of the sources and with its hooks, where these may run."""
    sources: Mapping[str, Source]
    """The open sources by name; `target` is the target, where that has values."""
    listings: Mapping[str, Mapping[str, Leaf]]
    """Leaves of each source by its name, without the target's."""
    described: Sequence[Input]
    """The sources, and the target where that has values, as they are now."""
    configs: ConfigFiles
    listing: Mapping[str, Leaf] | None
    """Leaves of the target by key, where that is a listing."""
    target: Target | None

    @property
    def first(self) -> Source:
        """The source that the recipe transforms."""
        return self.sources[next(iter(self.listings))]


def planned(
    inputs: Inputs,
    destination: Destination,
    metadata: Mapping[str, Any],
    memory: int,
    workers: int,
    watch: Watch = lambda run: None,
) -> Plan:
    """The plan for open inputs, with the warnings that hold for any destination. `watch`: see `decide`.

    Raises PlanError, SourceError or UsageError.
    """
    loaded, sources = inputs.loaded, inputs.sources
    plan = make_plan(
        loaded,
        inputs.listings,
        inputs.target,
        inputs.described,
        metadata,
        destination,
        memory,
        workers,
        watch,
    )
    check_sources_used(plan, loaded, inputs.listings, inputs.target)
    warnings = (
        *target_share(plan, loaded, inputs.target),
        *plan.warnings,
        *repeated_sources(sources, [one for one in plan.inputs if one.name != TARGET]),
        *filled_chunks(plan),
        *dequantized(plan, sources),
        *disguised_bfloat16(plan, sources),
        *unread_weights(sources[name] for name in inputs.listings),
    )
    return replace(plan, warnings=warnings)


def open_inputs(request: Request, loaded: LoadedRecipe) -> Inputs:
    """Open the sources and the target. Raises SourceError, PlanError or UsageError.

    Raises SourcesChanged where they are not what they were when the plan was saved.
    """
    pinned = request.pinned
    if pinned is not None:
        loaded = replace(loaded, hooks=load_hooks(pinned, request.allow_hooks))
    elif request.allow_hooks:
        loaded = _with_hooks(loaded)
    if request.uint16 is not None:
        policy = InputPolicy.model_construct(uint16=request.uint16)
        loaded = replace(loaded, recipe=loaded.recipe.model_copy(update={"input": policy}))
    _check_target_is_named(request, loaded)
    if pinned is None:
        given = opened_sources(request)
    else:
        given = [opened(i.path, i.format, i.step, i.item) for i in pinned.inputs if i.name != TARGET]
    sources = dict(zip(loaded.recipe.source_names(len(given)), given, strict=True))
    configs = ConfigFiles(dict(sources), request.config, None if pinned is None else pinned.saved.configs)
    loaded = replace(loaded, configs=configs_of(configs))
    listings = {name: source.leaves() for name, source in sources.items()}
    listing = _listing(request)
    target = _target(request, listing, loaded, sources)
    inputs = described(sources)
    if pinned is not None:
        inputs = list(with_states(inputs, sources))
        check_same_files(pinned, inputs)
    return Inputs(loaded, sources, listings, inputs, configs, listing, target)


def _check_target_is_named(request: Request, loaded: LoadedRecipe) -> None:
    """Raise UsageError where a tree that can only be the target is given as one more source."""
    recipe, trees = loaded.recipe, [isinstance(source, InMemory) for source in request.sources]
    if request.target is None and trees and trees[-1] and not recipe.takes_more:
        wanted = len(recipe.named_sources)
        if len(trees) > wanted:
            takes = "1 source" if wanted == 1 else f"{wanted} sources"
            raise UsageError(
                f"the recipe takes {takes}, and the last of the {len(trees)} that were given is a tree",
                hint="If it is the target, say so: `target=…`.",
                code=Code.UNKNOWN_SOURCE,
            )


def _spelled_for(format: str, inputs: Inputs) -> Mapping[str, Mapping[str, Leaf]]:
    """The listings, with the states of optimizers spelled as readers of the destination's format expect."""
    spelled: dict[str, Mapping[str, Leaf]] = {}
    if not formats.named(format).holds_empty:
        return inputs.listings
    for name, leaves in inputs.listings.items():
        source = inputs.sources[name]
        if not in_memory(source) and formats.named(source.format).holds_empty:
            lists = formats.named(source.format).holds_lists, formats.named(format).holds_lists
            leaves = {(True, False): as_state_dict, (False, True): as_containers}.get(lists, dict)(leaves)
        spelled[name] = leaves
    return spelled


def loaded_recipe(request: Request) -> LoadedRecipe:
    """The recipe of a request, read where it was not read before. Raises RecipeError."""
    if request.recipe is None:
        return parse_recipe("version: 1\n", NO_RECIPE, request.set)
    recipe: LoadedRecipe = with_recipe(request).recipe
    return recipe


def _with_hooks(loaded: LoadedRecipe) -> LoadedRecipe:
    """The recipe with its hooks loaded, if it has any. Runs their file."""
    if loaded.recipe.hooks is None or loaded.hooks is not None:
        return loaded
    try:
        return replace(loaded, hooks=HookFile(loaded.directory / loaded.recipe.hooks))
    except PlanError as error:
        place = loaded.place(("hooks",))
        raise PlanError(*(replace(p, place=place) for p in error.problems)) from error


def _listing(request: Request) -> Mapping[str, Leaf] | None:
    """The leaves of a target that is a listing; None where it is anything else."""
    if request.pinned is not None:
        listing = request.pinned.saved.target
        return None if listing is None else listed_leaves(request.pinned.path, listing)
    given = request.target
    return read_listing(given) if isinstance(given, str) and is_listing(given) else None


def _target(
    request: Request,
    listing: Mapping[str, Leaf] | None,
    loaded: LoadedRecipe,
    sources: dict[str, Source],
) -> Target | None:
    """The target's structure. What has values is added to `sources`, so that they can be read."""
    policy = loaded.recipe.target or TargetPolicy()
    if listing is not None:
        return listed_target(listing, policy)
    if request.target is None:
        return None
    given, pinned = request.target, None if request.pinned is None else request.pinned.inputs[-1]
    format, step, item = (None, None, None) if pinned is None else (pinned.format, pinned.step, pinned.item)
    sources[TARGET] = source = opened(given, format, step, item, called="(target)")
    target = Target(target_leaves(source), policy, without_values(source))
    is_stored = isinstance(given, str)
    return as_bfloat16(target) if is_stored and reads_uint16_as_bfloat16(loaded.recipe) else target


def described(sources: Mapping[str, Source]) -> list[Input]:
    """The sources as they are now, for the plan. Samples no file."""
    return [
        Input(name, s.path, s.format, len(s.leaves()), s.fingerprint(), s.step, s.item)
        for name, s in sources.items()
    ]


def sampled(prepared: Prepared) -> Prepared:
    """The same with samples of the sources' files, by which `check_unchanged` sees other contents.

    Taken once it is clear that data will be read, or the plan saved: a plan that is only shown costs none.
    """
    plan = prepared.plan
    inputs = with_states(plan.inputs, prepared.sources)
    return replace(prepared, plan=replace(plan, inputs=inputs))


def with_states(inputs: Sequence[Input], sources: Mapping[str, Source]) -> tuple[Input, ...]:
    """Inputs of a plan with the states of their files, where they have none. Raises SourceError."""
    return tuple(i if i.files else replace(i, files=states(sources[i.name].files())) for i in inputs)


def check_values(plan: Plan, sources: Mapping[str, Source]) -> None:
    """Raise SourceError where leaves of a tree are read that have no value: before anything is read."""
    for name, source in sources.items():
        lacking = without_values(source)
        read = (one for step in plan.steps if lacking for one in reads(step.value) if one.source == name)
        found = [one.leaf.key.text for one in read if one.leaf.key.text in lacking]
        if found:
            raise SourceError(
                f"{source.path} has no values for {few_keys(found)}: only shapes and dtypes, or arrays that "
                "were donated to a function",
                hint="Give a tree of arrays that exist, or a checkpoint.",
            )


def check_unchanged(plan: Plan, sources: Mapping[str, Source], hint: str) -> None:
    """Raise SourceError where a source is not what it was when the plan was made. `hint`: what to do.

    Times, sizes and samples must be the same. Nothing of that tells whether a file was rewritten between its
    samples with its old time.
    """
    for before in plan.inputs:
        source = sources[before.name]
        found = changes(before.files, states(source.files()), times=True) if before.files else ()
        if found or source.fingerprint() != before.fingerprint:
            what = f": {changes_text(found)}" if found else ""
            raise SourceError(f"{shown(before.path)} changed while it was read{what}", hint=hint)


# --- warnings ---------------------------------------------------------------------------------------------


# --- items that are not carried over ------------------------------------------------------------------------


JSON_FILES = frozenset({"metadata", "metrics"})
"""Names of the files in which Orbax stores the items of its JSON handlers."""


def dropped_items(sources: Mapping[str, Source], options: DestinationOptions) -> tuple[DroppedItem, ...]:
    """All items of the steps that are read, but those that are sources themselves. Reads names and sizes."""
    read = {_item_directory(source) for source in sources.values() if source.item is not None}
    if options.step is None and options.item is None:
        why = "DST has no items"
    else:
        why = f"only the item {options.item or DEFAULT_ITEM} is written"
    seen: set[str] = set()
    found = []
    for name, source in sources.items():
        for directory in _other_items(source) if name != TARGET else ():
            if directory not in read and directory not in seen:
                seen.add(directory)
                nbytes = sum(stat.size for stat in walk(directory, directory).values())
                found.append(
                    DroppedItem(name, os.path.basename(directory), _kind_of_item(directory), nbytes, why)
                )
    return tuple(found)


def _item_directory(source: Source) -> str:
    """Real path, or URL, of the item that a source reads."""
    return real_path(os.path.dirname(record_path(source)))


def _other_items(source: Source) -> Iterator[str]:
    """The directories of all items of the step that a source is an item of."""
    if source.item is None or not isinstance(source, ChosenSource):
        return
    step = os.path.dirname(_item_directory(source))
    yield from (os.path.join(step, name) for name in source.choices().items if name != OWN.rstrip("/"))


def _kind_of_item(directory: str) -> str:
    """What an item holds: `arrays`, `json` or `other`."""
    if is_item(directory):
        return "arrays"
    names = directory_names(directory)
    is_json = not names.directories and bool(JSON_FILES.intersection(names.files))
    return "json" if is_json else "other"
