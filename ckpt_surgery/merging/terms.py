"""What a tensor of the result is computed from: models, the values of parameters, dtypes.

Tensors with equal terms have the same formula, and become one rule.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import kind
from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.language.yaml.document import DocumentPath
from ckpt_surgery.merging.checks import Finding
from ckpt_surgery.merging.methods import METHODS, Base, Parameter, Required, Scope
from ckpt_surgery.merging.models import MergeConfig
from ckpt_surgery.merging.outputs import Input, Output
from ckpt_surgery.merging.reading import LoadedConfig, in_order
from ckpt_surgery.merging.settings import Converted, Setting

COPY = "copy"
"""Stands for the method of tensors that are not floating-point numbers, or have no elements: they are the
base's, or the first's."""

Values = tuple[tuple[str, Converted | None], ...]
"""Parameters by name, in the order of the method."""


@dataclass(frozen=True)
class Term:
    """A model's part in a formula."""

    source: str
    """Name of the source in the recipe."""
    offset: int
    """Number of a layer of the model less that of the result."""
    dtype: str
    values: Values

    def value(self, name: str) -> float:
        """The value of a parameter of this model."""
        return _float(self.values, name)


@dataclass(frozen=True)
class Terms:
    """Everything that a formula depends on, for one or many tensors."""

    method: str
    """Name of the method, or COPY."""
    terms: tuple[Term, ...]
    """One for each model; the base is not among them where the method sets it apart."""
    base: Term | None
    """The base, where the method sets it apart."""
    values: Values
    """Parameters that all models share."""
    dtype: str
    """Dtype of the result."""
    scalar: bool = False
    """Whether the tensors have no axes. Formulas see them as vectors of one element."""

    def value(self, name: str) -> float:
        """The value of a parameter that all models share."""
        return _float(self.values, name)

    def holds(self, name: str) -> bool:
        """The value of a parameter that is true or false."""
        return bool(dict(self.values)[name])


def _float(values: Values, name: str) -> float:
    value = dict(values)[name]
    assert value is not None, name
    return value


@dataclass(frozen=True)
class _Lack:
    """A parameter without a value for a tensor."""

    input: Input | None
    output: Output
    parameter: Parameter


class _Missing(Exception):
    def __init__(self, lack: _Lack):
        super().__init__()
        self.lack = lack


def terms_of(
    loaded: LoadedConfig, outputs: Sequence[Output], sources: Mapping[str, str]
) -> Mapping[Terms, list[str]]:
    """The terms of all tensors of a result, each with the names of the tensors that have them.

    `sources`: name of the recipe's source for each model. Raises PlanError where filters leave a tensor
    without the value of a parameter that has no default.
    """
    found: dict[Terms, list[str]] = {}
    lacks: list[_Lack] = []
    for output in outputs:
        try:
            found.setdefault(_terms(loaded.config, output, sources), []).append(output.name)
        except _Missing as missing:
            lacks.append(missing.lack)
    if lacks:
        findings = _findings(lacks)
        raise PlanError(*in_order(map(loaded.problem, findings)), code=Code.MISSING_FIELD)
    return found


def _findings(lacks: Sequence[_Lack]) -> Iterator[Finding]:
    by_place: dict[tuple[DocumentPath, str], list[str]] = {}
    for lack in lacks:
        path = lack.output.slice.path if lack.input is None else lack.input.part.path
        name = lack.output.name if lack.input is None else lack.input.name
        by_place.setdefault((path, lack.parameter.name), []).append(name)
    for (path, parameter), names in by_place.items():
        message = (
            f"the parameter `{parameter}` is missing for {few_keys(names)}: no filter is part of the name"
        )
        hint = "End the list with a value without a filter: `- value: …`."
        yield Finding(path, message, hint, code=Code.MISSING_FIELD)


def _terms(config: MergeConfig, output: Output, sources: Mapping[str, str]) -> Terms:
    method = METHODS[config.merge_method]
    base = None if method.base is Base.IGNORED else output.slice.base
    dtype = _result_dtype(config, output)
    reference = next(one for one in output.inputs if one.part is output.slice.reference)
    spec = _spec(reference)
    own = Term(sources[reference.part.model], reference.offset, spec.dtype.name, ())
    if kind(spec.dtype) != "f":
        return Terms(COPY, (own,), None, (), own.dtype)
    if not spec.size:
        return Terms(COPY, (own,), None, (), dtype)
    scopes = (output.slice.parameters, config.parameters)
    shared = tuple(
        (parameter.name, _value(parameter, scopes, output, None))
        for parameter in method.parameters
        if parameter.scope is Scope.SHARED
    )
    terms = [
        Term(
            sources[one.part.model],
            one.offset,
            _spec(one).dtype.name,
            tuple(
                (parameter.name, _value(parameter, (one.part.parameters, *scopes), output, one))
                for parameter in method.parameters
                if parameter.scope is Scope.EACH
                or (parameter.scope is Scope.TUNED and one.part.model != base)
            ),
        )
        for one in output.inputs
    ]
    apart = [term for term, one in zip(terms, output.inputs, strict=True) if one.part.model == base]
    others = [term for term, one in zip(terms, output.inputs, strict=True) if one.part.model != base]
    set_apart = apart[0] if apart else None
    return Terms(config.merge_method, tuple(others), set_apart, shared, dtype, scalar=not spec.shape)


def _value(
    parameter: Parameter, scopes: Sequence[Mapping[str, Setting]], output: Output, input: Input | None
) -> Converted | None:
    """The value of a parameter: the first scope that has one for this tensor gives it."""
    name = output.name if input is None else input.name
    convert: Callable[..., Converted] = parameter.convert
    for scope in scopes:
        if parameter.name in scope:
            value = scope[parameter.name].at(name, output.t, convert)
            if value is not None:
                return value
    if isinstance(parameter.default, Required):
        raise _Missing(_Lack(input, output, parameter))
    return parameter.default


def _result_dtype(config: MergeConfig, output: Output) -> str:
    """The type of a tensor of the result: `out_dtype`, else `dtype`, else that of the base or first model."""
    reference = next(one for one in output.inputs if one.part is output.slice.reference)
    return config.out_dtype or config.dtype or _spec(reference).dtype.name


def _spec(one: Input) -> ArraySpec:
    assert one.leaf.spec is not None
    return one.leaf.spec
