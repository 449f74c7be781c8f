"""Checks of an expression of a recipe against the names that it can use."""

from collections.abc import Iterable, Iterator, Sequence

import regex

from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.language.expressions import Expression, check
from ckpt_surgery.language.findings import Finding
from ckpt_surgery.language.naming import MEANINGS
from ckpt_surgery.language.scope import ExpressionError
from ckpt_surgery.language.template_parsing import check_groups
from ckpt_surgery.language.yaml_document import DocumentPath


def explained_names(used: Iterable[str], known: frozenset[str]) -> tuple[frozenset[str], list[str]]:
    """The known names together with those that have a meaning elsewhere only, and a list of the latter.

    They get a message that says where they can be used.
    """
    strange = [name for name in used if name in MEANINGS and name not in known]
    return known | frozenset(strange), strange


def expression_findings(
    path: DocumentPath,
    expression: Expression,
    known: frozenset[str],
    pattern: regex.Pattern[str] | None,
    groups: bool = True,
    sources: Sequence[str] = (),
) -> Iterator[Finding]:
    known, explained = explained_names(expression.names, known)
    errors = check(expression, known, sources)
    if groups and "g" not in explained:
        errors += check_groups(expression, pattern)
    errors += [
        ExpressionError(MEANINGS[use.name], use.start, use.end, code=Code.UNKNOWN_NAME)
        for use in expression.name_uses
        if use.name in explained
    ]
    yield from (Finding.of(path, error) for error in errors)
