"""From a request to a plan: open the sources and plan. Reads metadata only, and creates nothing."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ckpt_surgery.core import arguments, history, urls
from ckpt_surgery.core.errors import Code, PlanError, Problem, UsageError
from ckpt_surgery.core.folding import Notice, merged
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.memory import memory_errors, without_collection
from ckpt_surgery.core.optimizer_states import as_containers, as_state_dict
from ckpt_surgery.core.protocols import Source, details_of
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats.opening import check_destination
from ckpt_surgery.formats.opening import encoder as encoder_of
from ckpt_surgery.formats.orbax.decoder_layers import with_scan_layers
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.zarr.shards import wholly_stored
from ckpt_surgery.inputs import opening
from ckpt_surgery.inputs.model_configs import config_warnings
from ckpt_surgery.inputs.options import SourceOptions
from ckpt_surgery.inputs.pinned import as_pinned, check_same_sources, load_hooks, options_of, reopen_sources
from ckpt_surgery.inputs.request import InMemory, Request, with_hooks
from ckpt_surgery.inputs.warnings import chosen_item_notes, destination_warnings, dropped_items, plan_warnings
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.language.loading import LoadedRecipe, parse_recipe
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.language.schema import fields
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.wanted import Wanted
from ckpt_surgery.planner.decisions import OnPass
from ckpt_surgery.planner.entries import not_held
from ckpt_surgery.planner.listings import is_listing, read_listing
from ckpt_surgery.planner.mistakes import check_keys, check_sources_used, target_share
from ckpt_surgery.planner.outputs import Destination, without_shardings
from ckpt_surgery.planner.plan import Input, Plan
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.planner.prepared import DEFAULT_FORMAT, DestinationOptions, Prepared
from ckpt_surgery.planner.target import TARGET, Target, as_bfloat16, listed_target
from ckpt_surgery.storage.linking import SafeToHardlink, linking_rule
from ckpt_surgery.storage.listing import data_file, is_file, real_path
from ckpt_surgery.system.resources import default_memory, default_workers

Metadata = Mapping[str, Any]
"""Custom metadata of a checkpoint."""
NO_HISTORY = f"`{history.RECORD}` in the custom metadata is no record of a conversion; it is replaced"


@memory_errors("make the plan")
@without_collection()
def prepare(request: Request, on_pass: OnPass | None = None) -> Prepared:
    """Plan a request, and return the plan with its open sources. `on_pass`: see `decide`.

    Raises RecipeError, PlanError, SourceError or UsageError, with every problem that was found.
    """
    request = opening.with_recipe(request)
    options = resolve_destination(request, None if request.recipe is None else request.recipe.recipe.output)
    inputs = open_inputs(request)
    inputs = replace(inputs, listings=_respelled_listings(options.format, inputs))
    sources = inputs.sources
    if options.step is not None and options.item is None:
        options = replace(options, item=inputs.first.item)
    recipe, given = None if request.recipe is None else inputs.loaded, list(sources.values())
    own, metadata, notes = _metadata_and_history(inputs.configs, recipe, options.format)
    try:
        destination = describe_destination(options, metadata, given)
    except UsageError:  # unless the history is the reason, the same is raised again
        metadata, destination = own, describe_destination(options, own, given)
        notes = (*notes, f"{options.format} has no room for recipe, params and config: they are not recorded")
    if (pinned := request.pinned) is not None:
        destination = replace(destination, may_link=pinned.may_link)
    plan = plan_inputs(inputs, destination, metadata, on_pass)
    warnings = (
        *request.notes,
        *plan.warnings,
        *notes,
        *(chosen_item_notes(given) if request.item is None else ()),
        *destination_warnings(options, inputs.first),
    )
    if options.format == DEFAULT_FORMAT:
        keys = [step.leaf.key.text for step in plan.steps]
        metadata = with_scan_layers(metadata, keys, options.step is not None)
    encoder, items = destination.encoder, dropped_items(sources, options)
    chosen = None if options.path is None else options
    plan = replace(plan, metadata=metadata, dropped_items=items, destination=chosen)
    if request.made_from is None and encoder.details.holds_config:  # a merge changes the entries itself
        warnings = (*warnings, *config_warnings(plan))
    about = inputs.memory, inputs.workers, inputs.hooks, dict(inputs.configs.read), inputs.listing
    prepared = Prepared(replace(plan, warnings=warnings), sources, options, encoder, *about)
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
    configs: opening.ConfigFiles
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
    inputs: Inputs, destination: Destination, metadata: Metadata, on_pass: OnPass | None = None
) -> Plan:
    """Plan for open inputs; `on_pass`: see `decide`. Raises PlanError, SourceError or UsageError."""
    loaded, listings, target, function = inputs.loaded, inputs.listings, inputs.target, inputs.loaded.function
    if function is not None:
        check_keys(function, target)
    limits = inputs.planned_memory, inputs.workers
    plan = make_plan(loaded, listings, target, inputs.described, metadata, destination, *limits, on_pass)
    check_sources_used(plan, loaded, listings, target)
    made = () if function is None else function.warnings
    warnings = (*made, *target_share(plan, loaded, target), *plan.warnings)
    return replace(plan, warnings=(*warnings, *plan_warnings(plan, inputs.sources)))


def open_inputs(request: Request) -> Inputs:
    """Open the sources and the target of a request whose recipe was read.

    Raises RecipeError, SourceError, PlanError or UsageError, and SourcesChanged if a saved plan's changed.
    """
    pinned = request.pinned
    loaded: LoadedRecipe = request.recipe or parse_recipe("version: 1\n", history.NO_RECIPE, request.set)
    if request.unshard:
        loaded = replace(loaded, recipe=without_shardings(loaded.recipe))
    if pinned is not None and pinned.hooks is not None:
        loaded = replace(loaded, hooks=load_hooks(pinned.name, pinned.hooks, request.allow_hooks))
    elif pinned is None and request.allow_hooks:
        loaded = with_hooks(loaded)
    if request.uint16 is not None:
        policy = fields.InputPolicy.model_construct(uint16=request.uint16)
        loaded = replace(loaded, recipe=loaded.recipe.model_copy(update={"input": policy}))
    if pinned is None:
        given = request.opened or opening.open_sources(request)
    else:
        given = reopen_sources(request, pinned)
    try:
        names = loaded.recipe.source_names(len(given))
    except UsageError as error:
        too_many = len(given) > len(loaded.recipe.named_sources)
        if not too_many or request.target is not None or not isinstance(request.sources[-1], InMemory):
            raise
        hint = "If the last tree is the target, say so: `target=…`."
        raise UsageError(replace(error.problems[0], hint=hint)) from None
    sources = dict(zip(names, given, strict=True))
    configs = opening.ConfigFiles(dict(sources), request.config, None if pinned is None else pinned.configs)
    loaded = replace(loaded, configs=opening.configs_of(configs))
    listings = {name: source.leaves() for name, source in sources.items()}
    listing = None if pinned is None else pinned.listing
    if pinned is None and isinstance(request.target, str) and is_listing(request.target):
        listing = read_listing(request.target)
    target = _open_target(request, listing, loaded, sources)
    inputs = opening.describe_inputs(sources)
    if pinned is not None:
        if any(before.files or not before.fingerprint for before in pinned.inputs):
            inputs = list(opening.with_states(inputs, sources))
        check_same_sources(pinned, inputs)
    memory, workers = request.memory or default_memory(), request.workers or default_workers()
    cut_for = memory if pinned is None else pinned.request.memory or memory
    return Inputs(loaded, sources, listings, inputs, configs, listing, target, memory, cut_for, workers)


def _respelled_listings(format: str, inputs: Inputs) -> Mapping[str, Mapping[str, Leaf]]:
    """Spell the states of optimizers in the listings as readers of the destination's format expect."""
    spelled, to = dict(inputs.listings), formats.format_named(format)
    for name, leaves in inputs.listings.items():
        source = inputs.sources[name]
        of = to if opening.in_memory(source) else formats.format_named(source.format)
        if of.holds_empty and to.holds_empty and of.holds_lists != to.holds_lists:
            spelled[name] = (as_state_dict if of.holds_lists else as_containers)(leaves)
    return spelled


def _open_target(
    request: Request, listing: Mapping[str, Leaf] | None, loaded: LoadedRecipe, sources: dict[str, Source]
) -> Target | None:
    """Open the target. One that has values is added to `sources`, so that they can be read."""
    policy = loaded.recipe.target or fields.TargetPolicy()
    if listing is not None:
        return listed_target(listing, policy)
    if request.target is None:
        return None
    given, pinned = request.target, None if request.pinned is None else request.pinned.inputs[-1]
    which = SourceOptions() if pinned is None else options_of(pinned)
    sources[TARGET] = source = opening.open_input(given, **which, is_target=True)
    target = _target_of(source, policy)
    is_stored = isinstance(given, str) or given.uint16 == "bfloat16"
    return as_bfloat16(target) if is_stored and fields.reads_uint16_as_bfloat16(loaded.recipe) else target


def _target_of(source: Source, policy: fields.TargetPolicy) -> Target:
    """Make a target of a checkpoint or a tree. Raises PlanError for objects that no array can replace."""
    leaves = source.leaves()
    if not isinstance(source, TreeSource):
        return Target(leaves, policy)
    wanted = {text: value for text, value in source.tree.values.items() if isinstance(value, Wanted)}
    objects = [
        Notice("", text, f" of the target is {not_held(leaf)}", about=leaf.type)
        for text, leaf in leaves.items()
        if leaf.kind is LeafKind.OBJECT and text not in wanted
    ]
    if objects:
        hint = "Put an array there, of JAX or NumPy, or a `jax.ShapeDtypeStruct`; `...` asks for nothing."
        problems = (Problem(notice.sentence, hint=hint) for notice in merged(objects))
        raise PlanError(*problems, code=Code.TARGET_MISFIT)
    asked = {text: value.asked for text, value in wanted.items() if value.asked is not None}
    return Target(leaves, policy, opening.without_values(source), asked=asked)


def resolve_destination(request: Request, output: fields.OutputPolicy | None) -> DestinationOptions:
    """Decide format and options of the destination; `output` is the recipe's part about it, if it has one.

    The format is the request's, else the recipe's, else that of the destination's name, else Orbax. Raises
    UsageError for a name of a format that cannot be written.
    """
    if request.dst is not None and request.format is None:
        formats.check_name(request.dst)
    policy = output or fields.OutputPolicy()
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
    said = formats.format_for(options.name)
    return replace(options, format=options.format or said or DEFAULT_FORMAT)


def _metadata_and_history(
    configs: opening.ConfigFiles, loaded: LoadedRecipe | None, format: str
) -> tuple[Metadata, Metadata, tuple[str, ...]]:
    """Make the destination's custom metadata, the first source's, without and with history; and warnings.

    `loaded` is None where there is no recipe and every leaf is kept; `format` is the destination's.
    """
    name, source = next(iter(configs.sources.items()))
    if not formats.format_named(format).holds_metadata:
        return source.metadata, source.metadata, ()
    before, users = history.history_entry(source.metadata), history.own_metadata(source.metadata)
    config, warnings = configs.recorded(name)
    recipe = None
    if loaded is not None:
        # Some readers refuse names in JSON that are not Unicode, as those of files may be.
        called = loaded.path if loaded.path.startswith(PREFIX) else os.path.basename(loaded.path)
        recipe = history.PastRecipe(shown(called), loaded.sha256, loaded.params)
    past = history.extended_history(before, recipe, config)
    if history.RECORD in source.metadata and not before:
        warnings = (NO_HISTORY, *warnings)
    return users, {**users, history.RECORD: past} if past else users, warnings


def describe_destination(
    options: DestinationOptions, metadata: Metadata, sources: Sequence[Source]
) -> Destination:
    """Describe a destination to planning: its encoder, and what can be linked into it. Opens no sink.

    Without a path, it is assumed to be on the file system of the first of `sources`. Raises UsageError where
    the format cannot follow the options, or cannot be written at the path.
    """
    chosen, given = formats.format_named(options.format), sink_options(options, metadata, sources)
    encoder, path = encoder_of(options.format, given), options.path
    served = path is not None and urls.is_url(path)
    if path is not None:
        check_destination(options.format, path if served else Path(path), given)
    links = options.link_mode is not arguments.LinkMode.COPY and encoder.details.links
    beside = [source.path for source in opening.on_disk(sources)]
    can_link = links and (chosen.stores or not served)  # what is uploaded is written to this disk first
    return Destination(
        encoder=encoder,
        wholly_stored=wholly_stored,
        data_file=data_file,
        format=options.format,
        holds_empty=chosen.holds_empty,
        linkable=linking_rule(path, options.link_mode, beside, given.replaced) if can_link else None,
        served=served,
        flat=chosen.flat,
    )


def sink_options(options: DestinationOptions, metadata: Metadata, sources: Sequence[Source]) -> SinkOptions:
    """Options for the sink of a destination. They hold the files of the first model among the sources."""
    replaced = {}
    for source in opening.on_disk(sources):
        replaces, path = formats.format_named(source.format).replaces_files, real_path(source.path)
        # The arrays of a T5X checkpoint that is given as its file lie beside it.
        replaced[os.path.dirname(path) if replaces and is_file(path) else path] = replaces
    return SinkOptions(
        metadata=metadata,
        step=options.step,
        item=options.item,
        link_mode=options.link_mode,
        replaced=SafeToHardlink(replaced),
        zarr=options.zarr,
        structure_file=options.structure_file,
        shard_size=options.shard_size,
        file_name=options.name if formats.format_named(options.format).is_file(options.name) else None,
        model_files=lambda: next(filter(None, (details_of(s).model_files() for s in sources)), {}),
    )
