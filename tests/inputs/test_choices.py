"""What there is to choose from."""

import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.formats.known import formats
from ckpt_surgery.inputs import choices


def test_formats() -> None:
    readable, writable = choices.readable_formats(), choices.writable_formats()
    assert readable == list(formats())
    assert set(readable) - set(writable) == {"dcp", "gguf", "npy", "t5x", "tensorflow", "torch"}


def test_every_recipe_has_a_purpose_and_a_text() -> None:
    found = dict(choices.recipes())
    assert "@cast" in found
    for name, purpose in found.items():
        assert choices.recipe_text(name).splitlines()[0] == f"# {purpose}"
        assert (choices.recipes_directory() / f"{name[1:]}.yaml").is_file()
    assert choices.recipe_text("cast") == choices.recipe_text("@cast")


def test_a_recipe_that_there_is_not() -> None:
    with pytest.raises(UsageError, match=r"no recipe `@csat` comes with the package; did you mean `@cast`\?"):
        choices.recipe_text("csat")
