"""Single bits that flip in results, as disks and memory let happen: `verify` notices each of them."""

import gc
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.runs import Run
from tests.faults.scenarios import SCENARIOS, Bench, check_message, load
from tests.faults.tally import Tally
from tests.support.checkpoints import restored
from tests.support.comparing import assert_same
from tests.support.directories import files_of

KIND = "bit flipped in a result"
FLIPS = 130
ENDS = {1: "cannot be opened, exit 1", 3: "verify exits 3"}


@contextmanager
def flipped(file: Path, bit: int) -> Iterator[None]:
    """The file with one bit changed, as long as the body runs."""
    position = bit // 8
    with file.open("r+b") as handle:
        handle.seek(position)
        before = handle.read(1)
        handle.seek(position)
        handle.write(bytes([before[0] ^ (1 << bit % 8)]))
    try:
        yield
    finally:
        with file.open("r+b") as handle:
            handle.seek(position)
            handle.write(before)


def bits_of(files: list[Path], times: int, seed: str) -> Iterator[tuple[Path, int]]:
    """Bits at random: half of them anywhere, half of them in a file at random, as most files are small."""
    chance = random.Random(seed)
    sizes = [file.stat().st_size for file in files]
    for number in range(times):
        file, size = chance.choices(
            list(zip(files, sizes, strict=True)), sizes if number % 2 else [int(size > 0) for size in sizes]
        )[0]
        yield file, chance.randrange(8 * size)


@pytest.mark.faults
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in ("orbax-copies", "computed")])
def test_verify_notices(name: str, bench: Callable[[str], Bench], tally: Tally) -> None:
    at = bench(name)
    made = at.run("--link-mode", "copy")  # a flip in a file that is shared would be one in the source
    assert made.code == 0, made
    assert at.verify("--full").code == 0
    for file, bit in bits_of(files_of(at.out), FLIPS, name):
        with flipped(file, bit):
            run = at.verify("--full")
            assert run.code in (0, 1, 3), run
            ended = ENDS[run.code] if run.code else told_by_library(at)
        if run.code:
            check_told(run)
        tally.add(KIND, at.name, ended)
    assert at.verify("--full").code == 0


def told_by_library(bench: Bench) -> str:
    """Assert that no value is wrong where `verify` finds nothing, as in a file that holds no values."""
    try:
        found = load(bench.scenario, bench.out)
    except Exception:  # noqa: BLE001  (libraries raise many kinds)
        return "verify exits 0, the format's library refuses"
    assert_same(found, bench.scenario.wanted)
    return "verify exits 0, values exact"


def check_told(run: Run) -> None:
    """Assert that a person is told what is damaged, in an error or in the list that `verify` prints."""
    if run.code == 1:
        check_message(run)
    else:
        assert re.search(r"^damaged  \S", run.out, re.MULTILINE), run
        assert "Traceback" not in run.out + run.err, run


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of what Orbax leaves open
def test_stock_orbax_notices_what_was_computed(bench: Callable[[str], Bench], tally: Tally) -> None:
    """Its arrays carry checksums, which Orbax compares when it restores them."""
    at = bench("computed")
    made = at.run()
    assert made.code == 0, made
    data = [file for file in files_of(at.out) if file.parent.name == "d"]
    before = restored(at.out)
    for file, bit in bits_of(data, FLIPS, "computed"):
        with flipped(file, bit):
            try:
                found = restored(at.out)
            except Exception:  # noqa: BLE001  (Orbax and TensorStore raise many kinds)
                ended = "Orbax refuses"
            else:
                assert_same(found, before)
                ended = "no value needs it"
        tally.add(KIND, "computed leaves in Orbax", ended)
    gc.collect()
