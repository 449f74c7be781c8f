"""`explain`: where a leaf comes from or goes to, and what the code of a problem means."""

from typing import Annotated, Unpack

import click
from click.core import ParameterSource

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_subject
from ckpt_surgery.cli.parameters.options import Argument, Full, JsonTo, Rules
from ckpt_surgery.cli.parameters.paths import check_documents, given_recipe
from ckpt_surgery.cli.terminal.console import Terminal, open_terminal
from ckpt_surgery.core.errors import Code, UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.inputs.options import ExplainOptions

EXAMPLES = {
    "explain recipe.yaml old params/new/kernel": "Where a leaf comes from, or what dropped it.",
    "explain recipe.yaml old params/new": "All leaves of a subtree.",
    "explain -e 's|params/old/(.*)|params/new/\\1|' old params/new/kernel": "Of a rule without a file.",
    "explain CS010": "What the problem CS010 is.",
}
TAKES = "`explain` takes RECIPE SRC... KEY, or the code of a problem"


@command("explain", EXAMPLES, "Say where a leaf comes from, or what a code means.")
def explain(
    ctx: click.Context,
    subjects: Annotated[
        tuple[str, ...],
        Argument("RECIPE SRC... KEY | CODE", complete=complete_subject, more={"nargs": -1, "required": True}),
    ],
    rules: Rules,
    json_to: JsonTo,
    full: Full,
    **options: Unpack[ExplainOptions],
) -> int:
    """Say where the leaf KEY of the result comes from: its sources, the rule, what its groups matched, the
    functions, and how its bytes are moved. Of a leaf of SRC, what becomes of it, and which rules nearly
    matched it. Of a subtree, all its leaves. Reads metadata only.

    With CODE alone, such as CS010, say what this problem is: why it is one, what to do, and an example.
    """
    if len(subjects) == 1 and not rules:
        given = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if given != ["subjects"] and subjects[0].upper() in set(Code):
            raise UsageError("a code is explained without options", hint=f"{TAKES}.")
        return _explain_code(subjects[0], open_terminal(ctx.find_root().obj))
    if len(subjects) < (2 if rules else 3):
        raise UsageError(f"{TAKES}; {'SRC' if rules else 'a path'} or KEY is missing")
    from ckpt_surgery.api import explaining
    from ckpt_surgery.cli.render.explanation import explanation_lines
    from ckpt_surgery.report.explanation import explain_document

    *paths, key = subjects
    recipe, sources = paths[0], tuple(paths if rules else paths[1:])
    terminal = open_terminal(ctx.find_root().obj, json_to)
    loaded = given_recipe(recipe, rules, options.pop("set", None) or (), terminal)
    check_documents([json_to], loaded, sources, None, options)
    explanation = explaining.explain(loaded, *sources, key=key, **options)
    terminal.show(explanation_lines(explanation, full=full, width=terminal.text.width))
    terminal.write(explain_document, explanation)
    return 0


def _explain_code(text: str, terminal: Terminal) -> int:
    from ckpt_surgery.report.problems import problem_sections

    if text.upper() not in set(Code):
        hint = f"Codes go from {min(Code)} to {max(Code)}. For a key, write `explain RECIPE SRC... KEY`."
        raise UsageError(f"not a code of a problem: `{shown(text)}`", hint=hint)
    section = problem_sections()[Code(text.upper())]
    terminal.show([((section.code, "bold"), f"  {section.title}")])
    for paragraph in section.paragraphs:
        if paragraph.is_code:
            terminal.show(["", *(f"    {line}" for line in paragraph.text.splitlines())])
        else:
            terminal.wrapped(["", paragraph.text])
    return 0
