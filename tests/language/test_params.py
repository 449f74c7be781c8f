"""Values of params: from the caller, the config, or the default."""

from typing import Any

import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.language.loading import ParamSource, ParamValue, overridden, unsaid
from ckpt_surgery.language.schema.fields import Param


def param(default: Any, *paths: str) -> Param:
    return Param.model_construct(default=default, config=paths)


def test_defaults_are_grouped_by_their_reason() -> None:
    values = [
        ParamValue("a", True, ParamSource.DEFAULT, note="there is no config"),
        ParamValue("b", (1, "x"), ParamSource.DEFAULT, note="there is no config"),
        ParamValue("c", 1, ParamSource.DEFAULT),
        ParamValue("d", 1, ParamSource.SET),
    ]
    assert unsaid(values) == ["by default a=true, b=[1, x] (there is no config)"]
    values.append(ParamValue("e", 2, ParamSource.DEFAULT, note="config.json has no `e`"))
    assert unsaid(values) == [
        "by default a=true, b=[1, x] (there is no config), e=2 (config.json has no `e`)"
    ]


def test_overrides_have_the_type_of_the_default() -> None:
    for default, text, value in (
        (1, "-7", -7),
        (0.5, "1e-3", 0.001),
        ("a", "", ""),
        (0.5, "7", 7.0),
        (True, "false", False),
        ("a", "7", "7"),
        ("a", "b=c", "b=c"),
        ((1,), "[1, a]", (1, "a")),
        (("a", "b"), "[c]", ("c",)),
        (("a", "b"), "c*", ("c*",)),
    ):
        found = overridden({"p": param(default)}, [f"p={text}"])["p"]
        assert (found, type(found)) == (value, type(value))


def test_wrong_overrides() -> None:
    for override, message in (
        ("p", "`p` is not of the form NAME=VALUE"),
        ("q=1", "unknown param `q`; the recipe has p, list, texts, flag"),
        ("p=1.5", "`p` has to be an integer, not '1.5'"),
        *((f"p={text}", f"`p` has to be an integer, not '{text}'") for text in ("", "[1", "true", "010")),
        *((f"flag={text}", f"`flag` has to be true or false, not '{text}'") for text in ("yes", "1")),
        ("list=1", "`list` has to be a list such as [1, 2], not '1'"),
        ("texts=[a", "`texts` has to be a list such as [1, 2], not '[a'"),
        ("list=[[1]]", "`list` has to be a list such as [1, 2], not '[[1]]'"),
    ):
        with pytest.raises(UsageError) as caught:
            params = {"p": param(1), "list": param((1,)), "texts": param(("a",)), "flag": param(True)}
            overridden(params, [override])
        assert [problem.message for problem in caught.value.problems] == [message]
