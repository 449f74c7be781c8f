"""The HTML page of a plan: its data, what it escapes, and what a browser makes of it."""

import base64
import hashlib
import html
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.language.loading import ParamSource, ParamValue
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Costs, Dropped, Fate, Input, Plan, Step, Transfer
from ckpt_surgery.report.html import RecipeText, RuleLines, embedded, html_page, page_data
from ckpt_surgery.report.results import SharedFile
from ckpt_surgery.report.verification import VerifiedRun, Verify
from tests.support.browser import dom_of, needs_browser, texts
from tests.support.leaves import array_leaf

EVIL = "<script>document.title='owned'</script>"
CLOSING = "</script><img src=x onerror=\"document.title='owned'\"><!--<script>"
RULES = [RuleRef(f"rules[{i}]", 3 + 2 * i) for i in range(3)]
LINES = """\
version: 1
rules:
  - match: 'b/(.*)'
    to: 'a/b/${1}'
  - match: 'gone'
    optional: true
  - match: 'opt/.*'
    drop: true
""".splitlines()
RECIPE = RecipeText(LINES, [RuleLines(f"rules[{i}]", 3 + 2 * i, 4 + 2 * i, i == 1) for i in range(3)])


def step(leaf: Leaf, fate: Fate, *, read: Leaf | None = None, source: str = "source", **more: Any) -> Step:
    """`more`: further fields of the step; it is linked unless they say otherwise."""
    origin, more = read or leaf, {"rule": None, "transfer": Transfer.LINK, **more}
    return Step(leaf, Read(source, origin), fate, sources=((source, origin.key.text),), **more)


def plan_of(steps: list[Step], dropped: list[Dropped] = [], **more: Any) -> Plan:  # noqa: B006
    size, count = sum(one.leaf.nbytes for one in steps), len(steps) + len(dropped)
    given = {"inputs": (Input("source", "/ckpt/old", "orbax", count, "f"),), "warnings": (), **more}
    costs = Costs(size, size, 0, 0, 0, 1 << 20)
    return Plan("r.yaml", "ab12", steps=tuple(steps), dropped=tuple(dropped), costs=costs, **given)


def small() -> Plan:
    """A leaf that is kept, one that is renamed and cast, and one that is dropped."""
    old, new = array_leaf("b/w", (50, 16)), array_leaf("a/b/w", (50, 16), np.dtype(np.float16))
    return plan_of(
        [
            step(array_leaf("a/v", (4,)), Fate.KEPT),
            step(new, Fate.TRANSFORMED, read=old, rule=RULES[0], transfer=Transfer.COMPUTE),
        ],
        [Dropped("source", array_leaf("opt/mu", (50, 16)), RULES[2], "drop")],
    )


def hostile() -> Plan:
    """Whatever a checkpoint or a user may name, as markup."""
    rule = RuleRef("rules[0]", 3)
    leaf = array_leaf(f"{EVIL}/{CLOSING}", (1,))
    return plan_of(
        [step(leaf, Fate.RENAMED, read=array_leaf(f"old/{EVIL}", (1,)), rule=rule, source=EVIL)],
        [Dropped(EVIL, array_leaf(CLOSING, (1,)), rule, EVIL)],
        inputs=(Input(EVIL, CLOSING, EVIL, 2, "f", 1, CLOSING),),
        warnings=(EVIL, "\u202eodd\x1b[31m"),
        params=(ParamValue("p", CLOSING, ParamSource.SET, None, EVIL),),
    )


def data_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


# --- data -------------------------------------------------------------------------------------------------


def test_every_leaf_is_in_the_data_once_with_the_source_s_name_where_there_are_several() -> None:
    assert data_in(html_page(small(), RECIPE)) == {
        "fates": ["kept", "transformed", "dropped"],
        "rules": [["rules[0]", 3], ["rules[2]", 7]],
        "specs": ["f32[4]", "f16[50,16]", "f32[50,16]"],
        "transfers": ["linked", "computed"],
        "leaves": [
            ["a/v", 0, [], 0, 0, 16, [["a/v", 0]], ""],
            ["a/b/w", 1, [0], 1, 1, 1600, [["b/w", 2]], ""],
        ],
        "dropped": [["opt/mu", 2, [1], 2, None, 3200, [], "drop"]],
    }

    inputs = tuple(Input(name, f"/{name}", "orbax", 1, "f") for name in ("base", "lora"))
    renamed = step(array_leaf("w"), Fate.RENAMED, read=array_leaf("v"), source="lora")
    (leaf,) = page_data(plan_of([renamed], inputs=inputs))["leaves"]
    assert leaf[6] == [["lora:v", 0]]


def test_json_in_a_script_cannot_end_it() -> None:
    text = embedded({"key": CLOSING, "entity": "&lt;"})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"key": CLOSING, "entity": "&lt;"}


# --- the page ---------------------------------------------------------------------------------------------


LOADING = {"src", "href", "srcset", "action", "data"}
"""Attributes that name what is loaded from elsewhere."""


class Elements(HTMLParser):
    """The elements of a page with their attributes, as a browser's parser sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_nothing_of_a_checkpoint_becomes_markup() -> None:
    recipe = RecipeText([EVIL, CLOSING], [])
    ran = {"destination": EVIL, "seconds": 1.0, "verified": VerifiedRun(Verify.FAST, 1, 0)}
    shared = [SharedFile(EVIL, CLOSING, 1, "hardlink")]
    for page in (html_page(hostile(), recipe), html_page(hostile(), recipe, **ran, shared=shared)):
        elements = Elements(page).found
        assert [attributes for tag, attributes in elements if tag == "script"] == [
            {"type": "application/json", "id": "data"},
            {},
        ]
        assert "img" not in {tag for tag, _ in elements}
        assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]
        assert "\u202e" not in page
        assert "\x1b" not in page
        assert html.escape(EVIL) in page


def test_a_page_needs_nothing_from_elsewhere_and_only_its_script_may_run() -> None:
    page = html_page(small(), RECIPE)
    elements = Elements(page).found
    assert not {name for _, attributes in elements for name in attributes} & LOADING
    assert not re.search(r"https?:|url\(|@import|@font-face", page)
    (policy,) = (a["content"] for _, a in elements if a.get("http-equiv"))
    allowed = {}
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        allowed[tag] = f"'sha256-{digest}'"
    assert policy == (f"default-src 'none'; style-src {allowed['style']}; script-src {allowed['script']}")


def lines_of(page: str) -> list[tuple[str, bool, str, str]]:
    """Number, whether it is muted, leaves, and text of each line of the recipe."""
    found = re.findall(
        r'<span id="L(\d+)"( class="muted")?><i>\d+</i><b>(.*?)</b><code>(.*?)</code></span>', page
    )
    return [(number, bool(muted), count, html.unescape(text)) for number, muted, count, text in found]


def test_the_recipe_has_its_lines_and_what_they_decided() -> None:
    counts = {3: "1 leaf", 7: "1 leaf"}
    assert lines_of(html_page(small(), RECIPE)) == [
        (str(n), n in (5, 6), counts.get(n, ""), line) for n, line in enumerate(LINES, 1)
    ]
    # The leaves of a rule in an earlier pass may have been decided about again.
    page = html_page(small(), RecipeText(LINES, [RuleLines("passes[0].rules[0]", 3, 4, False)]))
    assert not any(muted for _, muted, _, _ in lines_of(page))
    assert "Muted" not in page
    assert "its file was removed" in html_page(small(), None)


def test_the_summary_has_the_numbers_of_the_run() -> None:
    plan = small()
    page = html_page(
        plan,
        RECIPE,
        destination="/new",
        seconds=1.5,
        verified=VerifiedRun(Verify.FAST, 2048, 0),
        shared=[SharedFile("d/1", "/ckpt/old/d/1", 512, "hardlink")],
    )
    cards = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    assert cards == [
        ("leaves", "3 → 2"),
        ("kept", "1"),
        ("transformed", "1"),
        ("dropped", "1"),
        ("size of the arrays", "1.58 KiB"),
        ("predicted memory", "1.00 MiB"),
        ("time", "1.50 s"),
        ("verified", "fast, 2.00 KiB read back"),
    ]
    cells = (("file", "d/1"), ("same file as", "/ckpt/old/d/1"), ("size", "512 B"))
    assert "<details><summary>Files shared with a source (1)</summary><table" in page
    assert "".join(f'<td data-label="{label}">{text}</td>' for label, text in cells) in page
    assert "<p>/ckpt/old → /new</p>" in page
    planned = html_page(plan, RECIPE)
    assert "<p>/ckpt/old, with r.yaml</p>" in planned
    assert "<dt>time</dt>" not in planned


# --- in a browser -----------------------------------------------------------------------------------------


def bars(page: str) -> list[tuple[str | None, list[tuple[str | None, float, float]]]]:
    """The label of each bar, and class, start and width of its parts."""
    pictures = [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page)]
    return [
        (
            one.get("aria-label"),
            [(r.get("class"), float(r.get("x", "")), float(r.get("width", ""))) for r in one.iter("rect")],
        )
        for one in pictures
    ]


def opened(tmp_path: Path, page: str, fragment: str = "") -> str:
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    return dom_of(tmp_path / "report.html", tmp_path / "profile", fragment=fragment)


@pytest.mark.slow("draws pages in a browser")
@needs_browser
def test_a_small_tree_is_open_and_has_a_row_for_each_leaf(tmp_path: Path) -> None:
    dom = opened(tmp_path, html_page(small(), RECIPE))
    assert re.findall(r'data-key="(.*?)"', dom) == ["a/b/w", "a/v", "opt/mu"]
    assert texts(dom, "spec") == ["f32[50,16] → f16[50,16]", "f32[4]", "f32[50,16]"]
    assert texts(dom, "chip [a-z]+") == ["transformed", "kept", "dropped"]
    assert texts(dom, "way") == ["computed", "linked", "drop"]
    assert texts(dom, "from") == ["← b/w"]
    assert re.findall(r'<a href="(#L\d+)">(.*?)</a>', dom) == [
        ("#L3", "rules[0], line 3"),
        ("#L7", "rules[2], line 7"),
    ]
    assert "3 leaves</p>" in dom
    assert bars(dom) == [
        (
            "everything: linked 16 B, computed 1.56 KiB, dropped 3.13 KiB",
            [("linked", 0, 3.32), ("computed", 3.32, 332.23), ("dropped", 335.55, 664.45)],
        ),
        ("opt/mu: dropped 3.13 KiB", [("dropped", 0, 1000)]),
        ("a/b/w: computed 1.56 KiB", [("computed", 0, 500)]),
        ("a/v: linked 16 B", [("linked", 0, 5)]),
    ]


@pytest.mark.slow("draws pages in a browser")
@needs_browser
def test_the_picture_opens_the_largest_subtrees_as_long_as_there_is_room(tmp_path: Path) -> None:
    """A key may be the beginning of others, and more subtrees than fit become one."""
    sizes = {f"params/a/{i}": 100 for i in range(3)} | {"params": 50, "params/b": 40}
    sizes |= {"opt.a": 20, "opt.b": 10} | {f"w{i}": 10 - i for i in range(11)}

    def pictured(sizes: dict[str, int], name: str) -> list[tuple[str, str]]:
        steps = [step(array_leaf(key, (size,)), Fate.KEPT) for key, size in sizes.items()]
        (tmp_path / name).mkdir()
        dom = opened(tmp_path / name, html_page(plan_of(steps), None))
        return re.findall(r"<tr><th>([^<]*)</th><td>.*?</td><td>(\d+)</td>", dom)

    alone = [(f"w{i}", "1") for i in range(8)]
    assert pictured(sizes, "many") == [
        *(("params/…", "4"), ("params", "1"), ("opt.…", "2"), *alone, ("(others)", "3")),
    ]
    few = {key: size for key, size in sizes.items() if "w" not in key}
    opened_all = [*(f"params/a/{i}" for i in range(3)), "params", "params/b", "opt.a", "opt.b"]
    assert pictured(few, "few") == [(key, "1") for key in opened_all]
    empty = opened(tmp_path, html_page(plan_of([step(array_leaf("w", (0,)), Fate.KEPT)]), None))
    assert bars(empty) == [("everything: no bytes", []), ("w: no bytes", [])]


@pytest.mark.slow("draws pages in a browser")
@needs_browser
@pytest.mark.parametrize(
    ("search", "keys"),
    [
        ("B/W", ["a/b/w"]),  # also in what a leaf was before
        ("f32[50 dropped", ["opt/mu"]),
        ("/^a\\/[bv]/", ["a/b/w", "a/v"]),
        ("/(/", []),  # no regular expression
        ("nothing", []),
    ],
)
def test_the_tree_is_searched(search: str, keys: list[str], tmp_path: Path) -> None:
    dom = opened(tmp_path, html_page(small(), RECIPE), f"#search={search}")
    assert re.findall(r'data-key="(.*?)"', dom) == keys
    assert f"{len(keys)} of 3 leaves</p>" in dom


@pytest.mark.slow("draws pages in a browser")
@needs_browser
def test_hostile_keys_run_nothing(tmp_path: Path) -> None:
    dom = opened(tmp_path, html_page(hostile(), RecipeText([EVIL, CLOSING], [])))
    assert "<title>r.yaml · ckpt-surgery</title>" in dom
    assert "<img" not in dom
    assert "".join(texts(dom, "name")).count(EVIL) == 1
    assert len(re.findall("<script", dom)) == 2


@needs_browser
@pytest.mark.slow("draws pages in a browser")
def test_rows_of_a_large_tree_are_made_when_they_are_opened(tmp_path: Path) -> None:
    keys = [f"params/layer_{i}/part_{j}" for i in range(5000) for j in range(9)]
    page = html_page(plan_of([step(array_leaf(key, (8, 8)), Fate.KEPT) for key in keys]), None)
    assert len(page) < 4_000_000
    dom = opened(tmp_path, page)
    assert "45,000 leaves</p>" in dom
    assert dom.count("<details") == 302  # the result, `params/`, and a first slice of layers
    assert "data-key" not in dom
    assert texts(dom, "more") == ["4,700 more rows"]
    found = opened(tmp_path, page, "#search=layer_4999/")
    assert found.count("data-key") == 9
