"""The function `rearrange`: a reshape, a transpose and a reshape, written as a pattern of named axes."""

from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.functions.axis_patterns import rearrangement
from ckpt_surgery.functions.base import in_expressions
from ckpt_surgery.functions.layout import reshape, transpose


@in_expressions
def rearrange(x: Array, /, pattern: str, **axes: int) -> Array:  # an axis may be called `x`
    """`rearrange(x, 'd (h k) -> d h k', k=128)`: splits, permutes and merges axes by name.

    The pattern language is that of `einops.rearrange` (Rogozhnikov, ICLR 2022). Both sides name the same
    axes, each once. Parentheses stand for one axis that is the product of the axes within, `1` and `()` for
    an axis of length 1, and `...` for any number of further axes. Keywords give the lengths of axes; in each
    pair of parentheses on the left, one length can be omitted. Raises FunctionError if pattern, lengths and
    shape do not fit together.
    """
    found = rearrangement(pattern, tuple(axes.items()), x.shape)
    return reshape(transpose(reshape(x, found.split), found.permutation), found.merged)
