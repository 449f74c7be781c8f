"""Peak memory of whole runs, each in a process of its own. Time is never asserted."""

import json
import math
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.api import applying
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats import opening
from tests.support import checkpoints
from tests.support.checkpoints import random
from tests.support.linked_sources import safetensors_header, save_safetensors
from tests.support.slow import slow

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts a process' peak as needed here"),
]

MIB = 1 << 20
LIBRARIES = 250 * MIB
"""What the interpreter and its libraries may take besides the budget."""

# VmHWM begins anew with each program; ru_maxrss would begin with the size of the process that started it.
PROGRAM = """
    import json, sys
    import numpy, tensorstore
    from ckpt_surgery.api import applying

    def status(name):
        with open("/proc/self/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))

    def planned(plan):
        seen["base"], seen["predicted"] = status("VmRSS"), plan.costs.peak_memory
        seen["transfers"] = sorted({str(step.transfer) for step in plan.steps})

    seen = {}
    recipe, source, out, memory, link_mode = sys.argv[1:]
    options = {"memory": int(memory), "workers": 3, "link_mode": link_mode, "on_plan": planned}
    applying.apply(recipe, source, dst=out, **options)
    seen["peak"] = status("VmHWM")
    print(json.dumps(seen))
"""


class Measured(NamedTuple):
    """All but `transfers` in bytes."""

    base: int
    """Resident when the plan was made."""
    peak: int
    """Resident at most, in the whole life of the process."""
    predicted: int
    """The working set that the plan tells."""
    transfers: list[str]


RUNS = 4
"""Number of runs of which the least peak counts. How threads meet adds some MiB to one run in six or so."""


def measured(folder: Path, recipe: str, source: Path, memory: int, link_mode: str = "auto") -> Measured:
    """A run of `recipe`, written to `folder/out`; run again where it took more than the plan told."""
    (folder / "recipe.yaml").write_text(textwrap.dedent(recipe))
    arguments = [folder / "recipe.yaml", source, folder / "out", memory, link_mode]
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), *map(str, arguments)]
    found: list[Measured] = []
    while len(found) < RUNS and not any(one.peak - one.base <= one.predicted for one in found):
        shutil.rmtree(folder / "out", ignore_errors=True)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(Measured(**json.loads(done.stdout)))
    return min(found, key=lambda one: one.peak - one.base)


Numbers = Mapping[tuple[int, int], float]


def sparse(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """A safetensors file of float32 whose data are a hole."""
    sizes = {name: math.prod(shape) * 4 for name, shape in shapes.items()}
    header = safetensors_header({name: ("F32", shape, sizes[name]) for name, shape in shapes.items()})
    with open(path, "wb") as file:
        file.write(header)
        file.truncate(len(header) + sum(sizes.values()))


def plant(path: Path, side: int, numbers: Numbers) -> None:
    """Put numbers of float32 into the last matrix of a file, by row and column; negative from the end."""
    with open(path, "r+b") as file:
        for (row, column), number in numbers.items():
            file.seek(4 * (side * (row % side - side) + column % side), 2)
            file.write(np.float32(number).tobytes())


def check(found: Measured, memory: int) -> None:
    assert found.transfers == ["compute"]
    assert found.predicted <= memory
    assert found.peak <= memory + LIBRARIES
    assert found.peak - found.base <= found.predicted


def streamed(folder: Path, side: int, memory: int, value: str, planted: Numbers) -> Source:
    """What is made of one square matrix with these numbers, within a budget."""
    source = folder / "model.safetensors"
    sparse(source, {"w": (side, side)})
    plant(source, side, planted)
    recipe = f'version: 1\nrules: [{{match: w, value: "{value}"}}]'
    check(measured(folder, recipe, source, memory), memory)
    return opening.open_source(str(folder / "out"))


@pytest.mark.parametrize(("side", "memory"), [(1 << 13, 64 * MIB), slow((1 << 15, 512 * MIB))])
@pytest.mark.parametrize(
    ("value", "planted", "found"),
    [
        ("cast(x.T, 'bfloat16')", {(-5, 7): 1.5}, {(7, -5): 1.5}),
        ("x / norm(x)", {(-5, 7): 3, (-1, -1): -4}, {(-5, 7): 0.6, (-1, -1): -0.8}),
    ],
)
def test_a_tensor_larger_than_the_budget_streams(
    value: str, planted: Numbers, found: Numbers, side: int, memory: int, tmp_path: Path
) -> None:
    """256 MiB or 4 GiB. `planted` and `found`: its numbers before and after, by row and column."""
    out = streamed(tmp_path, side, memory, value, planted)
    leaf = out.leaves()["w"]
    for place, number in found.items():
        row, column = (n % side for n in place)
        block = out.read(leaf, Region((max(0, row - 3), max(0, column - 3)), (row + 1, column + 1)))
        assert block[-1, -1] == np.float32(number)
        assert np.count_nonzero(block) == 1


def test_the_largest_of_a_tensor_larger_than_the_budget(tmp_path: Path) -> None:
    """Two are found by their magnitude, and of all others, which are equal, the first in C order."""
    side = 1 << 13
    out = streamed(tmp_path, side, 64 * MIB, "topk_mask(x, 5)", {(-5, 7): 3, (-1, -1): -4})
    first = out.read(out.leaves()["w"], Region((0, 0), (2, side)))
    last = out.read(out.leaves()["w"], Region((side - 6, 0), (side, side)))
    assert np.argwhere(first).tolist() == [[0, 0], [0, 1], [0, 2]]
    assert np.argwhere(last).tolist() == [[1, 7], [5, side - 1]]


@pytest.mark.slow("measures the memory of large runs")
def test_a_stack_of_parts_as_large_as_the_budget_streams(tmp_path: Path) -> None:
    """8 × 256 MiB of float32, stacked and cast, in 256 MiB."""
    shape, memory = (1 << 13, 1 << 13), 256 * MIB
    source = tmp_path / "model.safetensors"
    sparse(source, {f"layer_{i}": shape for i in range(8)})
    plant(source, shape[0], {(-1, -1): -2.5})
    recipe = "version: 1\nrules: [{match: 'layer_.*', to: w, value: \"cast(stack(xs), 'bfloat16')\"}]"
    check(measured(tmp_path, recipe, source, memory), memory)
    out = opening.open_source(str(tmp_path / "out"))
    leaf = out.leaves()["w"]
    last = Region((7, shape[0] - 2, shape[1] - 2), (8, *shape))
    assert out.read(leaf, last).tolist() == [[[0, 0], [0, -2.5]]]


@pytest.mark.slow("measures the memory of large runs")
def test_a_linked_tensor_larger_than_the_budget_streams(tmp_path: Path) -> None:
    """1 GiB that was transposed by link is one raw chunk: cast, in 256 MiB."""
    side, memory = 1 << 14, 256 * MIB
    source = tmp_path / "model.safetensors"
    sparse(source, {"w": (side, side)})
    plant(source, side, {(-5, 7): 1.5})
    recipe = tmp_path / "link.yaml"
    recipe.write_text("version: 1\nrules: [{match: w, value: x.T}]")
    plan = applying.apply(recipe, source, dst=tmp_path / "linked", memory=memory, link_mode="hardlink").plan
    assert plan.costs.bytes_linked == side * side * 4
    text = "version: 1\nrules: [{match: w, value: \"cast(x, 'bfloat16')\"}]"
    check(measured(tmp_path, text, tmp_path / "linked", memory), memory)
    out = opening.open_source(str(tmp_path / "out"))
    block = out.read(out.leaves()["w"], Region((6, side - 8), (9, side)))
    assert block[1, 3] == 1.5
    assert np.count_nonzero(block) == 1


@pytest.mark.slow("measures the memory of large runs")
@pytest.mark.parametrize("ocdbt", [True, False])
def test_compressed_chunks_that_do_not_compress(ocdbt: bool, tmp_path: Path) -> None:
    """512 MiB in chunks of 32 MiB as Orbax writes them, transposed and cast, in 256 MiB."""
    rows, columns, memory = 1 << 15, 1 << 12, 256 * MIB
    chunk = random((rows // 16, columns), 1)
    whole = np.concatenate([chunk] * 16)
    checkpoints.save_pytree(tmp_path / "source", {"w": checkpoints.sharded(whole, ("x", "y"), None)}, ocdbt)
    recipe = "version: 1\nrules: [{match: w, value: \"cast(x.T, 'bfloat16')\"}]"
    check(measured(tmp_path, recipe, tmp_path / "source", memory), memory)
    out = opening.open_source(str(tmp_path / "out"))
    block = out.read(out.leaves()["w"], Region((0, 0), (columns, 64)))
    assert block.tobytes() == whole[:64].T.astype(ml_dtypes.bfloat16).tobytes()


@pytest.mark.slow("measures the memory of large runs")
@pytest.mark.parametrize("link_mode", ["hardlink", "copy"])
def test_stored_bytes_take_no_memory(link_mode: str, tmp_path: Path) -> None:
    """1 GiB renamed by link and by copy, whatever the budget."""
    tensors = {f"layer_{i}": random((1 << 12, 1 << 13), i) for i in range(8)}
    save_safetensors(tmp_path / "source", tensors, 2)
    recipe = "version: 1\nrules: [{match: 'layer_.*', to: layers, value: 'transpose(stack(xs), [0, 2, 1])'}]"
    found = measured(tmp_path, recipe, tmp_path / "source", 64 * MIB, link_mode)
    assert found.transfers == [{"hardlink": "link"}.get(link_mode, link_mode)]
    assert found.predicted == 0
    assert found.peak <= 300 * MIB
    assert found.peak - found.base <= 64 * MIB
    out = opening.open_source(str(tmp_path / "out"))
    block = out.read(out.leaves()["layers"], Region((3, 0, 0), (4, 5, 1 << 12)))
    assert block.tobytes() == tensors["layer_3"].T[:5].tobytes()
