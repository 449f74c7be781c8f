"""The public errors: every one that reaches a user, by two paths, and as IPython shows it."""

import importlib
import pkgutil
import traceback
from collections.abc import Iterator

import pytest

import ckpt_surgery
from ckpt_surgery import errors
from ckpt_surgery.errors import Problem, SurgeryError, UsageError

INSIDE = {
    "ConditionFailed",
    "ExpressionError",
    "LetError",
    "PatternError",
    "TemplateError",
}
"""Errors that become others before they reach a user: of a bucket's conditions, of parts of recipes."""


def kinds(base: type[SurgeryError] = SurgeryError) -> Iterator[type[SurgeryError]]:
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


def test_no_error_is_forgotten() -> None:
    for module in pkgutil.walk_packages(ckpt_surgery.__path__, "ckpt_surgery."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {kind.__name__ for kind in kinds() if kind.__module__.startswith("ckpt_surgery.")}
    public = {name for name in errors.__all__ if name not in ("Code", "Place", "Problem")}
    assert ours - INSIDE == public
    assert ours >= INSIDE
    assert public <= set(ckpt_surgery.__all__)
    assert all(getattr(ckpt_surgery, name) is getattr(errors, name) for name in public)


def test_ipython_shows_the_message_and_notes_alone() -> None:
    """IPython prints what `_render_traceback_` returns, if there is one, and keeps the traceback."""
    with pytest.raises(UsageError) as raised:
        ckpt_surgery.plan({"version": 1, "rulez": []}, "x", step=1, shard_size="much")
    lines = raised.value._render_traceback_()
    assert "\n".join(lines) == str(raised.value)
    assert all("\n" not in line for line in lines)
    assert len(traceback.extract_tb(raised.value.__traceback__)) > 2  # where `%debug` begins
    error = SurgeryError("one", Problem("two", hint="Do it."))
    error.add_note("and this")
    assert error._render_traceback_() == ["one", "", "two", "  Do it.", "and this"]
