"""A plan, or a result, as one HTML page without network: all texts are escaped, other scripts barred."""

import base64
import hashlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import bytes_text, number_of, shown
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Plan, lineage, printed_origin
from ckpt_surgery.planner.plan_json import DROPPED, counts
from ckpt_surgery.planner.target import TARGET
from ckpt_surgery.report.leaves import describe
from ckpt_surgery.report.plan import leaves_before, named_key, replacement_text, why_of
from ckpt_surgery.report.plan_texts import WAYS
from ckpt_surgery.report.results import CompanionFile, SharedFile

ASSETS = Path(__file__).parent / "assets"
"""The page's template, style and script."""


@dataclass(frozen=True)
class RuleLines:
    """A rule in the text of a recipe."""

    path: str
    """`rules[3]`, as `RuleRef.path` has it."""
    first: int
    """Number of its first line; 1-based."""
    last: int
    may_claim_nothing: bool
    """Whether a plan can be made although the rule claims nothing."""


@dataclass(frozen=True)
class RecipeText:
    """A recipe as people wrote it."""

    lines: Sequence[str]
    rules: Sequence[RuleLines]


def html_page(plan: Plan, recipe: RecipeText | None, **ran: Any) -> str:
    """The page. `recipe`: None where its text is not known. `ran`: see `report.results.plan_document`."""
    style, script = (_asset(name) for name in ("page.css", "page.js"))
    done, sources = "destination" in ran, ", ".join(i.path for i in plan.inputs if i.name != TARGET)
    return Template(_asset("page.html")).substitute(
        title=_text(f"{ran['destination'] if done else plan.recipe} · ckpt-surgery"),
        heading="Report" if done else "Plan",
        about=_text(f"{sources} → {ran['destination']}" if done else f"{sources}, with {plan.recipe}"),
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}",
        style=style,
        script=script,
        summary="".join(_summary(plan, ran)),
        warnings="".join(_warnings(plan)),
        recipe="".join(_recipe(plan, recipe)),
        data=embedded(page_data(plan)),
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The name of an inline script or style in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _text(text: str) -> str:
    """A text of a checkpoint or a recipe, for any place between tags or quotes."""
    return escape(shown(text))


def _numbered() -> dict[Any, int]:
    """Values that occur many times, each once, and its number, which it gets where it is looked up."""
    return defaultdict(itertools.count().__next__)


def page_data(plan: Plan) -> dict[str, Any]:
    """Data that the page's script draws: every leaf, with numbers into lists of what is repeated.

    A leaf is [key, fate, [rule, …], spec, transfer or null, bytes, [[source, spec], …], why].
    """
    fates, rules, specs, transfers = (_numbered() for _ in range(4))
    several = len({i.name for i in plan.inputs} - {TARGET}) > 1

    def decided(fate: str, refs: Iterable[RuleRef | None], leaf: Leaf) -> list[Any]:
        numbers = [rules[ref.path, ref.line] for ref in refs if ref is not None]
        return [fates[fate], numbers, specs[describe(leaf)]]

    leaves, dropped = [], []
    for step in plan.steps:
        about = decided(step.fate.value, step.rules, step.leaf)
        way = transfers[WAYS[step.transfer]]
        origins: Mapping[tuple[str, str], Leaf] = lineage(step)
        described = {one: specs[describe(leaf)] for one, leaf in origins.items()}
        read = [
            [shown(named_key(one[0], printed_origin(*one, origins), several)), described.get(one)]
            for one in step.sources
        ]
        leaves.append([shown(step.leaf.key.printed), *about, way, step.leaf.nbytes, read, why_of(step)])
    for gone in plan.dropped:
        key = shown(named_key(gone.source, gone.leaf.key.printed, several))
        about = decided(DROPPED, [gone.rule], gone.leaf)
        dropped.append([key, *about, None, gone.leaf.nbytes, [], shown(gone.why)])
    return {
        "fates": list(fates),
        "rules": [[shown(path), line] for path, line in rules],
        "specs": list(map(shown, specs)),
        "transfers": list(transfers),
        "leaves": leaves,
        "dropped": dropped,
    }


def embedded(data: Mapping[str, Any]) -> str:
    """JSON for the inside of a `<script>`: nothing in it can end the element or begin a comment."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _summary(plan: Plan, ran: Mapping[str, Any]) -> Iterator[str]:
    cards = [("leaves", f"{leaves_before(plan):,} → {len(plan.steps):,}", "")]
    cards += [(fate, f"{count:,}", fate) for fate, count in counts(plan).items() if count]
    cards.append(("size of the arrays", bytes_text(plan.costs.bytes_out), ""))
    cards.append(("predicted memory", bytes_text(plan.costs.peak_memory), ""))
    if "seconds" in ran:
        cards.append(("time", f"{ran['seconds']:.2f} s", ""))
    if (verified := ran.get("verified")) is not None:
        cards.append(("verified", f"{verified.mode}, {bytes_text(verified.bytes_read)} read back", ""))
    yield '<dl class="cards">'
    for name, value, kind in cards:
        yield f'<div class="card {kind}"><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>'
    yield "</dl>"
    inputs = []
    for i in plan.inputs:
        chosen = [f"{name} {at}" for name, at in (("step", i.step), ("item", i.item)) if at is not None]
        inputs.append([i.name, i.path, i.format, ", ".join(chosen), f"{i.leaves:,}"])
    yield from _table(("source", "path", "format", "step and item", "leaves"), inputs)
    if plan.params:
        params = [[param.name, param.text, param.origin.value, param.note or ""] for param in plan.params]
        yield from _table(("param", "value", "from", "note"), params)
    beside = ran.get("companions")
    yield from _files("Config and tokenizer files copied beside the weights", "copy of", beside)
    yield from _files("Files shared with a source", "same file as", ran.get("shared"))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table each of whose cells names its column, which narrow screens show beside the cell."""
    yield '<table class="rows"><thead><tr>'
    yield "".join(f"<th>{_text(head)}</th>" for head in heads)
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = zip(heads, row, strict=True)
        labelled = (f'<td data-label="{_text(head)}">{_text(cell)}</td>' for head, cell in cells)
        yield f"<tr>{''.join(labelled)}</tr>"
    yield "</tbody></table>"


def _files(title: str, relation: str, files: Sequence[SharedFile | CompanionFile] | None) -> Iterator[str]:
    """A table of files, folded, as a checkpoint may have thousands."""
    if files:
        rows = ([file.file, file.source, bytes_text(file.size)] for file in files)
        yield f"<details><summary>{_text(title)} ({len(files):,})</summary>"
        yield from _table(("file", relation, "size"), rows)
        yield "</details>"


def _warnings(plan: Plan) -> Iterator[str]:
    replacement = replacement_text(plan.replaces)
    items = [] if replacement is None else [replacement]
    items += [f"DROPPED item {one.item}, {bytes_text(one.bytes)}: {one.why}" for one in plan.dropped_items]
    sections = {"items": ("Items and destination", items), "warnings": ("Warnings", plan.warnings)}
    for name, (title, lines) in sections.items():
        if lines:
            listed = "".join(f"<li>{_text(line)}</li>" for line in lines)
            yield f'<section id="{name}"><h2>{title}</h2><ul>{listed}</ul></section>'


def _recipe(plan: Plan, recipe: RecipeText | None) -> Iterator[str]:
    """The recipe with numbers of lines. Lines of rules that decided about no leaf are muted."""
    yield f"<p><code>{_text(plan.recipe)}</code> · sha256 {_text(plan.recipe_sha256)}</p>"
    if recipe is None:
        yield "<p>The plan has no recipe, or its file was removed or has changed.</p>"
        return
    decided = decided_by(plan)
    starts = {rule.first: rule for rule in recipe.rules}
    muted = {
        line
        for rule in recipe.rules
        if rule.may_claim_nothing and rule.path not in decided
        for line in range(rule.first, rule.last + 1)
    }
    if muted:
        yield "<p>Muted: rules that decided about no leaf.</p>"
    yield '<pre class="recipe">'
    for number, line in enumerate(recipe.lines, 1):
        count = decided[starts[number].path] if number in starts else 0
        leaves = number_of(count, "leaf") if count else ""
        kind = ' class="muted"' if number in muted else ""
        yield f'<span id="L{number}"{kind}><i>{number}</i><b>{leaves}</b><code>{_text(line)}</code></span>'
    yield "</pre>"


def decided_by(plan: Plan) -> Counter[str]:
    """Number of leaves, also dropped ones, that each rule claimed on their way, in any pass, by its path."""
    claimed = itertools.chain((step.claimed_by for step in plan.steps), (gone.rules for gone in plan.dropped))
    return Counter(rule.path for rules in claimed for rule in rules)
