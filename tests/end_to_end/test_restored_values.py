"""What `restore` makes is, bit for bit, what `apply` writes for the same recipe."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ckpt_surgery
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.formats import opening
from ckpt_surgery.live import computing

RECIPE = """version: 1
rules:
  - {match: 'block_(\\d+)/w', to: 'stacked/w', value: 'rearrange(stack(xs), "l a b -> l b a")'}
  - {match: 'block_(\\d+)/b', to: 'stacked/b', value: 'cast(stack(xs), "bfloat16")'}
  - {match: 'embed', value: 'x[:56] * 0.5 + x[8:] / 3'}
  - {add: product, value: "source['embed'] @ source['embed'].T"}
  - {add: means, value: "sum(source['embed'], 0) / 64"}
"""


@pytest.fixture(scope="module", params=["orbax", "safetensors"])
def applied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint of this format, and what `apply` makes of it.

    It has values that round differently if they are computed in another order.
    """
    path, random = tmp_path_factory.mktemp("applied"), np.random.default_rng(3)
    arrays: dict[str, np.ndarray] = {
        "embed": random.standard_normal((64, 24)).astype(np.float32),
        "counts": random.integers(0, 2**31 - 1, (8, 8), np.int32),
    }
    for i in range(6):
        arrays[f"block_{i}/w"] = random.standard_normal((16, 32)).astype(np.float32)
        arrays[f"block_{i}/b"] = random.standard_normal(32).astype(np.float32)
    np.savez(path / "a.npz", **arrays)
    ckpt_surgery.convert(path / "a.npz", path / "source", format=request.param)
    ckpt_surgery.apply(RECIPE, path / "source", dst=path / "result")
    return path / "source", path / "result"


def target_like(path: Path, place: Callable[[tuple[int, ...]], Any]) -> dict[str, Any]:
    """Abstract arrays of the shapes and dtypes of a checkpoint."""
    tree: dict[str, Any] = {}
    for leaf in opening.open_source(str(path)).leaves().values():
        node = tree
        for name in leaf.key.names[:-1]:
            node = node.setdefault(name, {})
        assert leaf.spec is not None
        node[leaf.key.names[-1]] = jax.ShapeDtypeStruct(
            leaf.spec.shape, leaf.spec.dtype, sharding=place(leaf.spec.shape)
        )
    return tree


def by_axes(mesh: Mesh) -> Callable[[tuple[int, ...]], NamedSharding]:
    """A sharding that divides each axis by the mesh axis of its position, where that is possible."""

    def place(shape: tuple[int, ...]) -> NamedSharding:
        sizes = list(mesh.shape.items())[: len(shape)]
        axes = [
            name if length % size == 0 else None for (name, size), length in zip(sizes, shape, strict=False)
        ]
        return NamedSharding(mesh, PartitionSpec(*axes))

    return place


MESHES = {"8": (8,), "4x2": (4, 2), "2x2x2": (2, 2, 2), "3": (3,), "1": (1,)}


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("large", [False, True])
def test_restore_gives_what_apply_writes(
    applied: tuple[Path, Path], devices: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(computing, "SIDE_BY_SIDE", 0)
    shape = MESHES[devices]
    mesh = Mesh(np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape), tuple("xyz"[: len(shape)]))
    source, result = applied
    target = target_like(result, by_axes(mesh))
    found = ckpt_surgery.restore(RECIPE, source, target=target, memory="32MiB")
    flat, _ = jax.tree_util.tree_flatten_with_path(found)
    values = {jax.tree_util.keystr(path, simple=True, separator="/"): value for path, value in flat}
    written = opening.open_source(str(result))
    assert values.keys() == written.leaves().keys()
    for text, leaf in written.leaves().items():
        assert leaf.spec is not None
        expected = written.read(leaf, Region.whole(leaf.spec.shape))
        assert values[text].dtype == expected.dtype
        assert np.asarray(values[text]).tobytes() == np.ascontiguousarray(expected).tobytes()
    assert jax.tree.map(lambda x: x.sharding, found) == jax.tree.map(lambda x: x.sharding, target)
