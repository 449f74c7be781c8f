"""`explain CODE` and `explain RECIPE SRC... KEY`."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ckpt_surgery.core.errors import Code
from ckpt_surgery.report.problems import problem_sections
from tests.support.command_line import run


@pytest.mark.parametrize("code", Code)
def test_a_code_is_explained_with_its_example(code: Code) -> None:
    done = run("explain", code, COLUMNS="80")
    section = problem_sections()[code]
    assert (done.exit_code, done.stderr) == (0, "")
    title, *texts = done.stdout.removesuffix("\n").split("\n\n")
    assert title == f"{code}  {section.title}"
    for text, paragraph in zip(texts, section.paragraphs, strict=True):
        lines = text.splitlines()
        if paragraph.is_code:
            assert lines == [f"    {line}" for line in paragraph.text.splitlines()]
        else:
            assert " ".join(line.strip() for line in lines) == paragraph.text
            assert max(map(len, lines)) <= 80


def test_a_code_takes_no_options_and_may_be_in_small_letters() -> None:
    done = run("explain", "CS010", "--full")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: a code is explained without options\n")
    assert run("explain", "cs010", "--no-color").stdout.startswith("CS010  Unknown field\n")


def test_a_key_needs_a_recipe_and_a_source() -> None:
    for arguments in (("r.yaml", "a.npz"), ("-e", "drop:a", "a.npz")):
        done = run("explain", *arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "`explain` takes RECIPE SRC... KEY, or the code of a problem; " in done.stderr


# --- keys -------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    tree = {f"l_{i}/w": np.ones((2, 3), np.float32) for i in range(9)}
    save_file(
        {**tree, "b": np.ones(4, np.float32), "lost/x": np.ones(2), "old/w": np.ones(2)}, "a.safetensors"
    )
    (tmp_path / "r.yaml").write_text(
        "version: 1\nunmatched: drop\nparams: {to: w}\nrules:\n  - match: 'l_(?P<n>.)/w'\n    to: ${to}\n"
        "    value: stack(xs)\n  - {match: b}\n  - {match: old/w, drop: true}\n"
        "  - {match: 'l_.*', optional: true}\n  - {match: lost, optional: true}\n"
    )
    return tmp_path


def explained(*arguments: str) -> list[str]:
    done = run("explain", "r.yaml", "a.safetensors", *arguments, COLUMNS="80")
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_leaf_of_the_result(here: Path) -> None:
    assert explained("w") == [
        "w",
        "",
        "result       transformed  f32[9,2,3], 216 B, copied",
        "made from    l_{0..8}/w  9 × f32[2,3]",
        "rule         rules[0]  r.yaml:5",
        "  5 |   - match: 'l_(?P<n>.)/w'",
        "  6 |     to: ${to}",
        "  7 |     value: stack(xs)",
        "  groups     n = 0, 1, 2, …, 8",
        "  value      stack(xs)",
        "steps        9 × f32[2,3] → stack: f32[9,2,3]",
    ]
    assert "  groups     n = 0, 1, 2, 3, 4, 5, 6, 7, 8" in explained("w", "--full")
    assert "             l_1/w  f32[2,3]" in explained("w", "--full")


def test_a_leaf_of_both_sides(here: Path) -> None:
    assert explained("b") == [
        "b",
        "",
        "result       kept  f32[4], 16 B, copied",
        "made from    b  f32[4]",
        "rule         rules[1]  r.yaml:8",
        "  8 |   - {match: b}",
        "",
        "source       f32[4], 16 B  in a.safetensors",
        "becomes      b",
        "rule         rules[1]  r.yaml:8",
        "  8 |   - {match: b}",
    ]


def test_leaves_that_are_dropped(here: Path) -> None:
    assert explained("lost/x") == [
        "lost/x",
        "",
        "source       f64[2], 16 B  in a.safetensors",
        "DROPPED      unmatched: drop",
        "  2 | unmatched: drop",
        "nearly       rules[4], line 11: lost",
        "             matches only its beginning, lost: a pattern has to match the whole",
        "             key",
    ]
    assert explained("old/w")[3:] == [
        "DROPPED      `drop: true`",
        "rule         rules[2]  r.yaml:9",
        "  9 |   - {match: old/w, drop: true}",
    ]
    # Rules that come too late:
    assert explained("l_3/w")[-3:] == [
        "not by       rules[3], line 10: l_.*",
        "             matches it too, but an earlier rule claims it: the first rule that",
        "             matches wins",
    ]


def test_a_subtree_is_folded_and_claims_no_more_than_it_has(here: Path) -> None:
    assert explained("old")[1:] == [
        "no leaf, but a subtree: 1 leaf DROPPED",
        "",
        "DROPPED      old/w                     f64[2]  rules[2], line 9",
    ]
    save_file({f"t/l_{i}/w": np.ones(2) for i in range(3)} | {"t/b": np.ones(2)}, here / "t.safetensors")
    (here / "t.yaml").write_text("version: 1\nrules: [{match: 't/(.*)', to: 'n/\\1'}]\n")
    assert run("explain", "t.yaml", "t.safetensors", "n/l_1").stdout.splitlines()[3:] == [
        "renamed      t/l_1/w → n/l_1/w         f64[2]  rules[0], line 2"
    ]
    assert run("explain", "t.yaml", "t.safetensors", "n").stdout.splitlines()[3:] == [
        "renamed      t/b → n/b                    f64[2]      rules[0], line 2",
        "renamed      t/l_{0..2}/w → n/l_{0..2}/w  3 × f64[2]  rules[0], line 2",
    ]


def test_a_value_of_the_target_and_rules_without_a_file(here: Path) -> None:
    save_file({"kept": np.ones(3), "b": np.ones(4, np.float32)}, here / "t.safetensors")
    (here / "t.yaml").write_text("version: 1\ntarget: {missing: fallback}\n")
    done = run("explain", "t.yaml", "a.safetensors", "kept", "--target", "t.safetensors")
    assert done.stdout.splitlines()[2:] == [
        "result       DEFAULTED  f64[3], 24 B, copied",
        "made from    target:kept  f64[3]",
        "rule         none: it is the target's own value",
    ]
    done = run("explain", "-e", "s|l_(.)/w|m/\\1|", "a.safetensors", "m/4")
    assert "  - {match: l_(.)/w, to: m/\\1}\n" in done.stdout
    assert "  groups     \\1 = 4\n" in done.stdout


def test_several_passes_and_sources(here: Path) -> None:
    (here / "p.yaml").write_text(
        "version: 1\nsources: [one, two]\npasses:\n  - name: mean\n    rules:\n"
        "      - match: 'l_(.)/w'\n        to: 'm/\\1'\n        value: (x + two[key]) / 2\n"
        "  - rules:\n      - {match: m/., to: m, value: stack(xs)}\n"
    )
    done = run("explain", "p.yaml", "a.safetensors", "a.safetensors", "m")
    assert done.stdout.splitlines()[2:] == [
        "result       transformed  f32[9,2,3], 216 B, computed",
        "made from    one:l_{0..8}/w  9 × f32[2,3]",
        "             two:l_{0..8}/w  9 × f32[2,3]",
        "rule         passes[0].rules[0] of the pass mean  p.yaml:6",
        "  6 |       - match: 'l_(.)/w'",
        "  7 |         to: 'm/\\1'",
        "  8 |         value: (x + two[key]) / 2",
        "  claims     one:l_{0..8}/w",
        "  looks up   two:l_{0..8}/w",
        "  groups     \\1 = 0, 1, 2, …, 8",
        "  value      (x + two[key]) / 2",
        "  makes      m/{0..8}",
        "rule         passes[1].rules[0]  p.yaml:10",
        "  10 |       - {match: m/., to: m, value: stack(xs)}",
        "  claims     one:m/{0..8}",
        "  value      stack(xs)",
        "  makes      m",
        "steps        18 × f32[2,3] → 9 × +: f32[2,3] → 9 × /: f32[2,3] → stack: f32[9,2,3]",
    ]
    done = run("explain", "p.yaml", "a.safetensors", "a.safetensors", "two:l_1/w")
    assert done.stdout.splitlines()[2:] == [
        "two          f32[2,3], 24 B  in a.safetensors",
        "becomes      m",
        "rule         none claims it: a `fill` rule or an expression reads it",
    ]


def test_json_is_all_that_is_on_stdout(here: Path) -> None:
    done = run("explain", "r.yaml", "a.safetensors", "w", "--json")
    assert done.stderr.startswith("w\n\nresult")
    made = json.loads(done.stdout)["made"]
    assert "let" not in made["stages"][0]
    assert made["stages"][0]["claims"][2] == {"source": "source:l_2/w", "bound": {"n": "2"}}
    assert made["operations"] == [{"name": "stack", "count": 1, "spec": "f32[9,2,3]"}]
    assert made["sources"][0] == {
        "source": "source:l_0/w",
        "components": ["l_0", "w"],
        "kind": "array",
        "shape": [2, 3],
        "dtype": "float32",
    }
    used = json.loads(run("explain", "r.yaml", "a.safetensors", "lost/x", "--json").stdout)["used"]
    assert (used[0]["why_dropped"], used[0]["attempts"][0]["outcome"]) == ("unmatched: drop", "beginning")
    subtree = json.loads(run("explain", "r.yaml", "a.safetensors", "old", "--json").stdout)
    assert (subtree["leaves"], [one["source"] for one in subtree["dropped"]]) == ([], ["source:old/w"])


def test_names_of_let_are_told_before_the_values(here: Path) -> None:
    rule = "{match: l_(.)/w, to: w, let: {s: stack(xs), t: s.T, u: x}, value: t}"
    (here / "let.yaml").write_text(f"version: 1\nrules: [{rule}]\nunmatched: drop\n")
    done = run("explain", "let.yaml", "a.safetensors", "w", "--json")
    (stage,) = json.loads(done.stdout)["made"]["stages"]
    assert (stage["let"], stage["values"]) == ({"s": "stack(xs)", "t": "s.T"}, ["t"])
    lines = [line.split() for line in done.stderr.splitlines()]
    at = lines.index(["let", "s", "stack(xs)"])
    assert lines[at + 1 : at + 3] == [["let", "t", "s.T"], ["value", "t"]]


def test_names_of_a_checkpoint_move_no_cursor(here: Path) -> None:
    save_file({"\x1b[31mb{0}": np.ones(2)}, here / "h.safetensors")
    (here / "h.yaml").write_text("version: 1\nrules: [{match: '(?s)(.*)', to: w}]\n")
    for key in ("w", "\x1b[31mb{0}"):
        done = run("explain", "h.yaml", "h.safetensors", key)
        assert done.exit_code == 0
        assert "\x1b" not in done.stdout
        assert "\\x1b[31mb" in done.stdout


def test_of_long_rules_and_lists_a_part_is_shown(here: Path) -> None:
    lines = "".join(f"      n/${{n}}/{c}: x + {i}\n" for i, c in enumerate("abcdefghijklmnop"))
    (here / "m.yaml").write_text(f"version: 1\nrules:\n  - match: 'l_(?P<n>.)/w'\n    to:\n{lines}")
    short = run("explain", "m.yaml", "a.safetensors", "l_1/w").stdout
    assert "  6 more lines (--full shows them)\n" in short
    assert "             and 10 more (--full lists them)\n" in short
    whole = run("explain", "m.yaml", "a.safetensors", "l_1/w", "--full").stdout
    assert "--full" not in whole
    assert "  20 |       n/${n}/p: x + 15\n" in whole
    assert "             n/1/p\n" in whole
