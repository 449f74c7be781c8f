"""Checks of a whole recipe that need no checkpoint: which fields, names and passes go together.

Fields that do not parse were removed from the recipe before (`broken`), so that all other problems are found
in the same run.
"""

import functools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.shardings import spec_flaw
from ckpt_surgery.language.checks.findings import Finding, Subject, empty_fields
from ckpt_surgery.language.checks.rules import RuleCheck
from ckpt_surgery.language.expressions.naming import name_problem
from ckpt_surgery.language.expressions.parsing import check
from ckpt_surgery.language.schema.fields import ANY_MORE, Pass, Recipe, ShardingPolicy
from ckpt_surgery.language.yaml.document import DocumentPath

_FURTHER = re.compile(r"source_([0-9]{1,9})")


def findings(
    recipe: Recipe, written: Mapping[str | int, Any], broken: Iterable[DocumentPath], with_hooks: bool = False
) -> list[Finding]:
    """All problems, in no particular order. `with_hooks`: the caller gives functions, which have no file."""
    subject = Subject(recipe, written, frozenset(broken), with_hooks)
    problems = [*_header(subject), *_names(subject)]
    for path, pass_ in recipe.placed_passes:
        problems += _pass(subject, path, pass_)
    return problems


def _header(subject: Subject) -> Iterator[Finding]:
    written = subject.written
    for name in ("rules", "mirror"):
        if "passes" in written and name in written:
            message = f"`{name}` must be inside one of the `passes` if there are any"
            yield Finding((name,), message, at_key=True)
    hooks = subject.recipe.hooks
    if hooks is not None and not re.fullmatch(r"[^./\\][^/\\]*\.py", hooks):
        message = f"hooks are a Python file beside the recipe, such as my_hooks.py, not {hooks!r}"
        yield Finding(("hooks",), message, code=Code.HOOKS)
    sources = subject.recipe.sources
    if not subject.recipe.named_sources:
        message = "a recipe needs at least one source with a name"
        yield Finding(("sources",), message, code=Code.UNKNOWN_SOURCE)
    if ANY_MORE in sources[:-1]:
        message = f"`{ANY_MORE}` stands for any number of further sources; it must come last"
        yield Finding(("sources", sources.index(ANY_MORE)), message, code=Code.UNKNOWN_SOURCE)
    for name, param in subject.recipe.params.items():
        if param.config and isinstance(param.default, tuple):
            message = "`config` can give text, a number, true or false, but this default is a list"
            yield Finding(("params", name, "config"), message, at_key=True, code=Code.PARAM)
    yield from _output(subject)
    yield from empty_fields(written, ())


def _output(subject: Subject) -> Iterator[Finding]:
    output, path = subject.recipe.output, ("output", "sharding")
    if output is None:
        return
    if output.structure_file and output.zarr != 2 and not subject.is_broken(("output", "zarr")):
        message = "a structure file is for versions of Orbax that only read zarr 2: add `zarr: 2`"
        yield Finding(("output", "structure_file"), message)
    policy = output.sharding
    if not isinstance(policy, ShardingPolicy) or subject.is_broken(path):
        return
    if not policy.mesh:
        message = "`sharding` needs a `mesh`: its axes with their lengths, such as {data: 2, model: 4}"
        yield Finding(path, message, code=Code.SHARDING)
        return
    for pattern, spec in policy.specs.items():
        if (flaw := spec_flaw(policy.mesh, spec)) is not None:
            yield Finding((*path, "specs", pattern.pattern), flaw, code=Code.SHARDING)


def _names(subject: Subject) -> Iterator[Finding]:
    """Names of sources, params and tables that are not allowed, or are taken already."""
    recipe = subject.recipe
    owners: dict[str, str] = {}
    several: list[tuple[str, str, DocumentPath, bool]] = [
        *(("source", name, ("sources", i), False) for i, name in enumerate(recipe.named_sources)),
        *(("param", name, ("params", name), True) for name in recipe.params),
        *(("table", name, ("tables", name), True) for name in recipe.tables),
    ]
    for kind, name, path, at_key in several:
        problem = name_problem(name, owners, subscripted=kind == "source")
        further = _FURTHER.fullmatch(name) if recipe.takes_more else None
        if problem is None and further is not None and int(further[1]) > len(recipe.named_sources):
            problem = f"`{name}` is the name of a further source; choose another name"
        if problem is not None:
            yield Finding(path, problem, at_key=at_key, code=Code.NAME)
        owners.setdefault(name, f"a {kind}")


def _pass(subject: Subject, path: DocumentPath, pass_: Pass) -> Iterator[Finding]:
    written: Any = functools.reduce(operator.getitem, path, subject.written)
    if path and isinstance(written, Mapping):
        yield from empty_fields(written, path)
    if pass_.when is not None:
        for error in check(pass_.when, subject.constants, subject.recipe.named_sources):
            yield Finding.of((*path, "when"), error)
    yield from _mirror(pass_, (*path, "mirror"))
    for index, rule in enumerate(pass_.rules):
        where = (*path, "rules", index)
        fields = functools.reduce(operator.getitem, ("rules", index), written)
        if isinstance(fields, Mapping) and where not in subject.broken:
            yield from RuleCheck(subject, pass_, where, rule, fields).findings()


def _mirror(pass_: Pass, path: DocumentPath) -> Iterator[Finding]:
    trees: list[tuple[DocumentPath, str, bool]] = [((*path, name), name, True) for name in pass_.mirror]
    for name, slots in pass_.mirror.items():
        trees += [((*path, name, i), slot, False) for i, slot in enumerate(slots)]
    for number, (where, tree, at_key) in enumerate(trees):
        message, below = "", f"{tree}{SEPARATOR}"
        for _, other, _ in trees[:number]:
            if below.startswith(f"{other}{SEPARATOR}") or other.startswith(below):
                message = f"`{tree}` and `{other}` overlap; mirrored trees must lie apart"
        if not all(tree.split(SEPARATOR)):
            message = f"a mirrored tree is given by its key, such as opt_state/0/mu, not {tree!r}"
        if message:
            yield Finding(where, message, at_key=at_key, code=Code.MIRROR)
