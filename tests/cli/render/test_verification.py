"""What verification found, as lines, and the command `verify` from end to end."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.cli.commands.verify import flaw_texts, verified_line
from ckpt_surgery.cli.render.plan import result_lines
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.report.verification import Depth, Flaw, Verified, VerifiedRun, Verify
from ckpt_surgery.runs.run import Result
from tests.support.command_line import run


def found(*flaws: Flaw, not_read: int = 0) -> Verified:
    return Verified("/a\x1b", Depth.VALUES, "orbax", 2, 1 << 20, not_read, flaws)


def test_the_line_of_a_run(make_plan: Callable[..., Plan]) -> None:
    def of_run(mode: Verify, read: int, not_read: int, width: int = 80) -> list[str]:
        result = Result(make_plan(), 1, "/out", verified=VerifiedRun(mode, read, not_read))
        return [line.plain for line in result_lines(result, width)][:-1]

    assert of_run(Verify.FULL, 1 << 20, 0) == ["verified: 1.00 MiB read back"]
    assert of_run(Verify.FAST, 0, 3 << 30) == [
        "verified: 0 B read back, 3.00 GiB linked and not read (see `verify --full`)"
    ]
    assert of_run(Verify.FAST, 1 << 20, 3 << 30, 60) == [
        "verified: 1.00 MiB read back,",
        "    3.00 GiB linked and not read (see `verify --full`)",
    ]
    assert of_run(Verify.NONE, 0, 9) == ["not verified (`verify` reads it back)"]


def last_line(verified: Verified) -> str:
    (word, _), about = verified_line(verified)
    return f"{word}{about}"


def test_the_last_line_of_verify() -> None:
    assert last_line(found()) == r"whole  2 leaves · 1.00 MiB read · /a\x1b"
    line = last_line(found(not_read=5))  # which is no proof
    assert line == r"no damage found  2 leaves · 1.00 MiB read, 5 B not read (--full reads all) · /a\x1b"
    assert last_line(found(Flaw("k", None, "x"), not_read=5)) == (
        r"damaged  2 leaves · 1.00 MiB read, 5 B not read · 1 flaw · /a\x1b"
    )


def test_flaws_are_listed_up_to_a_number() -> None:
    texts = flaw_texts(found(Flaw("k\x1b", (1, 2), "it is cut"), Flaw(None, None, "x")))
    assert texts == [r"`k\x1b`, chunk (1, 2): it is cut", "x"]
    texts = flaw_texts(found(*[Flaw("k", (), "x")] * 1234))
    assert (len(texts), texts[-1]) == (101, "and 1,134 more")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_file({"w": np.arange(5000, dtype=np.float32)}, tmp_path / "a.safetensors")
    ckpt_surgery.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    return tmp_path / "b.safetensors"


def test_a_whole_checkpoint(checkpoint: Path) -> None:
    done = run("verify", checkpoint)
    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        f"whole  1 leaf · 19.5 KiB read · {checkpoint}\n",
        "",
    )
    assert run("verify", checkpoint, "-q").output == ""
    both = run("verify", checkpoint, "--fast", "--full")
    assert (both.exit_code, "--fast and --full exclude each other" in both.stderr) == (2, True)
    document = json.loads(run("verify", checkpoint, "--fast", "--json", "-").stdout)
    assert document == {
        "schema": 1,
        "path": str(checkpoint),
        "format": "safetensors",
        "mode": "fast",
        "bytes_read": 0,
        "bytes_not_read": 20000,
        "leaves": 1,
        "flaw_count": 0,
        "flaws": [],
        "notices": [],
    }


def test_a_damaged_checkpoint_exits_3_with_leaf_and_chunk(checkpoint: Path) -> None:
    data = bytearray(checkpoint.read_bytes())
    data[-3] ^= 16
    checkpoint.write_bytes(data)
    done = run("verify", checkpoint)
    assert done.exit_code == 3
    first, last = done.stdout.splitlines()
    assert first.startswith("damaged  `w`, chunk (0): its checksum is ")
    assert last == f"damaged  1 leaf · 19.5 KiB read · 1 flaw · {checkpoint}"
    done = run("verify", checkpoint, "--json", "-")
    assert done.exit_code == 3
    ((flaw),) = json.loads(done.stdout)["flaws"]
    assert (flaw["key"], flaw["chunk"]) == ("w", [0])
    assert run("verify", checkpoint, "-q").exit_code == 3
    assert "`w`, chunk (0)" in run("verify", checkpoint, "-q").stderr
