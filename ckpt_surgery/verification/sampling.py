"""Draw a reproducible random sample of the regions with digests, for `verify(sample=…)`."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.report.verification import VerifiedSample

LeafDigests = tuple[Leaf, Digests]
"""A leaf, and the expected digests of its regions."""


def check_share(share: float) -> None:
    """Refuse a share that is not above 0 and at most 1. Raises UsageError."""
    if not 0 < share <= 1:
        raise UsageError(
            f"`sample` is {share:g}, and has to be above 0 and at most 1",
            hint="Give a share, such as `sample=0.05` for a twentieth.",
        )


def draw_sample(
    wanted: Sequence[LeafDigests], share: float, seed: int
) -> tuple[list[LeafDigests], VerifiedSample]:
    """Draw the regions to read, at least this share of all decoded bytes, and describe the sample.

    Regions are drawn at random, each with the same chance; the same checkpoint and seed give the same ones.
    """
    regions = [
        (_drawn(seed, leaf.key.text, index), number, index, nbytes)
        for number, (leaf, digests) in enumerate(wanted)
        for index, nbytes in _regions(leaf, digests)
    ]
    total = sum(nbytes for *_, nbytes in regions)
    chosen: dict[int, list[Shape]] = {}
    read = count = 0
    for _, number, index, nbytes in sorted(regions):
        if read >= share * total:
            break
        chosen.setdefault(number, []).append(index)
        read, count = read + nbytes, count + 1
    parts = [(wanted[number][0], _only(wanted[number][1], chosen[number])) for number in sorted(chosen)]
    return parts, VerifiedSample(
        share, seed, count, len(regions), read, total, read / total if total else 1.0
    )


def _drawn(seed: int, key: str, index: Shape) -> bytes:
    """Sort key of a region in the order of drawing."""
    text = f"{seed}\0{key}\0{index}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _regions(leaf: Leaf, digests: Digests) -> Iterable[tuple[Shape, int]]:
    """Regions of a leaf with digests, and their decoded bytes."""
    assert leaf.spec is not None
    shape, itemsize = leaf.spec.shape, leaf.spec.dtype.itemsize
    for index in digests.crcs:
        lengths = (min(n, s - i * n) for i, n, s in zip(index, digests.grid, shape, strict=True))
        yield index, math.prod(lengths) * itemsize


def _only(digests: Digests, indices: Iterable[Shape]) -> Digests:
    return replace(digests, crcs={index: digests.crcs[index] for index in indices})
