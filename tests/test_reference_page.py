"""The reference is current, and speaks of everything."""

import re

from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions.lookups import ATTRIBUTES
from ckpt_surgery.language.expressions.naming import BUILT_IN, MEANINGS, function_names
from ckpt_surgery.language.schema.fields import (
    OutputPolicy,
    Param,
    Pass,
    Recipe,
    Rule,
    ShardingPolicy,
    TargetPolicy,
)
from tests.support.ci_scripts import ROOT, script

SCRIPT = script("reference")
PAGE = ROOT / "docs" / "reference.md"


def test_every_function_is_there_once_and_says_how_it_is_called() -> None:
    headings = re.findall(r"^#### (.*)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(function_names())
    for name, function in registry().items():
        assert (function.__doc__ or "").startswith(f"`{name}(")
        assert function.__module__.rpartition(".")[2] in SCRIPT.GROUPS
    assert all(text.startswith(f"`{name}(") for name, text in BUILT_IN.items())


def test_the_page_is_current_and_has_every_field() -> None:
    page = SCRIPT.reference()
    assert PAGE.read_text() == page, "run `make docs`"
    rows = re.findall(r"^\| `(\w+)` \|", page.partition("## Names")[0], re.MULTILINE)
    fields = [
        field.alias or name
        for model in (Recipe, Param, Pass, Rule, TargetPolicy, OutputPolicy, ShardingPolicy)
        for name, field in model.model_fields.items()
    ]
    assert rows == fields


def test_every_name_and_attribute_is_there() -> None:
    assert set(SCRIPT.NAMES) == {*MEANINGS, "target", "sources", "config", "configs", "hooks"}
    assert list(SCRIPT.ATTRIBUTES) == list(ATTRIBUTES)
