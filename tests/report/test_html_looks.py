"""The HTML page of a plan: its colours, and what fits on a phone."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.style import Style

from ckpt_surgery.cli.render.plan import STYLES
from ckpt_surgery.language.loading import ParamSource, ParamValue
from ckpt_surgery.planner.plan import Dropped, Fate, Input, Plan
from ckpt_surgery.report.html import ASSETS, html_page
from ckpt_surgery.report.plan_texts import LOUD
from ckpt_surgery.report.results import CompanionFile
from ckpt_surgery.report.verification import VerifiedRun, Verify
from tests.report.test_html import RECIPE, RULES, hostile, opened, plan_of, small, step
from tests.support.browser import needs_browser
from tests.support.ci_scripts import script
from tests.support.leaves import array_leaf

# --- colours ----------------------------------------------------------------------------------------------


def css_rule(style: str, selector: str) -> dict[str, str]:
    """The declarations of the rule that stands alone on a line."""
    (body,) = re.findall(rf"^{re.escape(selector)} {{ (.*?) }}$", style, re.MULTILINE)
    return dict(re.findall(r"([\w-]+): ([^;]+);", body))


@pytest.mark.parametrize("fate", STYLES)
def test_fates_look_as_they_do_on_the_terminal(fate: str) -> None:
    rule, style = css_rule((ASSETS / "page.css").read_text(), f".{fate}"), Style.parse(STYLES[fate])
    assert rule.get("color") == f"var(--{style.color.name if style.color else 'quiet'})"
    assert rule.get("font-weight") == ("bold" if style.bold else None)
    assert rule.get("text-transform") == ("uppercase" if fate in LOUD else None)


def test_the_colours_are_those_of_the_terminal_in_the_pictures() -> None:
    """Light ones, then dark ones, by the scheme that the browser prefers."""
    text = (ASSETS / "page.css").read_text()
    assert text.count("--red: #", text.index("(prefers-color-scheme: dark)")) == 1
    for number, name in enumerate(("red", "green", "yellow", "blue", "magenta", "cyan"), 1):
        colours = re.findall(rf"--{name}: #(\w+);", text)
        themes = [theme.colours.ansi_colors[number] for theme in script("pictures").THEMES]
        assert [tuple(bytes.fromhex(colour)) for colour in colours] == [tuple(c) for c in themes], name


# --- a phone ----------------------------------------------------------------------------------------------

MEASURE = """
<iframe width="390" height="844"></iframe><script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const inner = frame.contentDocument;
  const told = [...inner.querySelectorAll("main *, header *")].filter((one) =>
    !one.closest("pre, svg, noscript") && one.getClientRects().length
    && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim().length > 8));
  document.title = JSON.stringify({
    width: inner.documentElement.scrollWidth,
    narrow: told.filter((one) => one.getBoundingClientRect().width < 50).map((one) => one.textContent),
    outside: told.filter((one) => one.getBoundingClientRect().right > 390).map((one) => one.textContent),
    texts: told.length,
  });
};
frame.srcdoc = JSON.parse(document.getElementById("page").textContent);
</script>
"""
"""Shows a page in a frame as wide as a phone. Its title then says how wide the document is, and which texts
have columns of a few letters or leave the screen."""


def long() -> Plan:
    """Everything that comes from a user is longer than the screen is wide, and deep."""
    deep, gone = "/".join(f"part_{i}" for i in range(14)), array_leaf("x" * 300)
    old, new = (array_leaf(f"{deep}/{name}", (2,) * 40) for name in "vw")
    return plan_of(
        [
            step(array_leaf("params/" + "kernel" * 40, (4,)), Fate.DEFAULTED, rule=RULES[0]),
            step(new, Fate.RENAMED, read=old, rule=RULES[1]),
            step(array_leaf(f"{deep}/b", (2,)), Fate.KEPT),
        ],
        [Dropped("source", gone, RULES[2], "drop")],
        inputs=(Input("source", "/ckpt/" + "directory" * 30, "orbax", 4, "f", 10**12, "item" * 30),),
        warnings=("w" * 200,),
        params=(ParamValue("p" * 60, "v" * 300, ParamSource.SET, None, "n" * 100),),
    )


@pytest.mark.slow("draws pages in a browser")
@needs_browser
@pytest.mark.parametrize("plan", [small, long, hostile])
def test_a_phone_shows_the_page_without_scrolling_sideways(plan: Callable[[], Plan], tmp_path: Path) -> None:
    file = CompanionFile("d/" + "0" * 64, "/ckpt/" + "s" * 200, 512)
    ran = {"destination": "/new" * 60, "verified": VerifiedRun(Verify.FAST, 1, 0), "seconds": 1.5}
    page = html_page(plan(), RECIPE, shared=[file], companions=[file], **ran)
    framed = json.dumps(page.replace("<details>", "<details open>")).replace("<", r"\u003c")
    dom = opened(tmp_path, f'<script type="application/json" id="page">{framed}</script>{MEASURE}')
    (title,) = re.findall("<title>(.*?)</title>", dom)
    measured = json.loads(html.unescape(title))
    assert measured.pop("texts") > 15
    assert measured == {"width": 390, "narrow": [], "outside": []}
