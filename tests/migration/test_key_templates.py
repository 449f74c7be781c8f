"""Which keys of transforms match one text alone."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.language.expressions.regexes import compile_pattern
from ckpt_surgery.language.expressions.scope import Scope, TemplateError
from ckpt_surgery.language.patterns.templates import parse_template
from ckpt_surgery.migration.key_templates import literal, template_of
from tests.support.effort import examples


def test_literal_keys() -> None:
    for pattern, text in (
        *(("a", "a"), ("a/b_1", "a/b_1"), (r"a\.b", "a.b"), (r"a\\", "a\\"), (r"\*", "*"), ("a-b", "a-b")),
        *((r, None) for r in (r"a.b", r"\d", r"(a)", "a|b", "a?", "a*", "a{2}", "[a]", "a$", r"\\.", r"\n")),
    ):
        assert literal(pattern) == text


@given(st.text([*string.printable, "é", "\udc80"], max_size=8))
def test_escaped_text_is_literal(text: str) -> None:
    assert literal(re.escape(text)) == text


PATTERN, KEY = r"(?P<n>x)(y)?(\d)()()()()()()(\d)(.*)", "x71/rest"
PIECES = [
    *r"ab/\$[]{}0123.",
    *(r"\1", r"\11", r"\g<0>", r"\g<n>", r"\g<10>", "${x}", r"\\", r"\.", r"\t", r"\101", "[0]", "/[0]/"),
]


def expanded(text: str) -> str:
    template = parse_template(template_of(text, PATTERN, "it"))
    components = template.expand(compile_pattern(PATTERN).fullmatch(KEY), Scope({}))
    return "/".join(component.name for component in components)


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join))
@examples(200)
def test_templates_are_what_python_expands(text: str) -> None:
    """Where Python gives a key whose parts all have names; others are refused, here or with their key."""
    try:
        expected = re.fullmatch(PATTERN, KEY).expand(text)  # type: ignore[union-attr]
    except (re.error, IndexError):
        expected = ""
    if "" in expected.split("/"):
        with pytest.raises((UsageError, TemplateError)):
            expanded(text)
    else:
        assert expanded(text) == expected
