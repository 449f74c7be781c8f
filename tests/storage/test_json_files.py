"""JSON in files of a checkpoint: what is read, and every flaw with its path."""

import os
from pathlib import Path

import msgspec
import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.json_files import parse_object, read_form, read_json


class Form(msgspec.Struct):
    a: int
    b: str | None = None


def test_what_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (read_json, lambda path: read_form(path, Form)):
        with pytest.raises(SourceError, match="gone cannot be read: No such file"):
            read(str(tmp_path / "gone"))
        with pytest.raises(SourceError, match="pipe is not a regular file"):  # and it is not waited for
            read(str(tmp_path / "pipe"))


def test_a_form_has_types(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"a": 1, "other": [2]}')
    assert read_form(str(tmp_path / "x"), Form) == Form(1)
    (tmp_path / "x").write_text('{"a": "1"}')
    with pytest.raises(SourceError, match="x is malformed: Expected `int`, got `str`"):
        read_form(str(tmp_path / "x"), Form)


def test_a_form_takes_what_python_takes_for_json(tmp_path: Path) -> None:
    r"""Orbax writes with Python's `json`: NaN, and lone surrogates as `\ud800`."""
    (tmp_path / "x").write_text('{"a": 1, "b": "\\ud800", "c": NaN}')
    assert read_form(str(tmp_path / "x"), Form) == Form(1, "\ud800")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not valid JSON"),
        (b'{"a": 1', "not valid JSON"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b'{"\\ud800": 1}', "not valid JSON"),  # half of a surrogate pair
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "a JSON list where an object belongs"),
        (b'{"a": 1, "b": 2, "a": 1}', "the name `a` comes twice"),
        (b'{"x": [{"b": 1, "b": 2}]}', "the name `b` comes twice"),
        (b'{"x": NaN}', "NaN is not a number in JSON"),
        (b'{"x": 1e999}', "beyond what a float holds"),
    ],
)
def test_what_strict_readers_refuse(text: bytes, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        parse_object(text, strict=True)
