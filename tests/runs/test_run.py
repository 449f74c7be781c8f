"""What became of the links of a plan."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.planner.plan import Costs, Plan, Step, Transfer
from ckpt_surgery.runs.run import copy_notices, plan_as_executed
from tests.support.plans import plan_of


def brought(source: str, how: LinkMode, size: int = 10, reason: str = "") -> AdoptedFile:
    return AdoptedFile(f"d/{source}", source, how, size, 0, 1 if how is LinkMode.COPY else None, reason)


FILES = (
    brought("/a", LinkMode.HARDLINK),
    brought("/b", LinkMode.COPY, 1000, "Too many links"),
    brought("/c", LinkMode.REFLINK),
    brought("/d", LinkMode.COPY, 24, "Too many links"),
    brought("/e", LinkMode.COPY, 7, "Operation not permitted"),
)


def test_each_reason_for_copies_is_told_once() -> None:
    assert copy_notices(FILES[:1]) == ()
    assert copy_notices(FILES) == (
        "copied because no link was possible: 2 files (1.00 KiB): Too many links",
        "copied because no link was possible: 1 file (7 B): Operation not permitted",
    )


def planned(*files: tuple[str, ...]) -> Plan:
    """One output of 8 bytes for each tuple of files that hold its stored bytes; one is computed."""
    plan = plan_of("version: 1\nrules: []\n", ["x"])
    spec = ArraySpec((8,), np.dtype(np.uint8))

    def linked(names: tuple[str, ...]) -> Step:
        size = 8 // max(1, len(names))
        chunks = {(i,): Chunk(name, 0, size) for i, name in enumerate(names)} or {
            (0,): Chunk("", 0, 8, b"8" * 8)
        }
        stored = Manifest(spec, (size,), raw_codec(1), chunks)
        leaf = replace(plan.steps[0].leaf, spec=spec)
        return replace(plan.steps[0], leaf=leaf, transfer=Transfer.LINK, cut=None, stored=stored)

    steps = (*map(linked, files), plan.steps[0])
    return replace(plan, steps=steps, costs=Costs(100, 8 * len(files), 30, 20, 40, 0))


def test_what_could_not_be_linked_counts_as_copied(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    (tmp_path / "link").symlink_to("b")
    plan = planned(("/a",), (str(tmp_path / "link"),), ("/a", "/d"), (), ("/a", "/c"))
    files = [replace(file, source=str(tmp_path / "b")) if file.source == "/b" else file for file in FILES]
    done = plan_as_executed(plan, files[:4])
    assert [str(step.transfer) for step in done.steps] == ["link", "copy", "copy", "link", "link", "compute"]
    costs = done.costs
    assert (costs.bytes_linked, costs.bytes_copied, costs.bytes_read) == (40 - 16, 30 + 16, 40 + 1024)
    assert costs.bytes_through == costs.bytes_read + 46 + 20
    assert replace(done, steps=plan.steps, costs=plan.costs) == plan


def test_a_plan_whose_links_were_made_is_what_was_done() -> None:
    plan = planned(("/a",))
    assert plan_as_executed(plan, FILES[:1]) is plan
