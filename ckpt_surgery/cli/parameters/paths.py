"""Paths of a command: its recipe, sources and destination, and the files that it may write beside them."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ckpt_surgery.cli.terminal.console import STDOUT, Terminal
from ckpt_surgery.core.errors import Code, Problem, UsageError
from ckpt_surgery.core.text import number_of, shown

RULES = "rules"
"""Name of the rules of `-e` in the context's `meta`."""


def given_recipe(recipe: str, rules: Sequence[str], set: Iterable[str], terminal: Terminal) -> Any:
    """The recipe, or that of `rules`, which is printed before it is checked. Raises RecipeError."""
    from ckpt_surgery.inputs.matching import recipe_of_rules
    from ckpt_surgery.inputs.request import read_recipe

    if not rules:
        return read_recipe(recipe, tuple(set))
    click.get_current_context().meta[RULES] = tuple(rules)
    text = recipe_of_rules(rules)
    terminal.show([*text.splitlines(), ""])
    return read_recipe(text, tuple(set))


def with_rule_inside_keys(problem: Problem, rules: Sequence[str]) -> Problem:
    """The problem; where a rule of `-e` matches no whole key, but parts of some, with the rule for parts."""
    from ckpt_surgery.inputs.matching import rule_inside_keys

    number = re.match(r"rules\[(\d+)\]\.match", "" if problem.place is None else problem.place.path)
    in_part = problem.code is Code.CLAIMS_NOTHING and "it matches only " in problem.message
    rule = rule_inside_keys(rules, int(number[1])) if number is not None and in_part else None
    if rule is None:
        return problem
    hint = f"A pattern has to match the whole key. To replace inside keys, add a g: -e {shlex.quote(rule)}"
    return replace(problem, hint=hint)


def source_names(recipe: Any, last: int | None) -> Sequence[str]:
    """Names of the sources that are given by paths; the `last` steps of a run are given by one path."""
    return recipe.recipe.sources if last is None else ("SRC",)


def split_paths(
    names: Sequence[str], paths: Sequence[str], *, needs_dst: bool = False
) -> tuple[tuple[str, ...], str | None]:
    """The sources among `paths`, and the destination, None where all paths are sources.

    `names` are the recipe's sources. Where they end with `*`, which takes any number of further sources, the
    last path is always the destination. Raises UsageError for too few or too many paths.
    """
    many = names[-1] == "*"
    least = len(names) - many
    if len(paths) == least + 1 or (many and len(paths) > least):
        return tuple(paths[:-1]), paths[-1]
    if len(paths) == least and not (many or needs_dst):
        return tuple(paths), None
    sources = f"{number_of(least, 'source')}{' or more' if many else ''}"
    listed = ", ".join([*map(shown, names[:least]), *(["…"] if many else [])])
    hint = "Give the paths of the sources in this order, then the directory or file to write."
    if len(paths) <= least:
        wanted = [*names[len(paths) : least], *(["DST"] if many or needs_dst else [])]
        wrong = f"missing: {', '.join(map(shown, wanted))}"
    else:
        wrong = f"too many: {', '.join(map(shown, paths[least + 1 :]))}"
        if any(one.startswith("@") or one.endswith((".yaml", ".yml")) for one in paths):
            hint = "With `-e` there is no RECIPE: all paths are sources, and the last one is the destination."
    raise UsageError(f"the recipe takes {sources} ({listed}) and one destination; {wrong}", hint=hint)


def check_json_name(document: str | None) -> None:
    """Refuse a file of `--json` whose name does not say so: it was meant as a path of the command."""
    if document is None or document == STDOUT or document.endswith(".json"):
        return
    path = Path(document)
    if path.is_file() or not path.exists():  # devices and pipes have names of their own
        raise UsageError(
            f"`--json {shown(document)}`: the name of a JSON document ends in `.json`",
            hint=f"For stdout write `--json -`, so that {shown(document)} is an argument of its own.",
        )


def refuse_several(given: Mapping[str, bool]) -> None:
    """Refuse options that exclude one another. `given`: each of them, and whether it was given."""
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise UsageError(f"{names[0]} and {names[1]} exclude each other", hint="Leave one of them out.")


def check_documents(
    documents: Sequence[str | None],
    recipe: Any,
    sources: tuple[str, ...],
    dst: str | None,
    options: Mapping[str, Any],
    page: str | None = None,
    overwrite: bool = False,
) -> None:
    """Refuse documents that would be written over one another, or over or into what a plan names.

    The first of them is that of `--json`. The `page` of a report may replace another one; anything else only
    to `overwrite` it. The other arguments are those of `api.plan`.
    """
    files = [document for document in (*documents, page) if document not in (None, STDOUT)]
    if files:
        from ckpt_surgery.inputs import output_files
        from ckpt_surgery.inputs.request import requested

        named = output_files.named_in(requested(recipe, sources, dst, options))
        output_files.check_documents(files, *named)
        if page is not None:
            output_files.check_kept(page, overwrite, output_files.PAGE)
    check_json_name(documents[0])


def check_document_beside(document: str | None, *checkpoints: str, **chosen: Any) -> None:
    """Refuse a document over or in one of the checkpoints, which are opened as is `chosen`."""
    if document not in (None, STDOUT):
        from ckpt_surgery.inputs import output_files

        read = [output_files.CheckpointPath(path, **chosen) for path in checkpoints]
        output_files.check_documents([document], read)
    check_json_name(document)
