"""Names of functions and values in expressions: those that are allowed, and messages for unknown ones.

Messages have replacements for functions of NumPy, JAX, PyTorch and einops.
"""

import ast
import keyword
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.text import did_you_mean, shortened
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions.calls import usage
from ckpt_surgery.language.expressions.scope import CONFIG, CONFIGS, HOOKS, SOURCES

SOURCE = "source"  # Name of the only source of a recipe that names none
_OF_SOURCES = re.compile(r"(?:source|src)(?:_?[0-9]+)?")

TARGET = "target"
EVERYWHERE = (TARGET, SOURCES, CONFIG, CONFIGS)  # Names that all expressions can use

MEANINGS: Mapping[str, str] = {
    "x": "`x` is the leaf that a `match` or `fill` rule claimed, and no leaf is claimed here",
    "xs": "`xs` is the list of leaves that share one `to`; only values of a `match` rule with `to` have it",
    "key": "`key` is the key that a rule claimed, and no leaf is claimed here",
    "g": "`g` holds the groups of a regular expression, and this place has none",
}
"""Names that depend on the rule, with the message for a place where they have no value."""


BUILT_IN = {
    "has": "`has(source['a/b'])`: whether that source, or the target, has a leaf of this key. "
    "`has(config['a']['b'])`: whether there is such an entry, and no entry on its path is null.",
    "get": "`get(config['a'], default)`: the entry, or the default where `has` would be false. "
    "`get(source['a/b'], default)`: the same for a leaf.",
    "kind": "`kind(source['a/b'])`: what that leaf is: `'array'`, `'scalar'`, `'string'`, `'prng_key'` or "
    "`'empty'`. Only the first two have a value that expressions can use.",
    "sub": "`sub(text, 'regex', 'replacement')`: the text, in which every part that the regular expression "
    "matches is replaced. `\\1` and `\\g<name>` in the replacement are groups of the match.",
    "count": "`count('regex')`: how many keys of the first source match the regular expression.",
}
"""Functions that need the scope, and so are not in the registry, with their documentation."""


def function_names() -> frozenset[str]:
    """The names of all functions that expressions can call."""
    return frozenset((*registry(), *BUILT_IN))


def unknown_function(name: str) -> str:
    """The message for a call of a function that is not there."""
    instead = f"; {INSTEAD[name]}" if name in INSTEAD else did_you_mean(name, function_names())
    return f"unknown function `{name}`{instead}"


def name_problem(name: str, owners: Mapping[str, str], subscripted: bool = False) -> str | None:
    """The message if a name is not allowed or is taken, or None.

    `owners` says what each name that is taken stands for. `subscripted`: the name is only used with a
    subscript, as those of sources are, and so can be that of a function, which is only called.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        return f"`{name}` is not a valid name; use letters, digits and `_`, and no Python keyword"
    if name in function_names() and not subscripted:
        return f"`{name}` is a function; choose another name"
    if name in MEANINGS or name in (*EVERYWHERE, HOOKS):
        return f"`{name}` has a meaning of its own in recipes; choose another name"
    return f"`{name}` is already {owners[name]}; choose another name" if name in owners else None


def unknown_name(name: str, known: Iterable[str], sources: Sequence[str] = ()) -> str:
    """The message for a name that is none of the `known` ones. `sources`: names of the recipe's sources."""
    if name in MEANINGS:
        return MEANINGS[name]
    if sources and _OF_SOURCES.fullmatch(name):
        more = "; others need names under `sources:`" if list(sources) == [SOURCE] else ""
        return f"unknown name `{name}`; sources here: {', '.join(f'`{source}`' for source in sources)}{more}"
    if name in function_names():
        return f"`{name}` is a function; call it: {name}(…)"
    if name == HOOKS:
        return "`hooks` needs a line `hooks: FILE.py` in the recipe"
    if name in DTYPES:
        return f"unknown name `{name}`; a type is written as text: '{name}'"
    return f"unknown name `{shortened(name, 60)}`{did_you_mean(name, known)}"


MODULES = frozenset(
    {"np", "numpy", "jnp", "jax", "lax", "torch", "tf", "mx", "einops", "ml_dtypes", "F", "math", "operator"}
)
"""Names by which people import these libraries."""

_CAST = "write `cast(x, dtype)`, with the dtype as text, such as 'float32'"
_NEW = "arrays are made with `full(shape, value, dtype)`, `zeros(shape, dtype)` or `arange(start, stop)`"
_SLICES = "take each part with a slice, such as `x[:n]` and `x[n:]`"
_NOTHING = "leave it out: `x`"
_AXES = "write `transpose(x, axes)`, where `axes` lists all axes in their new order"
_TILE = "write `tile(x, reps)`, where `reps` lists the number of copies along each axis"
_TYPES = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32"}
_TYPES |= {"short": "int16", "bool_": "bool", "float_": "float64"}
"""Types of other libraries that have another name here."""
_OPERATORS = {"add": "+", "subtract": "-", "mul multiply": "*", "div divide true_divide": "/"}
_OPERATORS |= {"floor_divide": "//", "pow power": "**", "matmul mm bmm dot mv": "@"}
_OPERATORS |= {"logical_and": "&", "logical_or": "|"}
_WRITE: Mapping[str, str] = (
    # layout
    {"unsqueeze newaxis": "expand_dims(x, axis)", "t": "x.T", "unflatten": "reshape(x, shape)"}
    | {"view_as reshape_as": "reshape(x, other.shape)", "ravel flatten flat": "reshape(x, [-1])"}
    | {"flipud": "flip(x, 0)", "fliplr": "flip(x, 1)", "repeat_interleave": "repeat(x, repeats, axis)"}
    # joining and taking
    | {"cat concatenate hstack vstack dstack column_stack row_stack append": "concat([a, b], axis)"}
    | {
        "select": "x[i]",
        "slice dynamic_slice": "x[start:stop]",
        "index_select gather": "take(x, indices, axis)",
    }
    # types
    | {name: f"cast(x, '{dtype}')" for name, dtype in _TYPES.items() if name != "int"}
    | {"bfloat16": "cast(x, 'bfloat16')", "bool": "cast(x, 'bool')"}
    | {"bitcast_convert_type": "bitcast(x, dtype)"}
    # products and arithmetic
    | {names: f"a {symbol} b" for names, symbol in _OPERATORS.items()}
    | {"tensordot": "einsum('ij,jk->ik', a, b)", "outer": "einsum('i,j->ij', a, b)"}
    | {"square": "x ** 2", "neg negative": "-x", "absolute": "abs(x)", "logical_not": "~x"}
    | {"clamp": "clip(x, min, max)", "amax": "max(x, axis)", "amin": "min(x, axis)"}
    | {"interpolate": "resize(x, shape, method)"}
    # new arrays
    | {"zeros_like empty_like": "zeros(x.shape, x.dtype)", "ones_like": "ones(x.shape, x.dtype)"}
    | {"full_like": "full(x.shape, value, x.dtype)", "empty": "zeros(shape, dtype)"}
    | {"randn normal": "init('normal', shape, dtype, stddev=1.0)"}
    # attributes and texts
    | {"numel": "x.size", "dim": "x.ndim"}
    | {"startswith": "text[:2] == 'ab'", "endswith": "text[-2:] == 'ab'"}
)
"""Replacements for calls of functions or methods of these names; `x` stands for their array."""

_ADVICE: Mapping[str, str] = {
    **{names: f"write `{code}`" for names, code in _WRITE.items()},
    "permute permute_dims swapaxes swapdims moveaxis movedim rollaxis mT": _AXES,
    "view": "write `reshape(x, shape)`; for other bits, `bitcast(x, dtype)`",
    "expand broadcast_to expand_as": _TILE,
    "split chunk array_split hsplit vsplit tensor_split narrow": _SLICES,
    "unbind unstack": "take each element with a subscript: `x[i]`",
    "astype type to asarray as_tensor convert_element_type": _CAST,
    "array tensor": _NEW,
    "reduce": "write `mean(x, axis)`, `sum(x, axis)` or `max(x, axis)`",
    "format join": "write an f-string: `f'{a}/{b}'`",
    "removeprefix": "write `replace(text, 'a', 'b')`, or take a group of the match: `g[1]`",
    # A recipe has neither devices nor gradients.
    "clone copy contiguous detach cpu cuda numpy data value block_until_ready device_put": _NOTHING,
    "from_numpy": _NOTHING,
}
INSTEAD = {name: advice for names, advice in _ADVICE.items() for name in names.split()}
"""Replacement for a call of a function or a method of this name; `x` stands for its array."""

_OF_METHODS = {
    "transpose": f"{_AXES}, or `x.T`",
    "repeat": f"{_TILE}; each element several times in a row is `repeat(x, repeats, axis)`",
    "size": "write `x.shape`, or `x.size` for the number of elements",
    **{name: f"write `x.{name}`, without parentheses" for name in ("shape", "T", "dtype", "ndim")},
}
"""Methods whose arguments differ from those of the function or the attribute of the same name here."""


def method_advice(receiver: ast.expr, name: str) -> str:
    """Replacement for `receiver.name(…)`, as `; write …`; or nothing."""
    if name == "split" and _name_before(receiver) in ("key", "g"):
        return "; take a part of the key as a group of the match: `g[1]`"
    function = registry().get(name)
    advice = INSTEAD.get(name, "") if function is None else f"write `{usage(function, '{}=…')}`"
    if not is_module(receiver):
        advice = _OF_METHODS.get(name, advice)
    return advice and f"; {advice}"


def attribute_advice(receiver: ast.expr, name: str) -> str:
    """Replacement for `receiver.name`, as `; write …`; or nothing."""
    if is_module(receiver):
        type_name = _TYPES.get(name, name)
        if type_name in DTYPES:
            return f"; a type is written as text: '{type_name}'"
        if name in ("pi", "e"):
            return f"; write {getattr(math, name)}"
        if name == "newaxis":
            return "; write `None`: `x[:, None]`"
    return method_advice(receiver, name)


def is_module(node: ast.expr) -> bool:
    """Whether an expression names a module of another library: `np`, `jnp.linalg`."""
    return _name_before(node) in MODULES


def _name_before(node: ast.expr) -> str | None:
    """The name that attributes and subscripts follow in an expression."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
