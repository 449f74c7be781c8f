"""Reading of configurations: YAML is parsed and checked, and every problem is reported with its place."""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from ckpt_surgery.core.errors import Code, Problem, RecipeError
from ckpt_surgery.core.text import abridged, did_you_mean, number_of, shown
from ckpt_surgery.language.checks.findings import Finding, field_finding, prune
from ckpt_surgery.language.files import read_text, refuse_recipe
from ckpt_surgery.language.loading import in_order, located
from ckpt_surgery.language.yaml.document import DocumentPath, YamlDocument
from ckpt_surgery.language.yaml.parsing import parse_document
from ckpt_surgery.merging.models import (
    BASE_PATH,
    METHODS,
    PARAMETERS,
    MergeConfig,
    Method,
    Setting,
    Slice,
    slices_of,
)

LORA = "+"
"""Stands between a model and an adapter in mergekit's names of models."""


def findings(config: MergeConfig) -> Iterator[Finding]:
    """Everything that is wrong, whatever the models are."""
    method = METHODS.get(config.merge_method)
    if method is None:
        known = ", ".join(sorted(METHODS))
        guess = did_you_mean(config.merge_method, METHODS) or f"; known are {known}"
        message = f"not a method: `{shown(config.merge_method)}`{guess}"
        yield Finding(("merge_method",), message, code=Code.WRONG_VALUE)
    if config.models is not None and config.slices is not None:
        message = "`models` and `slices` do not go together"
        yield Finding(("slices",), message, at_key=True, hint="Keep one of them.")
    elif config.models is None and config.slices is None:
        yield Finding((), "`models` or `slices` is missing: what is merged", code=Code.MISSING_FIELD)
    slices = slices_of(config)
    empty = [slice.listed for slice in slices if not any(part.path != BASE_PATH for part in slice.parts)]
    for path in [*empty, *([("slices",)] if config.slices == () else [])]:
        yield Finding(path, f"`{path[-1]}` is empty", code=Code.MISSING_FIELD)
    for path, parameters in all_parameters(config):
        for name, setting in parameters.items():
            yield from _wrong_setting((*path, "parameters", name), name, setting, method)
    if method is not None:
        for slice in slices:
            if slice.listed not in empty:
                yield from _misfits(config, method, slice)
                yield from _missing(config, method, slice)


def all_parameters(config: MergeConfig) -> Iterator[tuple[DocumentPath, Mapping[str, Setting]]]:
    """The parameters of every scope, with the path of what has them."""
    yield (), config.parameters
    for slice in slices_of(config):
        yield slice.path, slice.parameters
        yield from ((part.path, part.parameters) for part in slice.parts)


def _wrong_setting(
    path: DocumentPath, name: str, setting: Setting, method: Method | None
) -> Iterator[Finding]:
    if name not in PARAMETERS:
        known = sorted(PARAMETERS if method is None else method.by_name)
        guess = did_you_mean(name, known) or (f"; known are {', '.join(known)}" if known else "")
        yield Finding(path, f"unknown parameter `{name}`{guess}", at_key=True, code=Code.UNKNOWN_FIELD)
    elif method is not None and name in method.by_name:
        parameter = method.by_name[name]
        wanted = {bool: "true or false", int: "an integer"}.get(parameter.kind, "a number")
        for value in (value for case in setting.cases for value in case.values):
            try:
                parameter.convert(value)
            except (ValueError, OverflowError):
                message = f"`{name}` has to be {wanted}, not {abridged(value)}"
                yield Finding(path, message, code=Code.WRONG_VALUE)


def _misfits(config: MergeConfig, method: Method, slice: Slice) -> Iterator[Finding]:
    """Models that are too many, too few, twice there, without a base, or of another number of layers."""
    names, called = [part.model for part in slice.parts], config.merge_method
    has_base, twice = slice.base in names, [name for name, count in Counter(names).items() if count > 1]
    least, most = method.least, method.most
    if method.base == "optional" and has_base:
        least += 1
    elif method.base == "optional" and most is not None:
        most -= 1
    if method.base != "ignored" and slice.base is not None and not has_base:
        message = f"the base model `{shown(slice.base)}` is not among the sources of the slice"
        yield Finding(slice.listed, message, hint="Add it, with its `layer_range`.")
    elif twice:
        for name in twice:
            yield Finding(slice.listed, f"the model `{shown(name)}` is there twice", code=Code.WRONG_VALUE)
    elif method.base == "required" and not has_base:
        message = f"`base_model` is missing, which `{called}` needs"
        yield Finding(("merge_method",), message, code=Code.MISSING_FIELD)
    elif len(names) < least or (most is not None and len(names) > most):
        wanted = number_of(least, "model") if least == most else f"{least} or more models"
        with_base = ", the base included" if has_base and method.base != "ignored" else ""
        message = f"`{called}` takes {wanted}{with_base}; there are {len(names)}"
        yield Finding(slice.listed, message, code=Code.WRONG_VALUE)
    layers = slice.parts[0].layers
    for part in slice.parts:
        if part.layers != layers:
            message = f"{part.layers} layers, where the first source of the slice has {layers}"
            yield Finding((*part.path, "layer_range"), message, code=Code.WRONG_VALUE)


def _missing(config: MergeConfig, method: Method, slice: Slice) -> Iterator[Finding]:
    """Parameters that a model or all models need, and that no scope gives."""
    of_all = {*slice.parameters, *config.parameters}
    for part in slice.parts:
        for parameter in method.of_model(part.model == slice.base):
            if parameter.default is None and parameter.name not in of_all.union(part.parameters):
                message = f"the parameter `{parameter.name}` is missing for this model"
                hint = f"Write `parameters: {{{parameter.name}: …}}` with the model, or for all of them."
                yield Finding(part.path, message, hint=hint, code=Code.MISSING_FIELD)
    for parameter in method.shared:
        if parameter.default is None and parameter.name not in of_all:
            message = f"the parameter `{parameter.name}` is missing"
            hint = f"Write `parameters: {{{parameter.name}: …}}`."
            yield Finding(slice.path, message, hint=hint, code=Code.MISSING_FIELD)


def ignored(config: MergeConfig) -> Iterator[str]:
    """A sentence for each parameter that the method has no use for, as other methods have."""
    known = METHODS[config.merge_method].by_name
    for name in dict.fromkeys(name for _, parameters in all_parameters(config) for name in parameters):
        if name not in known:
            yield f"the parameter `{name}` has no meaning for the method `{config.merge_method}`"


_TOKENIZER = (
    "Leave it out: the tokenizer files of the base model, or else of the first model, are copied. "
    "All models must have the same vocabulary."
)
OUTSIDE: Mapping[str, str] = {
    "tokenizer": _TOKENIZER,
    "tokenizer_source": _TOKENIZER,
    "chat_template": "Leave it out, and change the template in the result's tokenizer files.",
    "modules": "Write one configuration for each module.",
    "residual_weight": "Leave it out.",
}
"""Fields of mergekit that are refused by name, and what to do."""


@dataclass(frozen=True)
class LoadedConfig:
    """A configuration that passed all checks that need no model."""

    path: str
    """Path of the file as the user gave it."""
    config: MergeConfig
    document: YamlDocument
    """The YAML document, for the places of fields."""

    def problems(self, findings: Iterable[Finding]) -> list[Problem]:
        """Findings with their places in the file, in the order of the places."""
        return in_order(located(self.document, finding) for finding in findings)


def read_config(path: str) -> LoadedConfig:
    """Read and check a configuration.

    Raises UsageError if the file cannot be read, RecipeError with all problems of the configuration.
    """
    return parse_config(read_text(path, "configuration"), path)


def parse_config(text: str, path: str) -> LoadedConfig:
    """Like `read_config`, for a text. Messages call it `path`."""
    document = parse_document(text, path)
    refuse_recipe(document.value, path)
    if not isinstance(document.value, dict):
        message = "a configuration is a mapping with `merge_method` and `models` or `slices`"
        problem = Problem(message, document.place(()), code=Code.UNREADABLE)
        raise RecipeError(*document.problems, problem)
    config, broken = _parsed(document.value)
    flaws = [*broken, *(() if config is None else findings(config))]
    problems = [*document.problems, *(located(document, finding) for finding in flaws)]
    if problems or config is None:
        raise RecipeError(*in_order(problems))
    return LoadedConfig(path, config, document)


def _parsed(value: Mapping[str | int, Any]) -> tuple[MergeConfig | None, list[Finding]]:
    """The configuration, None where too much of it is wrong for further checks, and what is wrong."""
    try:
        return MergeConfig.model_validate(value), []
    except ValidationError as error:
        flaws = [field_finding(details, value, MergeConfig) for details in error.errors(include_url=False)]
    for number, finding in enumerate(flaws):
        if finding.code is Code.UNKNOWN_FIELD and (name := str(finding.path[-1])) in OUTSIDE:
            message = f"`{name}` is a field of mergekit that `merge` does not take"
            flaws[number] = replace(finding, message=message, hint=OUTSIDE[name])
    if any(finding.code is not Code.UNKNOWN_FIELD for finding in flaws):
        return None, flaws
    known = copy.deepcopy(dict(value))
    for finding in flaws:
        prune(known, finding.path)
    return MergeConfig.model_validate(known), flaws
