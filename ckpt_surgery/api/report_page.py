"""The HTML page of a plan or a result, with the text of its recipe: `--report`."""

import contextlib
import functools
import hashlib
import operator
import re
from typing import Any

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.language.files import read_text
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.packaged import recipe_path
from ckpt_surgery.language.yaml.document import DocumentPath, YamlDocument, path_text
from ckpt_surgery.language.yaml.parsing import parse_document
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.report.html import RecipeText, RuleLines, html_page


def report_page(plan: Plan, recipe: LoadedRecipe | None, **ran: Any) -> str:
    """Render the page of a plan with its recipe, if it has one; `ran`: what `apply` adds to the document."""
    document = None if recipe is None else recipe.document
    if recipe is None:  # it is read again, unless it is missing or has changed
        with contextlib.suppress(SurgeryError):
            text = read_text(recipe_path(plan.recipe))
            if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() == plan.recipe_sha256:
                document = parse_document(text, plan.recipe)
    return html_page(plan, None if document is None else recipe_text(document), **ran)


def recipe_text(document: YamlDocument) -> RecipeText:
    """The text of a recipe, and the lines of its rules."""
    rules: list[DocumentPath] = [("rules", i) for i, _ in enumerate(document.value.get("rules") or ())]
    for number, entry in enumerate(document.value.get("passes") or ()):
        rules += [("passes", number, "rules", i) for i, _ in enumerate(entry.get("rules") or ())]
    stops: dict[DocumentPath, int] = {}
    for path, mark in document.marks.items():
        if path[:1] in (("rules",), ("passes",)) and mark.style is not None:  # a scalar, which ends itself
            rule = path[:2] if path[0] == "rules" else path[:4]
            stops[rule] = max(stops.get(rule, 0), mark.stop)
    lines = re.split(r"\r\n|\n|\r", document.text.rstrip())
    return RecipeText(lines, [_lines(document, path, stops.get(path, 0)) for path in rules])


def _lines(document: YamlDocument, path: DocumentPath, stop: int) -> RuleLines:
    """Lines of a rule: from its first line to that of its last value, which ends at `stop`."""
    rule: Any = functools.reduce(operator.getitem, path, document.value)
    passes = document.value.get("passes")
    may = bool(rule.get("optional")) or (passes is not None and passes[path[1]].get("when") is not None)
    first, end = document.line(document.marks[path].start), len(document.text[:stop].rstrip())
    return RuleLines(path_text(path), first, max(first, document.line(end - 1)), may)
