"""What functions and methods of NumPy, JAX, PyTorch and einops are called here: for messages only."""

import ast
import re
from collections.abc import Mapping

from ckpt_surgery.core.dtypes import DTYPES

MODULES = frozenset(
    {"np", "numpy", "jnp", "jax", "lax", "torch", "tf", "mx", "einops", "ml_dtypes", "F", "math", "operator"}
)
"""Names by which people import these libraries."""

LONGEST = 40
"""Limit on the characters of an expression that is repeated in advice."""

_NOTHING = "leave it out: `x`"
_CONCAT = "write `concat([a, b], axis)`"
_SLICES = "take each part with a slice, such as `x[:n]` and `x[n:]`"
_AXES = "write `transpose(x, axes)`, where `axes` lists all axes in their new order"
_FLAT = "write `reshape(x, [-1])`"
_MATMUL = "write `a @ b`"
_TILE = "write `tile(x, reps)`, where `reps` lists the number of copies along each axis"
_CAST = "write `cast(x, dtype)`, with the dtype as text, such as 'float32'"
_NEW = "arrays are made with `full(shape, value, dtype)`, `zeros(shape, dtype)` or `arange(start, stop)`"

INSTEAD: Mapping[str, str] = {
    # layout
    "unsqueeze": "write `expand_dims(x, axis)`",
    "newaxis": "write `expand_dims(x, axis)`",
    "permute": _AXES,
    "permute_dims": _AXES,
    "swapaxes": _AXES,
    "swapdims": _AXES,
    "moveaxis": _AXES,
    "movedim": _AXES,
    "rollaxis": _AXES,
    "t": "write `x.T`",
    "mT": _AXES,
    "view": "write `reshape(x, shape)`; for other bits, `bitcast(x, dtype)`",
    "view_as": "write `reshape(x, other.shape)`",
    "reshape_as": "write `reshape(x, other.shape)`",
    "unflatten": "write `reshape(x, shape)`",
    "ravel": _FLAT,
    "flatten": _FLAT,
    "flat": _FLAT,
    "flipud": "write `flip(x, 0)`",
    "fliplr": "write `flip(x, 1)`",
    "expand": _TILE,
    "broadcast_to": _TILE,
    "expand_as": _TILE,
    "repeat_interleave": "write `repeat(x, repeats, axis)`",
    # joining and taking
    "cat": _CONCAT,
    "concatenate": _CONCAT,
    "hstack": _CONCAT,
    "vstack": _CONCAT,
    "dstack": _CONCAT,
    "column_stack": _CONCAT,
    "row_stack": _CONCAT,
    "append": _CONCAT,
    "split": _SLICES,
    "chunk": _SLICES,
    "array_split": _SLICES,
    "hsplit": _SLICES,
    "vsplit": _SLICES,
    "tensor_split": _SLICES,
    "unbind": "take each element with a subscript: `x[i]`",
    "unstack": "take each element with a subscript: `x[i]`",
    "narrow": _SLICES,
    "select": "write `x[i]`",
    "slice": "write `x[start:stop]`",
    "dynamic_slice": "write `x[start:stop]`",
    "index_select": "write `take(x, indices, axis)`",
    "gather": "write `take(x, indices, axis)`",
    # types
    "astype": _CAST,
    "type": _CAST,
    "to": _CAST,
    "asarray": _CAST,
    "array": _NEW,
    "tensor": _NEW,
    "as_tensor": _CAST,
    "from_numpy": _NOTHING,
    "convert_element_type": _CAST,
    "float": "write `cast(x, 'float32')`",
    "double": "write `cast(x, 'float64')`",
    "half": "write `cast(x, 'float16')`",
    "bfloat16": "write `cast(x, 'bfloat16')`",
    "long": "write `cast(x, 'int64')`",
    "bool": "write `cast(x, 'bool')`",
    "bitcast_convert_type": "write `bitcast(x, dtype)`",
    # products and arithmetic
    "matmul": _MATMUL,
    "mm": _MATMUL,
    "bmm": _MATMUL,
    "dot": _MATMUL,
    "mv": _MATMUL,
    "tensordot": "write `einsum('ij,jk->ik', a, b)`",
    "outer": "write `einsum('i,j->ij', a, b)`",
    "add": "write `a + b`",
    "subtract": "write `a - b`",
    "mul": "write `a * b`",
    "multiply": "write `a * b`",
    "div": "write `a / b`",
    "divide": "write `a / b`",
    "true_divide": "write `a / b`",
    "floor_divide": "write `a // b`",
    "pow": "write `a ** b`",
    "power": "write `a ** b`",
    "square": "write `x ** 2`",
    "neg": "write `-x`",
    "negative": "write `-x`",
    "absolute": "write `abs(x)`",
    "logical_and": "write `a & b`",
    "logical_or": "write `a | b`",
    "logical_not": "write `~x`",
    "clamp": "write `clip(x, min, max)`",
    "amax": "write `max(x, axis)`",
    "amin": "write `min(x, axis)`",
    "reduce": "write `mean(x, axis)`, `sum(x, axis)` or `max(x, axis)`",
    "interpolate": "write `resize(x, shape, method)`",
    # new arrays
    "zeros_like": "write `zeros(x.shape, x.dtype)`",
    "ones_like": "write `ones(x.shape, x.dtype)`",
    "full_like": "write `full(x.shape, value, x.dtype)`",
    "empty": "write `zeros(shape, dtype)`",
    "empty_like": "write `zeros(x.shape, x.dtype)`",
    "randn": "write `init('normal', shape, dtype, stddev=1.0)`",
    "normal": "write `init('normal', shape, dtype, stddev=1.0)`",
    # what an array tells
    "numel": "write `x.size`",
    "dim": "write `x.ndim`",
    # what is not needed: a recipe has neither devices nor gradients
    "clone": _NOTHING,
    "copy": _NOTHING,
    "contiguous": _NOTHING,
    "detach": _NOTHING,
    "cpu": _NOTHING,
    "cuda": _NOTHING,
    "numpy": _NOTHING,
    "data": _NOTHING,
    "value": _NOTHING,
    "block_until_ready": _NOTHING,
    "device_put": _NOTHING,
    # texts
    "format": "write an f-string: `f'{a}/{b}'`",
    "join": "write an f-string: `f'{a}/{b}'`",
    "removeprefix": "write `replace(text, 'a', 'b')`, or take a group of the match: `g[1]`",
    "startswith": "write `text[:2] == 'ab'`",
    "endswith": "write `text[-2:] == 'ab'`",
}
"""What to do instead of calling a function or a method of this name; `x` stands for its array."""

_TEXTS = frozenset({"key", "g"})
"""Names of texts, and of what holds texts."""
_OF_TEXTS = {"split": "take a part of the key as a group of the match: `g[1]`"}
_OF_METHODS = {
    "transpose": f"{_AXES}, or `x.T`",
    "repeat": f"{_TILE}; each element several times in a row is `repeat(x, repeats, axis)`",
    "size": "write `x.shape`, or `x.size` for the number of elements",
    "shape": "write `x.shape`, without parentheses",
    "T": "write `x.T`, without parentheses",
    "dtype": "write `x.dtype`, without parentheses",
    "ndim": "write `x.ndim`, without parentheses",
}
"""Methods whose arguments differ from those of the function or the attribute of the same name here."""
_TYPES = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32"}
_TYPES |= {"short": "int16", "bool_": "bool", "float_": "float64"}
"""Types of other libraries that have another name here."""


def written_here(name: str) -> str:
    """`; write …`: what to do instead of calling a function of another library; or nothing."""
    return f"; {INSTEAD[name]}" if name in INSTEAD else ""


def method_advice(receiver: ast.expr, name: str, functions: Mapping[str, str]) -> str:
    """What to write instead of `receiver.name(…)`, as `; write …`; or nothing.

    `functions`: how each function of the language is called.
    """
    special = {
        **(_OF_METHODS if not is_module(receiver) else {}),
        **(_OF_TEXTS if _is_text(receiver) else {}),
    }
    advice = special.get(name) or (f"write `{functions[name]}`" if name in functions else INSTEAD.get(name))
    if advice is None:
        return ""
    return f"; {advice if is_module(receiver) else _about(advice, receiver)}"


def attribute_advice(receiver: ast.expr, name: str, functions: Mapping[str, str]) -> str:
    """What to write instead of `receiver.name`, as `; write …`; or nothing."""
    if is_module(receiver):
        type_name = _TYPES.get(name, name)
        if type_name in DTYPES:
            return f"; a type is written as text: '{type_name}'"
        constants = {"pi": "3.141592653589793", "e": "2.718281828459045"}
        if name in constants:
            return f"; write {constants[name]}"
        if name == "newaxis":
            return "; write `None`: `x[:, None]`"
    return method_advice(receiver, name, functions)


def is_module(node: ast.expr) -> bool:
    """Whether an expression names a module of another library: `np`, `jnp.linalg`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in MODULES


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and node.id in _TEXTS


def _about(advice: str, receiver: ast.expr) -> str:
    """The advice with the receiver in place of `x`."""
    text = ast.unparse(receiver)
    if len(text) > LONGEST or not isinstance(receiver, ast.Name | ast.Subscript | ast.Call | ast.Attribute):
        return advice
    return re.sub(r"`[^`]*`", lambda code: re.sub(r"\bx\b", lambda _: text, code[0]), advice)
