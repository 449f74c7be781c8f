"""The reference of the recipe language, docs/reference.md: `make docs` writes what this prints.

Fields come from the models, functions from their docstrings, limits from their constants.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.functions import contractions, indexing, operators, text
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.checks import recipe as checks
from ckpt_surgery.language.expressions import compiler, naming, regexes, scope
from ckpt_surgery.language.expressions import parsing as expressions
from ckpt_surgery.language.schema.fields import schema
from ckpt_surgery.language.yaml import parsing as documents

HEAD = """\
# Reference of the recipe language

Generated from the code by `make docs`; a test checks that it is current. [The recipe language](recipe.md)
introduces the language with examples."""

SECTIONS: Sequence[tuple[str, str | None]] = (
    ("The recipe", None),
    ("A param", "Param"),
    ("A pass", "Pass"),
    ("A rule", "Rule"),
    ("`target`", "TargetPolicy"),
    ("`output`", "OutputPolicy"),
    ("`sharding` of `output`", "ShardingPolicy"),
)
"""Heading, and the model whose fields the section lists; None stands for the recipe itself."""

NAMES: Mapping[str, str] = {
    "x": "the value of the leaf that a `match` or `fill` rule claims",
    "xs": "in the values of a `match` rule: the list of the leaves that share one name, in the order of `by`",
    "key": "the key of the claimed leaf, as text; in the value of an `add` rule, the key of the new leaf",
    "g": "`g[1]`, `g['name']`: the groups of the match, as text; `''` for a group that did not take part",
    "target": "the leaves of the target: `target['a/b']`",
    "sources": "the names of all sources, a list of text: `len(sources)`",
    "config": "the JSON beside the first source: the config file of a model or an adapter, or else the "
    "custom metadata of the checkpoint: `config['rope_scaling']['rope_type']`; `None` where an entry is null",
    "configs": "the same for any source, `configs['lora']['r']`",
    "hooks": "the recipe's own Python functions, `hooks.name(x)`: see [Hooks](hooks.md)",
}
"""Names with a meaning of their own. No source, param, table, group or variable can have one of them."""

OTHER_NAMES = (
    "Further names are those that the recipe gives: named groups of the match (text), variables of `for`, "
    "entries of `let`, params, tables (`table[key]`) and sources (`source['a/b']`)."
)

ATTRIBUTES: Mapping[str, str] = {
    "T": "the array with its axes reversed",
    "shape": "its lengths, a list of integers",
    "dtype": "the name of its type, text: `'bfloat16'`",
    "ndim": "how many axes it has",
    "size": "how many elements it has",
}

SYNTAX = """\
Expressions are Python's, restricted to names, numbers, text (raw and f-strings too), `True`, `False`, `None`,
lists and tuples, arithmetic, comparisons, `in`, `and`, `or`, `not`, `a if c else b`, subscripts and slices,
the attributes below, and calls of the functions below. A `FunctionError` is found while planning. A
`DataError` depends on the values of arrays: it ends the run, and nothing is published."""

OPERATORS: Sequence[tuple[str, object]] = (
    ("Subscripts", indexing.Index),
    ("Two operands", operators.Binary),
    ("Matrix product", contractions.matmul),
    ("One operand", operators.Unary),
)

GROUPS: Mapping[str, str] = {
    "layout": "Layout",
    "indexing": "Elements by their places",
    "joining": "Lists of arrays",
    "dtypes": "Types",
    "nonfinite": "NaN and infinity",
    "operators": "Arithmetic and comparisons",
    "reductions": "Reductions",
    "resizing": "Sizes",
    "contractions": "Products",
    "create": "New arrays",
    "masks": "Masks and order",
    "quantization": "Quantization",
    "text": "Names and conditions",
}
"""Heading of each module of functions, in the order of the page."""

LIMITS: Sequence[tuple[str, str]] = (
    ("size of a recipe", f"{documents.MAX_BYTES >> 20} MiB"),
    ("nesting of a recipe", f"{documents.MAX_DEPTH} levels"),
    ("an expression", f"{expressions.MAX_TEXT} characters, nested {compiler.MAX_DEPTH} levels deep"),
    (
        "the entries of a `let`",
        f"{checks.MAX_LET_TEXT} characters together, nested {checks.MAX_LET_DEPTH} levels deep, "
        "with the entries that they use written out",
    ),
    ("an integer that is computed", f"{scope.MAX_BITS} bits"),
    ("a text that is computed", f"{scope.MAX_STRING} characters"),
    ("a list", f"{scope.MAX_LIST} values"),
    ("`range`", f"{text.LONGEST_RANGE} numbers"),
    ("a regular expression", f"{regexes.MAX_PATTERN} characters"),
    (
        "matching it",
        f"{regexes.REGEX_SECONDS:g} s, and {regexes.SECONDS_PER_MATCH * 1e3:g} ms for each match",
    ),
)


def reference() -> str:
    """The page, as Markdown."""
    parts = [HEAD, "## Fields", *_fields(), "## Names in expressions", *_names(), "## Expressions", SYNTAX]
    parts += [_table(("attribute", "of an array"), [(f"`.{a}`", text) for a, text in ATTRIBUTES.items()])]
    for heading, cls in OPERATORS:
        parts += [f"### {heading}", _documented(cls)]
    parts += ["## Functions", *_functions(), "## Limits", _table(("of", "at most"), LIMITS)]
    return "\n\n".join(parts) + "\n"


def _fields() -> Iterator[str]:
    whole = schema()
    for heading, model in SECTIONS:
        fields = (whole if model is None else whole["$defs"][model])["properties"]
        rows = [(f"`{name}`", _value(f), _on_one_line(f["description"])) for name, f in fields.items()]
        yield f"### {heading}"
        yield _table(("field", "value", "meaning"), rows)


def _value(field: Mapping[str, Any]) -> str:
    """The values that a field takes, from its JSON Schema."""
    options = field.get("oneOf") or field.get("anyOf")
    if options:
        return " or ".join(_value(option) for option in options)
    if "$ref" in field:
        return "mapping"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        default = field.get("default")
        return " or ".join(f"`{v}`" + (" (default)" if v == default else "") for v in field["enum"])
    if field.get("format") == "regex":
        return "regular expression"
    return _TYPES[str(field["type"])]


_TYPES = {
    "string": "text",
    "number": "number",
    "object": "mapping",
    "array": "list",
    "boolean": "`true` or `false`",
}


def _names() -> Iterator[str]:
    yield _table(("name", "stands for"), [(f"`{name}`", text) for name, text in NAMES.items()])
    yield OTHER_NAMES


def _functions() -> Iterator[str]:
    for module, heading in GROUPS.items():
        yield f"### {heading}"
        for name, function in _of_module(module):
            yield f"#### {name}"
            yield _documented(function)
        if module == "text":
            for name, text in naming.BUILT_IN.items():
                yield f"#### {name}"
                yield text


def _of_module(module: str) -> list[tuple[str, Any]]:
    """The functions of a module by name. Functions of other packages are not part of the page."""
    whole = f"ckpt_surgery.functions.{module}"
    return [(name, f) for name, f in sorted(registry().items()) if f.__module__ == whole]


def _documented(value: Any) -> str:
    """A docstring as Markdown: lines of a paragraph joined, lists left as they are."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(p if p.startswith("- ") else _on_one_line(p) for p in paragraphs)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(reference())
