"""Choose the packaged recipe that converts a checkpoint to a layout, for `convert --to`."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Unpack

from ckpt_surgery.core.arguments import Assignments, PathLike, assignments_of
from ckpt_surgery.core.errors import Code, UsageError
from ckpt_surgery.core.history import RECIPES, history_entry
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.formats.orbax import decoder_layers
from ckpt_surgery.inputs import models
from ckpt_surgery.inputs.models import HF, Model, ModelLayout
from ckpt_surgery.inputs.opening import ConfigFiles, configs_of, open_input
from ckpt_surgery.inputs.options import SourceOptions
from ckpt_surgery.inputs.request import path_of_source
from ckpt_surgery.language.expressions.lookups import Config

SCAN = "scan"
"""Param of decoder recipes: true if layers are stacked."""
BY_NAME = "`ckpt-surgery recipes` lists the recipes, for `apply @NAME SRC DST`."


@dataclass(frozen=True)
class ChosenConversion:
    """A chosen recipe, with its params."""

    model: Model
    layout: ModelLayout
    """The layout other than Hugging Face's: the result's, or the source's if the result is Hugging Face's."""
    recipe: str
    """Its name, with the `@`."""
    set: tuple[str, ...]
    """Values of its params, `NAME=VALUE`: those of the layout, then the caller's."""
    recorded: bool = False
    """True if the history of an earlier conversion gives the other params."""

    @property
    def purpose(self) -> str:
        """The conversion in words: `Llama to maxtext`."""
        there = self.recipe == self.layout.there.recipe
        direction = f"to {self.layout.name}" if there else f"from {self.layout.name} to {HF}"
        return f"{self.model.title} {direction}"


def choose_conversion(
    src: PathLike,
    to: str,
    set: Assignments = (),
    *,
    config: PathLike | None = None,
    **which: Unpack[SourceOptions],
) -> ChosenConversion:
    """Choose the packaged recipe that converts the checkpoint `src` to the layout `to`, and its params.

    From Hugging Face's layout, `model_type` in the config decides. To `hf`, the history of an earlier
    conversion does, or else the config and the keys. `set` gives values to other params; the rest is as for
    `plan`. Raises UsageError for an unknown layout or model, a model without this layout, and a checkpoint
    that does not say what it is; SourceError where it cannot be read.
    """
    known = models.layouts()
    if to not in known:
        problem = f"`to`: not a layout: `{shown(to)}`{did_you_mean(to, known)}"
        raise UsageError(problem, hint=f"There are {', '.join(known)}.", code=Code.WRONG_VALUE)
    given, source = assignments_of(set), open_input(path_of_source(src), **which)
    if to == HF:
        return _choose_to_hf(source, given, config)
    model = _model_of(source, config)
    layout = model.layout(to)
    if layout is None:
        hint = f"It has {', '.join([layout.name for layout in model.layouts])}."
        raise UsageError(f"no recipe converts {model.title} to the layout {to}", hint=hint)
    if not _has_key(source, model.key):
        what = f"does not have the names of Hugging Face: no key matches `{model.key}`"
        hint = f"Layouts are converted from there and to there: convert it to the layout {HF} first."
        raise UsageError(f"{shown(source.path)} {what}", hint=hint)
    return ChosenConversion(model, layout, layout.there.recipe, _joined_params(layout.there.params, given))


def _choose_to_hf(source: Source, given: tuple[str, ...], config: PathLike | None) -> ChosenConversion:
    model_type, _ = _config_of(source, config).value_at("model_type") or (None, "")
    for name, entry in reversed(history_entry(source.metadata).get(RECIPES, {}).items()):
        params = entry.get("params", {}) if isinstance(entry, Mapping) else {}
        fits = [
            (model, layout)
            for model in models.known_models()
            for layout in model.layouts
            if layout.there.recipe == name
            and all(params.get(param, value) == value for param, value in layout.there.params.items())
        ]
        of_kind = [(model, layout) for model, layout in fits if model_type in model.model_types]
        for model, layout in of_kind or fits:
            return ChosenConversion(model, layout, layout.back.recipe, given, recorded=True)
    model = _model_of(source, config)
    layout = _layout_of(source, model, dict(text.split("=", 1) for text in given if "=" in text))
    named = {text.partition("=")[0] for text in given}
    params = {**layout.back.params, **_params_of_tree(source, layout, named)}
    return ChosenConversion(model, layout, layout.back.recipe, _joined_params(params, given))


def _layout_of(source: Source, model: Model, given: Mapping[str, str]) -> ModelLayout:
    """Layout that `given` names, or else that of the checkpoint's keys. Raises UsageError."""
    named = model.layout(given.get("layout", ""))
    if named is not None:
        return named
    for layout in model.layouts:
        if _has_key(source, layout.key):
            return _maxtext_or_jax(source, model, layout)
    if _has_key(source, model.key):
        problem = f"{shown(source.path)} has the names of Hugging Face already: a key matches `{model.key}`"
        others = ", ".join(layout.name for layout in model.layouts)
        raise UsageError(problem, hint=f"Other layouts of {model.title} are {others}.")
    listed = ", ".join(f"{layout.name} (`{layout.key}`)" for layout in model.layouts)
    problem = f"{shown(source.path)} is in none of the layouts of {model.title} that are converted to {HF}"
    raise UsageError(problem, hint=f"There are {listed}. {BY_NAME}")


def _maxtext_or_jax(source: Source, model: Model, layout: ModelLayout) -> ModelLayout:
    """Decide between the layouts `jax` and `maxtext` for a tree with one `params/`. Raises UsageError."""
    maxtext, leaves = model.layout("maxtext"), source.leaves()
    if layout.name != "jax" or maxtext is None:
        return layout
    says = isinstance(source.metadata.get(decoder_layers.SCAN_LAYERS), bool)
    if says or decoder_layers.is_numbered(leaves):
        return maxtext
    if decoder_layers.layer_axes(leaves) not in ((), (1,)) or maxtext.computed == layout.computed:
        return layout
    why = "its weights are below one `params/`, and its layers not stacked along axis 0"
    problem = f"{shown(source.path)} can be in the layout maxtext or jax: {why}"
    hint = 'If MaxText trained it, `set={"layout": "maxtext"}`, otherwise `set={"layout": "jax"}`: for '
    hint += f"{model.title} they differ in values ({maxtext.computed})."
    raise UsageError(problem, hint=hint, code=Code.WRONG_VALUE)


def _params_of_tree(source: Source, layout: ModelLayout, named: Collection[str]) -> dict[str, str]:
    """Derive from a tree's layers the params that are neither `named` nor defaults. Raises UsageError."""
    params, leaves, path = dict[str, str](), source.leaves(), shown(source.path)
    if not layout.axis:
        return params
    if SCAN not in named:
        forms = decoder_layers.forms_of_layers(leaves)
        if len(forms) == 2:
            hint = f'Say which are the model\'s: `set={{"{SCAN}": True}}` or `set={{"{SCAN}": False}}`.'
            problem = f"{path} has layers that are stacked and layers that are not"
            raise UsageError(problem, hint=hint, code=Code.WRONG_VALUE)
        if forms == {False} or (not forms and source.metadata.get(decoder_layers.SCAN_LAYERS) is False):
            params[SCAN] = "false"
    if layout.axis not in named:
        axes = decoder_layers.layer_axes(leaves)  # if several fit, it is MaxText's own
        if len(axes) > 1 and layout.name != "maxtext":
            hint = f'Say which: `set={{"{layout.axis}": 0}}` or `set={{"{layout.axis}": 1}}`.'
            both = "in each stack, all arrays are equally long along both"
            problem = f"{path} can have its layers along axis 0 or 1: {both}"
            raise UsageError(problem, hint=hint, code=Code.WRONG_VALUE)
        if len(axes) == 1 and axes[0] != layout.usual_axis:
            params[layout.axis] = str(axes[0])
    if layout.block is not None:
        param, name = layout.block
        if param not in named and _has_key(source, f".*/{name}/.*"):
            params[param] = name
    return params


def _config_of(source: Source, given: PathLike | None) -> Config:
    return configs_of(ConfigFiles({"source": source}, None if given is None else os.fspath(given))).first


def _model_of(source: Source, given: PathLike | None) -> Model:
    """The model that the config describes. Raises UsageError."""
    config = _config_of(source, given)
    given_type = config.value_at("model_type")
    if given_type is None:
        problem = f"it is not known what model {shown(source.path)} is: {config.without(['model_type'])}"
        hint = f"Say where the model's config.json is, `config=…`, or name the recipe. {BY_NAME}"
        raise UsageError(problem, hint=hint)
    name, origin = str(given_type[0]), given_type[1]
    model = models.model_of(name)
    if model is None:
        known = [model_type for model in models.known_models() for model_type in model.model_types]
        problem = f"no recipe converts the model_type `{shown(name)}`, as {origin} says"
        hint = f"There are recipes for {', '.join(known)}."
        raise UsageError(f"{problem}{did_you_mean(name, known)}", hint=hint)
    return model


def _has_key(source: Source, key: str) -> bool:
    return any(map(re.compile(key).fullmatch, source.leaves()))


def _joined_params(params: Mapping[str, str], given: tuple[str, ...]) -> tuple[str, ...]:
    """Add the caller's params to those of a layout. Raises UsageError where they contradict."""
    for text in given:
        name, _, value = text.partition("=")
        if params.get(name, value) != value:
            hint = f"Leave one of them out: the value of {name}, or `to`."
            problem = f"`{shown(text)}` contradicts the layout, which has {name}={params[name]}"
            raise UsageError(problem, hint=hint)
    return tuple(dict.fromkeys([*(f"{name}={value}" for name, value in params.items()), *given]))
