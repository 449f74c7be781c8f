"""What has changed of the files of a checkpoint, and how a message names it."""

import json

import pytest

from ckpt_surgery.core.file_states import FileState, change, changes, changes_between, changes_text

FILE = FileState(10, 5, sample=1)


@pytest.mark.parametrize(
    ("before", "now", "without_times", "with_times"),
    [
        (FILE, FILE, "", ""),
        (FILE, None, "missing", "missing"),
        (None, FILE, "new", "new"),
        (FILE, FileState(12, 6, sample=2), "size 10 → 12", "size 10 → 12"),
        (FILE, FileState(10, 5, sample=2), "content", "content"),  # with its old time
        (FILE, FileState(10, 6, sample=1), "", "only its time"),
        (FileState(3, version="a"), FileState(3, version="b"), "version", "version"),
        (FileState(3, version="a"), FileState(3, version="a"), "", ""),
        (FileState(3, 1), FileState(3, 1), "", ""),  # may not be read
        (FileState(3, 1), FileState(3, 2), "", "only its time"),
        (FILE, FileState(10, version="a"), "version", "version"),  # moved into a store: nothing proves it
    ],
)
def test_what_of_a_file_has_changed(
    before: FileState | None, now: FileState | None, without_times: str, with_times: str
) -> None:
    assert (change(before, now, times=False), change(before, now, times=True)) == (without_times, with_times)


def test_five_files_are_named() -> None:
    before = {f"d/{i}": FILE for i in range(7)}
    found = changes(before, {"d/0": FILE, "e\x1b": FILE}, times=True)
    assert changes_text(found) == (
        "`d/1` (missing), `d/2` (missing), `d/3` (missing), `d/4` (missing), `d/5` (missing), and 2 more"
    )
    assert found[-1] == ("e\x1b", "new")
    assert changes_text(found[-1:]) == "`e\\x1b` (new)"


def test_a_single_file_may_have_another_name() -> None:
    assert changes({"model.npz": FILE}, {"copy.npz": FILE}, times=True) == []
    assert changes({"a": FILE}, {"b": FileState(10, 5, sample=2)}, times=True) == [("a", "content")]


def test_texts_about_sources_are_compared_where_they_are_such_texts() -> None:
    one, other = (json.dumps({"files": {"a": [10, 5, "", crc]}}) for crc in (1, 2))
    assert changes_between(one, other) == "`a` (content)"
    for text in ("f" * 64, "1" * 64, None, "{}", '{"files": 3}', '{"files": {"a": [1, 2, 3, 4, 5]}}'):
        assert changes_between(text, other) == ""
