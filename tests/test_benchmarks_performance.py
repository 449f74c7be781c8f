"""docs/performance.md, its pictures and the table of the README, as they are made of results."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench, paired, performance, plot, tables
from benchmarks.machine import Setting
from benchmarks.measure import Measured
from benchmarks.tables import MIB, Curve, Limit, Line

SETTING = Setting("2026-11-20 08:00", "2 cores, here", 0.1, 2, "make performance SIZE=2GB")
NAMES = {
    r"\d+ MiB transposed and cast": "4096 MiB transposed and cast",
    "list .* of flax": "list 3.0 GiB of flax",
}
"""Works for the patterns in `SHOWN`."""


def measured(seconds: float, peak: int = 10) -> Measured:
    return Measured(seconds, seconds / 2, seconds * 2, peak * MIB, 3)


def lines_of(work: str, unit: str = "GB") -> list[Line]:
    """One work at two sizes: ours, and a peer that is killed at the larger one."""
    small = Line(work, "ckpt-surgery --link-mode copy", measured(0.5), 1, unit, headline=False)
    large = replace(small, measured=measured(1.234, 78), size=2, headline=True)
    peer = replace(small, who="a peer", measured=measured(2.5), is_peer=True)
    return [small, large, peer, replace(peer, measured=None, size=2, headline=True)]


def every_line() -> list[Line]:
    return [line for work in performance.SHOWN for line in lines_of(NAMES.get(work, work))]


def stored(directory: Path, name: str, setting: Setting, lines: list[Line]) -> None:
    (directory / f"{name}.json").write_text(tables.document(setting, lines))


# --- results --------------------------------------------------------------------------------------


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    lines = [line.within(Limit(ratio=1.3), "a note") for line in lines_of("cast")]
    stored(tmp_path, "1GB", SETTING, lines)
    assert performance.read(tmp_path) == [(SETTING, lines)]


def test_a_work_is_taken_from_the_latest_run(tmp_path: Path) -> None:
    first, again = lines_of("cast"), [lines_of("cast")[1]]
    other, later = lines_of("scan"), replace(SETTING, date="2026-11-20 17:00")
    stored(tmp_path, "a", later, again)  # in the order of dates, and not of names
    stored(tmp_path, "b", SETTING, first + other)
    assert performance.read(tmp_path) == [(SETTING, other), (later, again)]


def test_a_run_all_of_whose_works_were_repeated_is_left_out(tmp_path: Path) -> None:
    later = replace(SETTING, date="2026-11-20 17:00")
    stored(tmp_path, "a", SETTING, lines_of("cast"))
    stored(tmp_path, "b", later, lines_of("cast"))
    assert [setting for setting, _ in performance.read(tmp_path)] == [later]


# --- the page -------------------------------------------------------------------------------------


def test_the_page_says_when_where_how_and_what() -> None:
    page = performance.page([(SETTING, lines_of("cast"))])
    assert "On `2 cores, here`:\n\n- 2026-11-20, `make performance SIZE=2GB`, at a load of 0.1\n" in page
    assert "busy" not in page
    assert "| cast, 2 GB | ckpt-surgery --link-mode copy | 1.23 | 3 |  | 78 |  |" in page
    assert "| cast, 2 GB | a peer | out of memory |" in page
    assert "| cast | ckpt-surgery --link-mode copy | 0.50 | 1.23 |" in page
    assert "pictures/growth-size-dark.svg#gh-dark-mode-only" in page
    assert "growth-leaves" not in page


def test_machines_are_told_apart() -> None:
    other = replace(SETTING, machine="8 cores, there")
    page = performance.page([(SETTING, lines_of("a")), (other, lines_of("b")), (SETTING, lines_of("c"))])
    here, there = (page.index(f"On `{one.machine}`:") for one in (SETTING, other))
    assert page[here:there].count("- 2026-11-20") == 2
    assert page[there:].count("- 2026-11-20") == 1


def test_a_ratio_is_to_the_peer() -> None:
    ours, peer = lines_of("cast")[1], replace(lines_of("cast")[3], measured=measured(2.468))
    page = performance.page([(SETTING, [ours, peer])])
    assert "| 3 | 0.5 | 78 |  |" in page
    assert "| a peer | 2.47 | 3 |  | 10 |  |" in page


@pytest.mark.parametrize(("load", "cores", "busy"), [(0.5, 2, False), (0.6, 2, True), (0.6, 4, False)])
def test_a_busy_machine_is_said(load: float, cores: int, busy: bool) -> None:
    page = performance.page([(replace(SETTING, load=load, cores=cores), lines_of("cast"))])
    assert ("The machine was busy" in page) is busy


# --- the table of the README ----------------------------------------------------------------------


def test_the_short_table_has_the_largest_size_of_each_work() -> None:
    rows = performance.short_table(every_line()).splitlines()
    assert len(rows) == 2 + len(performance.SHOWN)
    assert (
        rows[2] == "| rename, link, 2 GB, `--link-mode copy` | 1.2 s | 78 MiB | a peer | out of memory |  |"
    )


def test_a_work_without_a_peer_has_empty_cells() -> None:
    lines = [line for line in every_line() if not (line.is_peer and line.work == "inspect")]
    (row,) = [row for row in performance.short_table(lines).splitlines() if row.startswith("| inspect")]
    assert row.endswith("| 78 MiB |  |  |  |")


def test_a_work_that_was_not_measured_is_an_error() -> None:
    lines = [line for line in every_line() if line.work != "rename many"]
    with pytest.raises(ValueError, match="`rename many` was not measured"):
        performance.short_table(lines)


def test_everything_is_written(tmp_path: Path) -> None:
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    page = tmp_path / "docs" / "performance.md"
    page.write_text("<!-- paired -->\nan earlier commit\n<!-- /paired -->\n")
    (tmp_path / "README.md").write_text("before\n\n<!-- speed -->\nold\n<!-- /speed -->\n\nafter\n")
    results = [(SETTING, every_line())]
    for _ in range(2):
        performance.write(results, tmp_path)
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("before\n\n<!-- speed -->\n")
    assert readme.endswith("<!-- /speed -->\n\nafter\n")
    assert performance.short_table(every_line()) in readme
    assert "Measured 2026-11-20 on `2 cores, here`." in readme
    assert "old" not in readme
    assert page.read_text() == performance.page(results, "an earlier commit\n")
    names = sorted(path.name for path in (tmp_path / "docs" / "pictures").iterdir())
    assert names == ["growth-size-dark.svg", "growth-size-light.svg"]


def test_an_earlier_commit_stands_beside_this_one() -> None:
    before, now = (
        Measured(1.0, 1.0, 1.0, peak << 20, 3, processor) for peak, processor in ((80, 2.0), (60, 1.5))
    )
    assert list(paired.rows("cast", ("a1", "b2"), (before, now))) == [
        ["cast", "a1", "2.00", "", "80"],
        ["cast", "b2", "1.50", "0.75", "60"],
    ]


def test_the_command_repeats_the_run(tmp_path: Path) -> None:
    options = bench.parse(
        ["--size", "8GB", "--only", "cast", "--runs", "1", "--leaves", "10,20", "--scratch", str(tmp_path)]
    )
    wanted = "make performance SIZE=8GB BENCH='--only cast --runs 1 --leaves 10,20'"
    assert bench.setting(options).command == wanted
    assert bench.setting(bench.parse([])).command == "make performance SIZE=1GB"


# --- pictures -------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"
CURVES = [
    Curve("cast", "ckpt-surgery", (1, 10, 100), (1.0, 3.0, 10.0)),
    Curve("cast", "a <peer>", (1, 100), (10.0, 100.0)),
    Curve("scan", "ckpt-surgery", (1, 100), (0.5, 0.7)),
]


def elements(name: str) -> list[Any]:
    return list(ET.fromstring(plot.picture(CURVES, "GB", plot.THEMES[0])).iter(f"{SVG}{name}"))


def test_a_picture_has_every_curve_at_its_place() -> None:
    cast, peer, _ = (one.get("points").split() for one in elements("polyline"))
    (x1, y1), (x2, y2), (x3, y3) = (map(float, point.split(",")) for point in cast)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)  # both axes are logarithmic
    assert y1 > y2 > y3
    assert (y1 - y2) / (y1 - y3) == pytest.approx(0.477, abs=0.005)
    assert peer[0] == f"{x1},{y3}"  # both took 10 s
    assert [bool(one.get("stroke-dasharray")) for one in elements("polyline")] == [False, True, False]


def test_a_picture_names_curves_and_sizes() -> None:
    texts = ["".join(one.itertext()) for one in elements("text")]
    assert {"cast", "scan", "ckpt-surgery", "a <peer>", "1", "10", "100", "1 s", "100 s"} <= set(texts)


def test_both_themes_show_the_same() -> None:
    light, dark = (ET.fromstring(plot.picture(CURVES, "GB", theme)) for theme in plot.THEMES)
    assert ["".join(one.itertext()) for one in light] == ["".join(one.itertext()) for one in dark]
    assert light.get("fill") != dark.get("fill")


@pytest.mark.parametrize(
    ("low", "high", "wanted"), [(0.5, 30, [0.1, 1, 10, 100]), (1, 1, [1, 10]), (2, 3, [1, 10])]
)
def test_ticks_enclose_the_values(low: float, high: float, wanted: list[float]) -> None:
    assert plot.ticks(low, high) == pytest.approx(wanted)


def test_the_document_is_json() -> None:
    assert json.loads(tables.document(SETTING, []))["command"] == SETTING.command
