"""Checks of a configuration that need no model: its method, its parameters, which fields go together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import abridged, did_you_mean, shown
from ckpt_surgery.language.yaml.document import DocumentPath
from ckpt_surgery.merging.methods import METHODS, PARAMETERS, REQUIRED, Base, Method, Parameter, Scope
from ckpt_surgery.merging.models import InputModel, InputSlice, MergeConfig, OutputSlice
from ckpt_surgery.merging.settings import Setting

LORA = "+"
"""Stands between a model and an adapter in mergekit's names of models."""


@dataclass(frozen=True)
class Finding:
    """A problem of a configuration, by the path of its field."""

    path: DocumentPath
    message: str
    hint: str | None = None
    at_key: bool = False
    """Whether the problem is with the field's name."""
    code: Code = Code.FIELDS_DISAGREE


Scopes = Sequence[tuple[DocumentPath, Mapping[str, Setting]]]
"""Where parameters can stand, with what stands there."""


def findings(config: MergeConfig) -> Iterator[Finding]:
    """Everything that is wrong, whatever the models are."""
    method = METHODS.get(config.merge_method)
    if method is None:
        known = ", ".join(sorted(METHODS))
        guess = did_you_mean(config.merge_method, METHODS) or f"; known are {known}"
        message = f"not a method: `{shown(config.merge_method)}`{guess}"
        yield Finding(("merge_method",), message, code=Code.WRONG_VALUE)
    yield from _one_of_both(config)
    for path, parameters in all_parameters(config):
        for name, setting in parameters.items():
            yield from _wrong_setting((*path, name), name, setting, method)
    if method is not None:
        for number, slice in enumerate(config.slices or ()):
            yield from _slice_findings(config, method, slice, ("slices", number))
        if config.models:
            yield from _models_findings(config, method, config.models)


def all_parameters(config: MergeConfig) -> Iterator[tuple[DocumentPath, Mapping[str, Setting]]]:
    """The parameters of every scope, with the scope's path."""
    yield ("parameters",), config.parameters
    for i, model in enumerate(config.models or ()):
        yield ("models", i, "parameters"), model.parameters
    for i, slice in enumerate(config.slices or ()):
        yield ("slices", i, "parameters"), slice.parameters
        for j, source in enumerate(slice.sources):
            yield ("slices", i, "sources", j, "parameters"), source.parameters


def _one_of_both(config: MergeConfig) -> Iterator[Finding]:
    if config.models is not None and config.slices is not None:
        yield Finding(
            ("slices",), "`models` and `slices` do not go together", "Keep one of them.", at_key=True
        )
    elif config.models is None and config.slices is None:
        yield Finding((), "`models` or `slices` is missing: what is merged", code=Code.MISSING_FIELD)
    for name in ("models", "slices"):
        if getattr(config, name) == ():
            yield Finding((name,), f"`{name}` is empty", code=Code.MISSING_FIELD)
    for i, slice in enumerate(config.slices or ()):
        if not slice.sources:
            yield Finding(("slices", i, "sources"), "`sources` is empty", code=Code.MISSING_FIELD)


def _wrong_setting(
    path: DocumentPath, name: str, setting: Setting, method: Method | None
) -> Iterator[Finding]:
    if name not in PARAMETERS:
        known = sorted(PARAMETERS if method is None else method.by_name)
        guess = did_you_mean(name, known) or (f"; known are {', '.join(known)}" if known else "")
        yield Finding(path, f"unknown parameter `{name}`{guess}", at_key=True, code=Code.UNKNOWN_FIELD)
    elif method is not None and name in method.by_name:
        parameter = method.by_name[name]
        for value in (value for case in setting.cases for value in case.values):
            try:
                parameter.convert(value)
            except (ValueError, OverflowError):
                message = f"`{name}` has to be {parameter.wanted}, not {abridged(value)}"
                yield Finding(path, message, code=Code.WRONG_VALUE)


# --- models -----------------------------------------------------------------------------------------------


def _models_findings(config: MergeConfig, method: Method, models: Sequence[InputModel]) -> Iterator[Finding]:
    names = [model.model for model in models]
    if config.base_model is not None and config.base_model not in names:
        names.append(config.base_model)  # as mergekit does
    yield from _misfits(names, config.base_model, method, config.merge_method, ("models",))
    scopes = [((), config.parameters)]
    for i, model in enumerate(models):
        own = (("models", i), model.parameters)
        yield from _missing(method, model.model == config.base_model, [own, *scopes], ("models", i))
    if names[len(models) :]:
        yield from _missing(method, True, scopes, ("base_model",))
    yield from _missing_shared(method, scopes, ())


def _slice_findings(
    config: MergeConfig, method: Method, slice: OutputSlice, path: DocumentPath
) -> Iterator[Finding]:
    names = [source.model for source in slice.sources]
    base = slice.base_model or config.base_model
    if method.base is not Base.IGNORED and base is not None and base not in names:
        message = f"the base model `{shown(base)}` is not among the sources of the slice"
        yield Finding((*path, "sources"), message, "Add it, with its `layer_range`.")
    else:
        yield from _misfits(names, base, method, config.merge_method, (*path, "sources"))
    yield from _lengths(slice.sources, (*path, "sources"))
    scopes = [(path, slice.parameters), ((), config.parameters)]
    for i, source in enumerate(slice.sources):
        place = (*path, "sources", i)
        yield from _missing(method, source.model == base, [(place, source.parameters), *scopes], place)
    yield from _missing_shared(method, scopes, path)


def _misfits(
    names: Sequence[str], base: str | None, method: Method, called: str, path: DocumentPath
) -> Iterator[Finding]:
    """Models that are too many, too few, twice there, or without a base."""
    if len(set(names)) < len(names):
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            yield Finding(path, f"the model `{shown(name)}` is there twice", code=Code.WRONG_VALUE)
        return
    if method.base is Base.REQUIRED and base is None:
        message = f"`base_model` is missing, which `{called}` needs"
        yield Finding(("merge_method",), message, code=Code.MISSING_FIELD)
        return
    least, most = method.least, method.most
    apart = method.base is Base.OPTIONAL and base in names
    least, most = (
        least + apart,
        most if most is None or apart or method.base is not Base.OPTIONAL else most - 1,
    )
    if len(names) < least or (most is not None and len(names) > most):
        wanted = f"{least}" if least == most else f"{least} or more" if most is None else f"at most {most}"
        with_base = ", the base included" if base in names and method.base is not Base.IGNORED else ""
        models = "model" if wanted.endswith(" 1") or wanted == "1" else "models"
        message = f"`{called}` takes {wanted} {models}{with_base}; there are {len(names)}"
        yield Finding(path, message, code=Code.WRONG_VALUE)


def _lengths(sources: Sequence[InputSlice], path: DocumentPath) -> Iterator[Finding]:
    """Sources with other numbers of layers than the first."""
    lengths = [source.layer_range[1] - source.layer_range[0] for source in sources]
    for i, length in enumerate(lengths):
        if length != lengths[0]:
            message = f"{length} layers, where the first source of the slice has {lengths[0]}"
            yield Finding((*path, i, "layer_range"), message, code=Code.WRONG_VALUE)


def _missing(method: Method, is_base: bool, scopes: Scopes, path: DocumentPath) -> Iterator[Finding]:
    """Parameters that a model needs, and that no scope gives."""
    for parameter in method.parameters:
        for_base = parameter.scope is Scope.EACH or (parameter.scope is Scope.TUNED and not is_base)
        if for_base and _is_missing(parameter, scopes):
            yield Finding(
                path,
                f"the parameter `{parameter.name}` is missing for this model",
                f"Write `parameters: {{{parameter.name}: …}}` with the model, or for all of them.",
                code=Code.MISSING_FIELD,
            )


def _missing_shared(method: Method, scopes: Scopes, path: DocumentPath) -> Iterator[Finding]:
    """Parameters that all models share, and that no scope gives."""
    for parameter in method.parameters:
        if parameter.scope is Scope.SHARED and _is_missing(parameter, scopes):
            message = f"the parameter `{parameter.name}` is missing"
            hint = f"Write `parameters: {{{parameter.name}: …}}`."
            yield Finding(path, message, hint, code=Code.MISSING_FIELD)


def _is_missing(parameter: Parameter, scopes: Scopes) -> bool:
    return parameter.default is REQUIRED and all(parameter.name not in given for _, given in scopes)


# --- remarks ----------------------------------------------------------------------------------------------


def ignored(config: MergeConfig) -> Iterator[str]:
    """A sentence for each parameter that the method has no use for, as other methods have."""
    known = METHODS[config.merge_method].by_name
    given = dict.fromkeys(name for _, parameters in all_parameters(config) for name in parameters)
    for name in given:
        if name not in known:
            yield f"the parameter `{name}` has no meaning for the method `{config.merge_method}`"
