"""The structure file that older versions of Orbax look for, as it is written.

That orbax-checkpoint 0.4.8 to 0.5.20 restore with it was tried with them; here it is compared with theirs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from ckpt_surgery.api import applying
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.formats.opening import encoder
from ckpt_surgery.formats.orbax.tree import structure_bytes
from ckpt_surgery.formats.registry import SinkOptions
from tests.support import checkpoints
from tests.support.comparing import assert_same
from tests.support.heavy import jax
from tests.support.reading import opened, values

OLDER = Path(__file__).parents[2] / "data" / "orbax_versions"
RECIPE: dict[str, Any] = {"version": 1, "output": {"zarr": 2, "structure_file": True}}


def leaf(text: str, empty: str | None = None, kind: LeafKind = LeafKind.EMPTY) -> Leaf:
    names = text.split("/") if text else []
    key = Key(tuple(n.strip("[]") for n in names), tuple(n.startswith("[") for n in names))
    return Leaf(key, kind, empty=empty)


def tree_of(*leaves: Leaf) -> Any:
    return msgpack.unpackb(structure_bytes(leaves))


@pytest.mark.parametrize("name", ["0.4.8-ocdbt", "0.4.8-aggregated-ocdbt", "0.9.1-zarr3-ocdbt"])
def test_it_is_what_orbax_0_4_wrote(name: str, tmp_path: Path) -> None:
    """Of the same tree, with every value in the store."""
    applying.apply(RECIPE, OLDER / name, dst=tmp_path, dst_step=7)
    written = (OLDER / "0.4.8-ocdbt" / "checkpoint").read_bytes()
    assert msgpack.unpackb((tmp_path / "7/default/checkpoint").read_bytes()) == msgpack.unpackb(written)


@pytest.mark.parametrize("layout", ["ocdbt-zarr2", "v1", "steps"])
def test_stock_orbax_restores_what_has_one(
    layout: str, checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    applying.apply(RECIPE, checkpoint(layout), dst=tmp_path / "c")
    assert_same(checkpoints.restored(tmp_path / "c"), checkpoints.expected_of(layout))
    source, again = opened(checkpoint(layout)), opened(tmp_path / "c")
    assert_same(values(again), values(source))
    assert [leaf.kind for leaf in again.leaves().values()] == [leaf.kind for leaf in source.leaves().values()]


def test_the_tree_of_placeholders() -> None:
    found = tree_of(
        leaf("l/[10]", kind=LeafKind.ARRAY),
        *(leaf(f"l/[{i}]", "None") for i in range(9)),
        leaf("l/[9]/[0]/x", kind=LeafKind.SCALAR),
        leaf("d/0", kind=LeafKind.STRING),  # a dict with the key `0`
        leaf("t", "Tuple"),
    )
    assert found == {
        "l": [*(None for _ in range(9)), [{"x": "PLACEHOLDER://l.9.0.x"}], "PLACEHOLDER://l.10"],
        "d": {"0": "PLACEHOLDER://d.0"},
        "t": [],
    }
    assert tree_of(leaf("", kind=LeafKind.ARRAY)) == "PLACEHOLDER://"
    assert tree_of(leaf("[0]", kind=LeafKind.ARRAY)) == ["PLACEHOLDER://0"]


def test_what_has_no_structure_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="A structure file is for arrays of zarr 2"):
        encoder("orbax", SinkOptions(structure_file=True))
    for format in ("safetensors", "zarr"):
        with pytest.raises(UsageError, match="checkpoints have no structure file"):
            applying.plan(RECIPE, OLDER / "0.4.8-ocdbt", dst=tmp_path / "x", format=format)


def array(dtype: str) -> Leaf:
    return Leaf(Key.parse("x"), LeafKind.ARRAY, ArraySpec((2,), checkpoints.dtype(dtype)))


@pytest.mark.parametrize(
    ("leaves", "structure_file", "versions"),
    [
        ([array("float32")], False, ("0.5.21", None)),
        ([array("float32")], True, ("0.4.8", None)),
        ([leaf("s", kind=LeafKind.STRING), leaf("d", "Dict"), array("int4")], True, ("0.4.8", None)),
        ([leaf("t", "Tuple"), array("float8_e4m3fn")], True, ("0.7.0", None)),
        ([leaf("t", "NamedTuple"), leaf("u", "Tuple")], False, ("0.10.2", None)),
        ([leaf("k", kind=LeafKind.PRNG_KEY), leaf("u", "Tuple")], False, ("0.11.9", None)),
        ([array("float8_e3m4"), array("float4_e2m1fn"), array("int2")], False, ("0.5.21", "0.1.80")),
        ([array("int2")], False, ("0.5.21", "0.1.75")),
        ([array("float8_e8m0fnu")], False, ("0.5.21", "0.1.85")),
    ],
)
def test_the_oldest_versions(leaves: list[Leaf], structure_file: bool, versions: tuple[str, ...]) -> None:
    named = zip(("orbax-checkpoint", "tensorstore"), versions, strict=True)
    wanted = {package: version for package, version in named if version}
    options = SinkOptions(zarr=2 if structure_file else 3, structure_file=structure_file)
    assert encoder("orbax", options).details.restorable_by(leaves) == wanted
    assert encoder("safetensors", SinkOptions()).details.restorable_by(leaves) == {}


def test_plans_tell_who_restores_the_result(tmp_path: Path) -> None:
    checkpoints.save_pytree(tmp_path / "src", {"x": np.ones(2), "k": jax.random.key(7), "t": ()})
    dropped = RECIPE | {"rules": [{"match": "k|t", "drop": True}]}
    for recipe, oldest in ((RECIPE, "0.11.9"), (dropped, "0.4.8"), (None, "0.11.9")):
        made = applying.plan(recipe, tmp_path / "src", dst=tmp_path / "c")
        assert made.restorable_by == {"orbax-checkpoint": oldest}
