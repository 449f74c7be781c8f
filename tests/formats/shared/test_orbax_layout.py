"""Which directories are Orbax's items, checkpoints, and directories of steps, also damaged ones."""

from pathlib import Path

import pytest

from ckpt_surgery.formats.shared.orbax_layout import is_checkpoint, is_item, is_orbax, steps_in
from tests.support.directories import touched


@pytest.mark.parametrize(
    ("files", "item", "checkpoint", "orbax"),
    [
        (["_METADATA"], True, True, True),
        (["manifest.ocdbt"], True, True, True),
        (["ocdbt.process_0/d/"], True, True, True),  # a save of several processes that was not merged
        (["ocdbt.process_0"], False, False, False),  # a file, not a directory
        (["commit_success.txt"], False, True, True),
        (["_CHECKPOINT_METADATA"], False, True, True),
        (["params/_METADATA"], False, True, True),  # a named item
        (["3/_METADATA"], False, False, True),  # a step, and not an item called 3
        (["step_3/params/_METADATA"], False, False, True),
        (["3/x"], False, False, False),  # a directory of another kind
        (["deep/er/params/_METADATA"], False, False, False),
        (["x"], False, False, False),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else str(value),
)
def test_directories_are_recognized_by_what_is_in_them(
    files: list[str], item: bool, checkpoint: bool, orbax: bool, tmp_path: Path
) -> None:
    path = str(touched(tmp_path / "x", *files))
    assert (is_item(path), is_checkpoint(path), is_orbax(path)) == (item, checkpoint, orbax)


def test_an_unfinished_save_is_recognized_by_its_name(tmp_path: Path) -> None:
    assert is_orbax(str(touched(tmp_path / "3.orbax-checkpoint-tmp-17", "x/")))
    (tmp_path / "y.orbax-checkpoint-tmp").touch()
    assert not is_orbax(str(tmp_path / "y.orbax-checkpoint-tmp"))  # a file


def test_steps_are_the_checkpoints_whose_names_end_with_a_number(tmp_path: Path) -> None:
    names = ("3", "step_10", "a_b_007", "x3", "params", "5.orbax-checkpoint-tmp-1", "3_x", "9" * 19, "")
    path = touched(tmp_path, *(f"{name}/_METADATA" for name in names if name), "4/other")
    assert steps_in(str(path)) == {"3": 3, "step_10": 10, "a_b_007": 7}
