"""`lint --fix`: what is mended, and what is not."""

import json
import os
from pathlib import Path

import pytest

from ckpt_surgery.api.linting import mend_recipe, mended_text
from ckpt_surgery.core.errors import Code, UsageError
from tests.support.command_line import run


def rule(*lines: str) -> str:
    """A recipe of one rule; each line is a field."""
    return "version: 1\nrules:\n  - " + "\n    ".join(lines) + "\n"


MENDED = {
    "field of a rule": (("mtach: 'a/(.*)'", "drop: true"), ("match: 'a/(.*)'", "drop: true")),
    "field with a comment": (("match: a", "drpo: true  # two"), ("match: a", "drop: true  # two")),
    "functions": (("match: a", "value: tranpose(maen(x))"), ("match: a", "value: transpose(mean(x))")),
    "star": (("match: *.kernel", "drop: true"), ("match: '*.kernel'", "drop: true")),
    "brackets": (("match: [pq]/.*  # both", "drop: true"), ("match: '[pq]/.*'  # both", "drop: true")),
    "at sign": (("match: a", "to: @b"), ("match: a", "to: '@b'")),
    "percent": (("match: %a", "drop: true"), ("match: '%a'", "drop: true")),
    "quote inside": (("match: [p]it's", "drop: true"), ("match: '[p]it''s'", "drop: true")),
    "double quotes": (('match: "k\\d"', "drop: true"), ("match: 'k\\d'", "drop: true")),
    "yes where it can only be true": (("match: a", "drop: yes"), ("match: a", "drop: true")),
    "no where it can only be text": (("match: a", "to: no"), ("match: a", "to: 'no'")),
}
"""Fields of a rule before and after."""
VALUES = {
    "x * int(\\1)": "x * int(g[1])",
    "x * int(\\g<n>)": "x * int(n)",
    "'x * int(${n})'": "'x * int(n)'",
    "zeros((int(\\1),), 'float32')": "zeros((int(g[1]),), 'float32')",
    "x + source['b/\\1/c']  # its bias": "x + source[f'b/{g[1]}/c']  # its bias",
    'x + source["c/\\1/\\2"]': 'x + source[f"c/{g[1]}/{g[2]}"]',
}
"""Values with groups of the pattern before and after."""
PATTERN = "match: 'a(?P<n>.*)/(.)'"
MENDED |= {value: ((PATTERN, f"value: {value}"), (PATTERN, f"value: {VALUES[value]}")) for value in VALUES}


@pytest.mark.parametrize(("before", "after"), MENDED.values(), ids=MENDED)
def test_a_single_remedy_is_taken(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    assert mended_text(rule(*before), "r.yaml").after == rule(*after)


LEFT = {
    "no name is near": ("match: a", "frobnicate: 1"),
    "the field is there already": ("match: a", "mtach: b", "drop: true"),
    "a function like two others": ("match: a", "value: x * sqrrt(x)"),
    "a short name": ("match: a", "value: mn(x)"),
    "another number of arguments": ("match: a", "value: tranpose()"),
    "a name, not a function": ("match: 'a/(?P<name>.*)'", "to: '${nmae}'"),
    "a dtype": ("match: a", "value: cast(x, 'flaot32')"),
    "escapes of both kinds": ('match: "k\\d\\b"', "drop: true"),
    "a number as a group": ("match: 'a(.*)'", "value: x * ${1}"),
    "a group inside a text": ("match: 'a(.*)'", "value: x * + lora['r/\\1'] *"),
    "brackets that do not close": ("match: a", "value: [x, 1"),
    "a group that there is not": ("match: a", "value: x + source['b/\\1']"),
    "a group in a template": ("match: 'a(.*)'", "to: 'b/\\1'"),
    "nothing is wrong": ("match: a", "drop: true"),
}


@pytest.mark.parametrize("fields", LEFT.values(), ids=LEFT)
def test_what_has_no_certain_remedy_stays(fields: tuple[str, ...]) -> None:
    text = rule(*fields)
    assert mended_text(text, "r.yaml").after == text


def test_what_a_mistake_hid_is_mended_too() -> None:
    text = "version: 1\nrulse:\n  - match: [a]b\n    vlaue: tranpose(x)\n"
    mended = mended_text(text, "r.yaml")
    assert mended.after == "version: 1\nrules:\n  - match: '[a]b'\n    value: transpose(x)\n"
    assert mended.problems == ()


def test_a_field_is_mended_though_what_it_holds_contradicts_itself() -> None:
    text = "version: 1\npases:\n- rules:\n  - {match: a, to: b, drop: true}\n"
    mended = mended_text(text, "r.yaml")
    assert mended.after == text.replace("pases", "passes")
    assert [problem.code for problem in mended.problems] == [Code.FIELDS_DISAGREE]


def test_the_file_is_rewritten_and_nothing_else_in_it(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    text = "\ufeff# mine\r\nversion: 1\r\n\r\nrules:   # all\r\n  - {mtach: 'ä',  drop: true}\r\n"
    path.write_bytes(text.encode())
    path.chmod(0o640)
    mend_recipe(path)
    assert path.read_bytes() == text.replace("mtach", "match").encode()
    assert path.stat().st_mode & 0o777 == 0o640
    os.utime(path, (1, 1))
    mend_recipe(path)  # where there is nothing to mend
    assert path.stat().st_mtime == 1


def test_the_command_prints_a_diff_and_what_is_left(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(rule("mtach: a", "drop: true"))
    bad.write_text(rule("mtach: a", "frobnicate: 1"))
    assert run("lint", good).exit_code == 2
    assert good.read_text() == rule("mtach: a", "drop: true")
    done = run("lint", "--fix", good)
    assert done.exit_code == 0
    assert "-  - mtach: a\n+  - match: a\n" in done.stdout
    done = run("lint", "--fix", good, bad, "--format", "json")
    assert done.exit_code == 2
    problems = json.loads(done.stdout)["error"]["problems"]
    assert [problem["line"] for problem in problems] == [4]
    assert "+  - match: a" in done.stderr
    assert bad.read_text() == rule("match: a", "frobnicate: 1")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes(b"\xff\xfe")
    for name in (tmp_path / "r.yaml", tmp_path / "none.yaml"):
        assert run("lint", "--fix", name).exit_code == 2
    with pytest.raises(UsageError):
        mend_recipe("@stack-layers")
