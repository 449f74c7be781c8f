"""Models that packaged recipes convert, with their layouts, for `convert --to`: those of `models.yaml`."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

HF = "hf"
"""The layout of Hugging Face transformers, which all others are converted from and to."""
DATA = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Run:
    """A packaged recipe, with values for some of its params."""

    recipe: str
    """Its name, with the `@`."""
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelLayout:
    """A layout of a model other than that of Hugging Face."""

    name: str
    """Its name for `--to`."""
    there: Run
    """From the layout of Hugging Face."""
    back: Run
    """To the layout of Hugging Face, from a checkpoint without a record of a conversion."""
    key: str
    """A regular expression that matches a key in every checkpoint of this layout, and in no other layout."""
    computed: str = ""
    """Values that are computed and rounded once; empty: none, everything is exact to the bit."""
    proofs: tuple[str, ...] = ()
    """Names of the files in tests/recipes that prove it."""
    sizes: tuple[str, ...] = ()
    """The published sizes that it is for; empty: all of the model's."""
    axis: str = ""
    """Param of the recipe back for the axis of stacked layers; empty: the layout has no stacks."""
    block: tuple[str, str] | None = None
    """Param of the recipe back that names a module, and the name that is not its default."""

    @property
    def usual_axis(self) -> int:
        """The axis of stacked layers unless the param `axis` says otherwise."""
        return int(self.name == "maxtext")


@dataclass(frozen=True)
class Model:
    """A kind of model."""

    title: str
    model_types: tuple[str, ...]
    """Values of `model_type` in its config.json."""
    sizes: tuple[str, ...]
    """Names of the published sizes whose names and shapes the tests plan."""
    key: str
    """A regular expression that a key matches in every checkpoint that has the layout of Hugging Face."""
    layouts: tuple[ModelLayout, ...]

    def layout(self, name: str) -> ModelLayout | None:
        """The layout of this name; None where the model has none."""
        return next((layout for layout in self.layouts if layout.name == name), None)


@functools.cache
def known_models() -> tuple[Model, ...]:
    """Read all models from the data file, in the order of docs/models.md."""
    data = msgspec.yaml.decode(DATA.read_bytes())
    return tuple([_model(entry, data["layouts"]) for entry in data["models"]])


def _model(entry: Mapping[str, Any], defaults: Mapping[str, Any]) -> Model:
    layouts = []
    for name, own in entry["layouts"].items():
        layout = {"name": name, **defaults[name], **own}
        params = layout.get("params", {})
        for way, of_way in (("there", params), ("back", {**params, **layout.get("back_params", {})})):
            layout[way] = {"recipe": layout[way].format(decoder=entry.get("decoder", "")), "params": of_way}
        layouts.append(layout)
    return msgspec.convert({"sizes": (), **entry, "layouts": layouts}, Model)


def layouts() -> tuple[str, ...]:
    """Values of `--to`: the names of all layouts, that of Hugging Face last."""
    return (*dict.fromkeys(layout.name for model in known_models() for layout in model.layouts), HF)


def model_of(model_type: str) -> Model | None:
    """The model whose config.json has this `model_type`; None for an unknown one."""
    return next((model for model in known_models() if model_type in model.model_types), None)
