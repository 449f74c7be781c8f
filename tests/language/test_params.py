"""Values of params: from the caller, the config, or the default."""

from typing import Any

import pytest

from ckpt_surgery.core.errors import FunctionError, UsageError
from ckpt_surgery.language.expressions.configs import Config, Layer
from ckpt_surgery.language.params import ParamSource, ParamValue, overridden, resolved, unsaid
from ckpt_surgery.language.schema.fields import Param

CONFIG = Config(
    "config", "there is no config", lambda: (Layer("config.json", {"n": 4, "name": "a", "b": {"c": 2}}),)
)


def param(default: Any, *paths: str) -> Param:
    return Param.model_construct(default=default, config=paths)


def test_the_caller_wins_then_the_config_then_the_default() -> None:
    asked = param(1, "x/y", "n")
    assert resolved("p", asked, {"p": 7}, CONFIG) == ParamValue("p", 7, ParamSource.SET)
    assert resolved("p", asked, {}, CONFIG) == ParamValue("p", 4, ParamSource.CONFIG, "n", "config.json")
    assert resolved("p", param(1, "b/c"), {}, CONFIG).value == 2
    assert resolved("p", param(1), {}, CONFIG) == ParamValue("p", 1, ParamSource.DEFAULT)
    missing = resolved("p", param(1, "m"), {}, CONFIG)
    assert (missing.value, missing.note) == (1, "config.json has no `m`")


def test_a_config_gives_values_of_the_defaults_type() -> None:
    assert resolved("p", param(0.5, "n"), {}, CONFIG).value == 4.0
    for default, words in [(True, "true or false"), ("text", "text"), (0.5, "a number")]:
        path = "n" if default != 0.5 else "name"
        with pytest.raises(FunctionError, match=f"`{path}` in config.json is .*, not {words}"):
            resolved("p", param(default, path), {}, CONFIG)


def test_defaults_are_grouped_by_their_reason() -> None:
    values = [
        ParamValue("a", True, ParamSource.DEFAULT, note="there is no config"),
        ParamValue("b", (1, "x"), ParamSource.DEFAULT, note="there is no config"),
        ParamValue("c", 1, ParamSource.DEFAULT),
        ParamValue("d", 1, ParamSource.SET),
    ]
    assert unsaid(values) == ["by default a=true, b=[1, x]: there is no config"]
    values.append(ParamValue("e", 2, ParamSource.DEFAULT, note="config.json has no `e`"))
    assert unsaid(values) == [
        "by default a=true, b=[1, x] (there is no config), e=2 (config.json has no `e`)"
    ]


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (1, "-7", -7),
        (0.5, "1e-3", 0.001),
        ("a", "", ""),
        (0.5, "7", 7.0),
        (True, "false", False),
        ("a", "7", "7"),
        ((1,), "[1, a]", (1, "a")),
        (("a", "b"), "[c]", ("c",)),
        (("a", "b"), "c*", ("c*",)),
    ],
)
def test_overrides_have_the_type_of_the_default(default: Any, text: str, value: Any) -> None:
    found = overridden({"p": param(default)}, [f"p={text}"])["p"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("p", "`p` is not of the form NAME=VALUE"),
        ("q=1", "unknown param `q`; the recipe has p, list, texts, flag"),
        ("p=1.5", "`p` has to be an integer, not '1.5'"),
        *((f"p={text}", f"`p` has to be an integer, not '{text}'") for text in ("", "[1", "true", "010")),
        *((f"flag={text}", f"`flag` has to be true or false, not '{text}'") for text in ("yes", "1")),
        ("list=1", "`list` has to be a list such as [1, 2], not '1'"),
        ("texts=[a", "`texts` has to be a list such as [1, 2], not '[a'"),
        ("list=[[1]]", "`list` has to be a list such as [1, 2], not '[[1]]'"),
    ],
)
def test_wrong_overrides(override: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        params = {"p": param(1), "list": param((1,)), "texts": param(("a",)), "flag": param(True)}
        overridden(params, [override])
    assert [problem.message for problem in caught.value.problems] == [message]
