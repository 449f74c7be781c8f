"""The table in docs/reliability.md."""

from pathlib import Path

import pytest

from tests.faults import tally
from tests.faults.tally import BEGIN, DIRECTORY, END, KINDS, PAGE, Tally, collected, with_table


def test_counts_of_all_processes_are_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    one, other = Tally(), Tally()
    one.add(KINDS[0], "npz to out", "absent", 3)
    one.save()
    (tmp_path / "1.json").write_text(next(tmp_path.glob("*.json")).read_text())
    other.add(KINDS[0], "npz to out, overwriting", "new")
    other.add(KINDS[1], "npz to out", "old")
    other.save()
    page = with_table(f"before\n{BEGIN}\nold\n{END}\nafter\n", collected(tmp_path))
    assert page.splitlines() == [
        "before", BEGIN, "", "| fault | where | tried | how it ended |", "|---|---|---|---|",
        f"| {KINDS[0]} | npz to out | 4 | absent: 3, new: 1 |",
        f"| {KINDS[1]} | npz to out | 1 | old: 1 |",
        "| **all** | | **5** | |", "", END, "after",
    ]  # fmt: skip


def test_a_part_of_the_suite_does_not_change_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("as it was")
    monkeypatch.setattr(tally, "PAGE", page)
    monkeypatch.setattr("sys.argv", ["tally", str(tmp_path)])
    tally.main()
    assert page.read_text() == "as it was"
    assert KINDS[0] in capsys.readouterr().out


def test_the_page_has_a_place_for_the_table() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert with_table(text, {}).count("\n| fault | where |") == 1
