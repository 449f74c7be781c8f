"""From a request to a plan: read the recipe, open the sources, list their leaves, and plan.

Reads metadata only, and creates nothing.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ckpt_surgery.core import arguments, urls
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.history import (
    NO_RECIPE,
    RECORD,
    PastRecipe,
    extended_history,
    history_entry,
    own_metadata,
)
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.memory import memory_errors, without_collection
from ckpt_surgery.core.optimizer_states import as_containers, as_state_dict
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.protocols import Source, details_of
from ckpt_surgery.core.text import number_of, shown
from ckpt_surgery.formats import destination_names, opening
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats.orbax.decoder_layers import with_scan_layers
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.zarr.shards import wholly_stored
from ckpt_surgery.inputs.model_configs import config_warnings
from ckpt_surgery.inputs.opening import (
    ConfigFiles,
    asked_of,
    configs_of,
    describe_inputs,
    in_memory,
    on_disk,
    open_input,
    open_sources,
    target_leaves,
    with_recipe,
    with_states,
    without_values,
)
from ckpt_surgery.inputs.options import SourceOptions
from ckpt_surgery.inputs.pinned import as_pinned, check_same_sources, load_hooks, options_of, reopen_sources
from ckpt_surgery.inputs.request import InMemory, Request, with_hooks
from ckpt_surgery.inputs.warnings import (
    chosen_item_notes,
    destination_warnings,
    dropped_items,
    plan_warnings,
)
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.language.loading import LoadedRecipe, parse_recipe
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.language.schema.fields import (
    InputPolicy,
    OutputPolicy,
    TargetPolicy,
    reads_uint16_as_bfloat16,
)
from ckpt_surgery.planner.decisions import OnPass
from ckpt_surgery.planner.listings import is_listing, read_listing
from ckpt_surgery.planner.options import DEFAULT_FORMAT, DestinationOptions, Prepared
from ckpt_surgery.planner.outputs import without_shardings
from ckpt_surgery.planner.plan import Input, Plan
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.planner.target import TARGET, Target, as_bfloat16, listed_target
from ckpt_surgery.planner.transfers import Destination
from ckpt_surgery.planner.unused import check_keys, check_sources_used, target_share
from ckpt_surgery.storage.linking import SafeToHardlink, linking_rule
from ckpt_surgery.storage.listing import data_file, is_file, real_path
from ckpt_surgery.system.resources import default_memory, default_workers

NO_HISTORY = f"the entry `{RECORD}` of the custom metadata is not the record of a conversion; it is replaced"


@memory_errors("make the plan")
@without_collection()
def prepare(request: Request, on_pass: OnPass | None = None) -> Prepared:
    """Plan a request, and return the plan with its open sources. `on_pass`: see `decide`.

    Raises RecipeError, PlanError, SourceError or UsageError, with every problem that was found.
    """
    request = with_recipe(request)
    options = resolve_destination(request, None if request.recipe is None else request.recipe.recipe.output)
    inputs = open_inputs(request)
    inputs = replace(inputs, listings=_respelled_listings(options.format, inputs))
    sources = inputs.sources
    if options.step is not None and options.item is None:
        options = replace(options, item=inputs.first.item)
    recipe = None if request.recipe is None else inputs.loaded
    metadata, history, notes = _metadata_and_history(inputs.configs, recipe, options.format)
    metadata, destination = _describe_with_history(options, metadata, history, list(sources.values()))
    if history and RECORD not in metadata:
        notes = (*notes, f"{options.format} has no room for recipe, params and config: they are not recorded")
    if (pinned := request.pinned) is not None:
        destination = replace(destination, may_link=pinned.may_link)
    plan = plan_inputs(inputs, destination, metadata, on_pass)
    warnings = (
        *request.notes,
        *plan.warnings,
        *notes,
        *(chosen_item_notes(sources.values()) if request.item is None else ()),
        *destination_warnings(options, inputs.first),
    )
    if options.format == DEFAULT_FORMAT:
        keys = [step.leaf.key.text for step in plan.steps]
        metadata = with_scan_layers(metadata, keys, options.step is not None)
    encoder = destination.encoder
    if request.made_from is None and encoder.details.holds_config:  # a merge changes the entries itself
        warnings = (*warnings, *config_warnings(replace(plan, metadata=metadata)))
    items = dropped_items(sources, options)
    plan = replace(
        plan, warnings=warnings, metadata=metadata, dropped_items=items, destination=options.chosen
    )
    about = inputs.memory, inputs.workers, inputs.hooks, dict(inputs.configs.read), inputs.listing
    prepared = Prepared(plan, sources, options, encoder, *about)
    return prepared if pinned is None else as_pinned(prepared, pinned)


@dataclass(frozen=True)
class Inputs:
    """Inputs of planning: the recipe, and the open sources with their leaves."""

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
    memory: int
    """Budget in bytes of the run."""
    planned_memory: int
    """Budget in bytes that the outputs are cut for."""
    workers: int

    @property
    def hooks(self) -> HookFile | None:
        """The file of hooks that the recipe may call; None if it has none."""
        return self.loaded.hooks if isinstance(self.loaded.hooks, HookFile) else None

    @property
    def first(self) -> Source:
        """The source that the recipe transforms."""
        return self.sources[next(iter(self.listings))]


def plan_inputs(
    inputs: Inputs,
    destination: Destination,
    metadata: Mapping[str, Any],
    on_pass: OnPass | None = None,
) -> Plan:
    """Plan for open inputs, with the warnings that hold for any destination. `on_pass`: see `decide`.

    Raises PlanError, SourceError or UsageError.
    """
    loaded, listings, target, described = inputs.loaded, inputs.listings, inputs.target, inputs.described
    memory, workers = inputs.planned_memory, inputs.workers
    if loaded.function is not None:
        check_keys(loaded.function, target)
    plan = make_plan(loaded, listings, target, described, metadata, destination, memory, workers, on_pass)
    check_sources_used(plan, loaded, listings, target)
    warnings = (
        *(() if loaded.function is None else loaded.function.warnings),
        *target_share(plan, loaded, target),
        *plan.warnings,
        *plan_warnings(plan, inputs.sources),
    )
    return replace(plan, warnings=warnings)


def open_inputs(request: Request) -> Inputs:
    """Open the sources and the target of a request whose recipe was read.

    Raises RecipeError, SourceError, PlanError or UsageError, and SourcesChanged if the sources have changed
    since the plan was saved.
    """
    pinned = request.pinned
    loaded: LoadedRecipe = request.recipe or parse_recipe("version: 1\n", NO_RECIPE, request.set)
    if request.unshard:
        loaded = replace(loaded, recipe=without_shardings(loaded.recipe))
    if pinned is not None and pinned.hooks is not None:
        loaded = replace(loaded, hooks=load_hooks(pinned.name, pinned.hooks, request.allow_hooks))
    elif pinned is None and request.allow_hooks:
        loaded = with_hooks(loaded)
    if request.uint16 is not None:
        policy = InputPolicy.model_construct(uint16=request.uint16)
        loaded = replace(loaded, recipe=loaded.recipe.model_copy(update={"input": policy}))
    _check_target_is_named(request, loaded)
    if pinned is None:
        given = request.opened or open_sources(request)
    else:
        given = reopen_sources(request, pinned)
    sources = dict(zip(loaded.recipe.source_names(len(given)), given, strict=True))
    configs = ConfigFiles(dict(sources), request.config, None if pinned is None else pinned.configs)
    loaded = replace(loaded, configs=configs_of(configs))
    listings = {name: source.leaves() for name, source in sources.items()}
    listing = None if pinned is None else pinned.listing
    if pinned is None and isinstance(request.target, str) and is_listing(request.target):
        listing = read_listing(request.target)
    target = _open_target(request, listing, loaded, sources)
    inputs = describe_inputs(sources)
    if pinned is not None:
        if any(before.files or not before.fingerprint for before in pinned.inputs):
            inputs = list(with_states(inputs, sources))
        check_same_sources(pinned, inputs)
    memory, workers = request.memory or default_memory(), request.workers or default_workers()
    cut_for = memory if pinned is None else pinned.request.memory or memory
    return Inputs(loaded, sources, listings, inputs, configs, listing, target, memory, cut_for, workers)


def _check_target_is_named(request: Request, loaded: LoadedRecipe) -> None:
    """Raise UsageError if a tree that can only be the target is given as an extra source."""
    recipe, trees = loaded.recipe, [isinstance(source, InMemory) for source in request.sources]
    if request.target is None and trees and trees[-1] and not recipe.takes_more:
        wanted = len(recipe.named_sources)
        if len(trees) > wanted:
            raise UsageError(
                f"the recipe takes {number_of(wanted, 'source')}, and the last of the {len(trees)} that were "
                "given is a tree",
                hint="If it is the target, say so: `target=…`.",
                code=Code.UNKNOWN_SOURCE,
            )


def _respelled_listings(format: str, inputs: Inputs) -> Mapping[str, Mapping[str, Leaf]]:
    """Spell the states of optimizers in the listings as readers of the destination's format expect."""
    spelled: dict[str, Mapping[str, Leaf]] = {}
    if not formats.format_named(format).holds_empty:
        return inputs.listings
    for name, leaves in inputs.listings.items():
        source = inputs.sources[name]
        if not in_memory(source) and formats.format_named(source.format).holds_empty:
            lists = formats.format_named(source.format).holds_lists, formats.format_named(format).holds_lists
            leaves = {(True, False): as_state_dict, (False, True): as_containers}.get(lists, dict)(leaves)
        spelled[name] = leaves
    return spelled


def _open_target(
    request: Request,
    listing: Mapping[str, Leaf] | None,
    loaded: LoadedRecipe,
    sources: dict[str, Source],
) -> Target | None:
    """Open the target. One that has values is added to `sources`, so that they can be read."""
    policy = loaded.recipe.target or TargetPolicy()
    if listing is not None:
        return listed_target(listing, policy)
    if request.target is None:
        return None
    given, pinned = request.target, None if request.pinned is None else request.pinned.inputs[-1]
    which = SourceOptions() if pinned is None else options_of(pinned)
    sources[TARGET] = source = open_input(given, **which, is_target=True)
    target = Target(target_leaves(source), policy, without_values(source), asked=asked_of(source))
    is_stored = isinstance(given, str) or given.uint16 == "bfloat16"
    return as_bfloat16(target) if is_stored and reads_uint16_as_bfloat16(loaded.recipe) else target


# --- destination -----------------------------------------------------------------------------------------


def resolve_destination(request: Request, output: OutputPolicy | None) -> DestinationOptions:
    """Decide format and options of the destination; `output` is the recipe's part about it, if it has one.

    The format is the request's, or else the recipe's, or else the one that the destination is named for, or
    else Orbax. Raises UsageError where the destination is named for a format that cannot be written.
    """
    if request.dst is not None and request.format is None:
        destination_names.check_name(request.dst)
    policy = output or OutputPolicy()
    options = DestinationOptions(
        path=request.dst,
        format=request.format or policy.format or "",
        step=request.dst_step,
        item=request.dst_item,
        zarr=policy.zarr,
        structure_file=policy.structure_file,
        shard_size=request.shard_size,
        link_mode=request.link_mode or arguments.LinkMode.AUTO,
    )
    said = destination_names.format_for(options.name)
    return replace(options, format=options.format or said or DEFAULT_FORMAT)


def _metadata_and_history(
    configs: ConfigFiles, loaded: LoadedRecipe | None, format: str
) -> tuple[Mapping[str, Any], Mapping[str, Any], tuple[str, ...]]:
    """Make the destination's custom metadata, which is the first source's, and its history; with warnings.

    `loaded` is None where there is no recipe and every leaf is kept; `format` is the destination's.
    """
    name, source = next(iter(configs.sources.items()))
    if not formats.format_named(format).holds_metadata:
        return source.metadata, {}, ()
    before, users = history_entry(source.metadata), own_metadata(source.metadata)
    config, warnings = configs.recorded(name)
    recipe = None
    if loaded is not None:
        # Some readers refuse names in JSON that are not Unicode, as those of files may be.
        called = loaded.path if loaded.path.startswith(PREFIX) else os.path.basename(loaded.path)
        recipe = PastRecipe(shown(called), loaded.sha256, loaded.params)
    history = extended_history(before, recipe, config)
    if RECORD in source.metadata and not before:
        warnings = (NO_HISTORY, *warnings)
    return users, history, warnings


def _describe_with_history(
    options: DestinationOptions, own: Mapping[str, Any], history: Mapping[str, Any], sources: Sequence[Source]
) -> tuple[Mapping[str, Any], Destination]:
    """Describe a destination with the history in its metadata, or without if the format refuses that."""
    if history:
        whole = {**own, RECORD: history}
        with contextlib.suppress(UsageError):  # if the history is not the reason, the same is raised below
            return whole, describe_destination(options, whole, sources)
    return own, describe_destination(options, own, sources)


def describe_destination(
    options: DestinationOptions, metadata: Mapping[str, Any], sources: Sequence[Source]
) -> Destination:
    """Describe a destination to planning: its encoder, and what can be linked into it. Opens no sink.

    Without a path, it is assumed to be on the file system of the first of `sources`. Raises UsageError where
    the format cannot follow the options, or cannot be written at the path.
    """
    chosen, given = formats.format_named(options.format), sink_options(options, metadata, sources)
    encoder = opening.encoder(options.format, given)
    if options.path is not None:
        place = options.path if urls.is_url(options.path) else Path(options.path)
        opening.check_destination(options.format, place, given)
    spooled = not chosen.stores and options.path is not None and urls.is_url(options.path)
    links = options.link_mode is not arguments.LinkMode.COPY and encoder.details.links and not spooled
    beside = [source.path for source in on_disk(sources)]
    linkable = linking_rule(options.path, options.link_mode, beside, given.replaced) if links else None
    return Destination(
        encoder=encoder,
        wholly_stored=wholly_stored,
        data_file=data_file,
        format=options.format,
        holds_empty=chosen.holds_empty,
        linkable=linkable,
        served=options.path is not None and urls.is_url(options.path),
        flat=chosen.flat,
    )


def sink_options(
    options: DestinationOptions, metadata: Mapping[str, Any], sources: Sequence[Source]
) -> SinkOptions:
    return SinkOptions(
        metadata=metadata,
        step=options.step,
        item=options.item,
        link_mode=options.link_mode,
        replaced=_replaced_files(sources),
        zarr=options.zarr,
        structure_file=options.structure_file,
        shard_size=options.shard_size,
        file_name=options.name if formats.format_named(options.format).is_file(options.name) else None,
        model_files=partial(_model_files, sources),
    )


def _model_files(sources: Sequence[Source]) -> Mapping[str, bytes]:
    """The files of the first model that the sources hold. Raises SourceError or UsageError."""
    models = (details_of(source).model_files() for source in sources)
    return next((files for files in models if files), {})


def _replaced_files(sources: Sequence[Source]) -> SafeToHardlink:
    """Files of the sources that their writers replace and never rewrite."""
    replaced = {}
    for source in on_disk(sources):
        replaces, path = formats.format_named(source.format).replaces_files, real_path(source.path)
        # The arrays of a T5X checkpoint that is given as its file lie beside it.
        replaced[os.path.dirname(path) if replaces and is_file(path) else path] = replaces
    return SafeToHardlink(replaced)
