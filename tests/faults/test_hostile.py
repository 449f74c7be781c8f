"""Recipes and files that mean harm: refused with a message, soon, and without much memory."""

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgpack
import numpy as np
import pytest

from tests.faults.runs import Run, Runner
from tests.faults.scenarios import check_message
from tests.faults.tally import Tally
from tests.support.directories import names

KIND = "hostile input"
SECONDS = 30.0
"""Far more than the second that a refusal takes, for machines that are busy."""
MORE_BYTES = 500 << 20
"""Memory that a refusal may take, besides what every run does."""


def passes(value: str, times: int) -> str:
    return "passes:\n" + "".join(f"- rules: [{{match: '.*', value: \"{value}\"}}]\n" for _ in range(times))


RECIPES: Mapping[str, str] = {
    "combinations of for": "rules: [{add: 'x/${i}/${j}/${k}', for: {i: 'range(9999)', j: 'range(9999)', "
    "k: 'range(9999)'}, value: 'zeros([2], \"float32\")'}]",
    "repeat": "rules: [{match: 'w', value: 'repeat(x, 10**12, 0)'}]",
    "tile": "rules: [{match: 'w', value: 'tile(x, 10**12)'}]",
    "a power": "rules: [{match: 'w', value: 'x * 9**9**9**9'}]",
    "a product of texts": "rules: [{match: 'w', to: \"${'a' * 10**10}\"}]",
    "zeros": "rules: [{match: 'w'}, {add: z, value: 'zeros([10**9, 10**9], \"float64\")'}]",
    "a range": "rules: [{match: 'w', value: 'take(x, range(10**12), 0)'}]",
    "an expression of parentheses": f"rules: [{{match: 'w', value: '{'(' * 5000}x{')' * 5000}'}}]",
    "an expression of signs": f"rules: [{{match: 'w', value: '{'-' * 100_000}x'}}]",
    "a long sum": f"rules: [{{match: 'w', value: '{' + '.join(['x'] * 50_000)}'}}]",
    "a regular expression": "rules: [{match: '(a|a|aa)+(a|a|aa)+(a|a|aa)+z'}]",
    "repeats of repeats": "rules: [{match: '((((a{1,99}){1,99}){1,99}){1,99}){1,99}z'}]",
    "aliases": "params: {a: &a [x, x]}\nrules: [*a, *a]",
    "a tag": "rules: !!python/object/apply:os.system ['true']",
    "depth": f"rules: {'[' * 10_000}{']' * 10_000}",
    "size": f"# {'x' * (2 << 20)}\nrules: []",
    "a long name": f"rules: [{{match: 'w', to: '{'x' * 100_000}'}}]",
    "names that climb": "rules: [{match: 'w', to: '../../../etc/x'}]\noutput: {format: zarr}",
    "a name with a zero byte": 'rules: [{match: w, to: "a\\0b"}]\noutput: {format: zarr}',
    "attributes": "rules: [{match: w, value: 'x.__class__.__bases__[0].__subclasses__()'}]",
    "a call": 'rules: [{match: w, value: \'__import__("os").system("true")\'}]',
}
"""Recipes that must be refused, after `version: 1`."""

BENIGN_OR_REFUSED: Mapping[str, str] = {
    "sums of itself": passes("x + x", 40),
    "choices of itself": passes("where(x > 0, x, -x)", 24),
    "joined with itself": passes("concat([x, x])[:4]", 24),
    "transposed": passes("x.T", 200),
}
"""Recipes that are carried out or refused, either of them soon."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", w=np.ones((8, 4), np.float32), **{"a" * 60: np.ones(3, np.float32)})
    return tmp_path


def hostile_run(runner: Runner, place: Path, *arguments: object) -> Run:
    limits = {"RLIMIT_DATA": MORE_BYTES}
    run = runner.run(*arguments, directory=place, limits=limits, seconds=SECONDS)
    assert run.in_time, run
    return run


def refused(run: Run, place: Path, before: list[str], tally: Tally, where: str) -> None:
    """Assert that a run was refused, and left nothing."""
    assert run.code in (1, 2), run
    check_message(run, hinted=False)
    assert names(place) == before
    tally.add(KIND, where, "refused")


@pytest.mark.faults
@pytest.mark.parametrize("name", RECIPES)
def test_a_hostile_recipe(name: str, runner: Runner, place: Path, tally: Tally) -> None:
    (place / "r.yaml").write_text(f"version: 1\n{RECIPES[name]}\n")
    before = names(place)
    refused(hostile_run(runner, place, "apply", "r.yaml", "x.npz", "out"), place, before, tally, "recipes")


@pytest.mark.faults
@pytest.mark.parametrize("name", BENIGN_OR_REFUSED)
def test_a_recipe_that_repeats_itself(name: str, runner: Runner, place: Path, tally: Tally) -> None:
    (place / "r.yaml").write_text(f"version: 1\n{BENIGN_OR_REFUSED[name]}\n")
    before = names(place)
    run = hostile_run(runner, place, "apply", "r.yaml", "x.npz", "out")
    if run.code == 0:
        assert names(place) == sorted([*before, "out"])
        tally.add(KIND, "recipes", "carried out")
    else:
        refused(run, place, before, tally, "recipes")


# --- files ------------------------------------------------------------------------------------------------


def safetensors(header: object, more: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + more


def tensor(shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def zipped(name: str, data: bytes, how: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


def npy(shape: str) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


class _Call:
    def __reduce__(self) -> tuple[object, ...]:
        return print, ("pickles are not carried out",)


FILES: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "a header of 2**60 bytes": ("x.safetensors", lambda: struct.pack("<Q", 2**60) + b"{}"),
    "a tensor beyond the end": ("x.safetensors", lambda: safetensors({"w": tensor([9], 0, 36)})),
    "a shape whose product overflows": (
        "x.safetensors",
        lambda: safetensors({"w": tensor([2**32, 2**32], 0, 0)}),
    ),
    "tensors that overlap": (
        "x.safetensors",
        lambda: safetensors({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)),
    ),
    "a header of brackets": ("x.safetensors", lambda: safetensors(b"[" * 1_000_000)),
    "an array of 2**40 elements": ("x.npz", lambda: zipped("w.npy", npy("(1099511627776,)"))),
    "a zip bomb": ("x.npz", lambda: zipped("w.npy", npy("(268435456,)") + bytes(64 << 20))),
    "no zip": ("x.npz", lambda: b"PK\x03\x04" + bytes(100)),
    "a pickle that calls": (
        "x.pt",
        lambda: zipped("archive/data.pkl", pickle.dumps(_Call()), zipfile.ZIP_STORED),
    ),
    "an old pickle that calls": ("x.pt", lambda: pickle.dumps(_Call(), 0)),
    "a map of 2**32 entries": ("x.msgpack", lambda: b"\xdf\xff\xff\xff\xff"),
    "bytes of 4 GiB": ("x.msgpack", lambda: b"\x81\xa1w\xc6\xff\xff\xff\xff"),
    "lists in lists": ("x.msgpack", lambda: b"\x91" * 1_000_000),
    "a shape that lies": (
        "x.msgpack",
        lambda: msgpack.packb({"w": msgpack.ExtType(1, msgpack.packb([[2**40], "float32", bytes(4)]))}),
    ),
    "nothing": ("x.safetensors", lambda: b""),
    "text": ("x.npz", lambda: b"hello"),
}
"""A name and the bytes of a file that must be refused."""


@pytest.mark.faults
@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file(name: str, runner: Runner, tmp_path: Path, tally: Tally) -> None:
    file, data = FILES[name]
    (tmp_path / file).write_bytes(data())
    for command in (["inspect", file], ["convert", file, "out"]):
        refused(hostile_run(runner, tmp_path, *command), tmp_path, [file], tally, "files")


@pytest.mark.faults
@pytest.mark.parametrize("target", ["/dev/zero", "../elsewhere", "loop"])
def test_a_link_in_a_checkpoint_leads_nowhere(
    target: str, runner: Runner, tmp_path: Path, tally: Tally
) -> None:
    source = tmp_path / "x"
    source.mkdir()
    (tmp_path / "elsewhere").write_bytes(safetensors({"w": tensor([1], 0, 4)}, bytes(4)))
    (source / "loop").symlink_to("loop")
    (source / "model.safetensors").symlink_to(target)
    before = names(tmp_path)
    refused(hostile_run(runner, tmp_path, "convert", "x", "out"), tmp_path, before, tally, "links")
