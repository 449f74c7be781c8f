"""Recipes as YAML: it reads as people write it, and reads back as the same document."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.language.yaml.parsing import parse_document
from ckpt_surgery.language.yaml.writing import yaml_text
from tests.support.effort import examples


def test_text() -> None:
    for text, written in (
        ("a/b", "a/b"),
        ("([a-z]+)", "'([a-z]+)'"),
        ("source['a']", "\"source['a']\""),
        (r"source['a\b']", r"'source[''a\b'']'"),
        ("true", "'true'"),
        ("1e5", "'1e5'"),
        ("", "''"),
        ("a: b", "'a: b'"),
        ("*a", "'*a'"),
        ("a\nb", r'"a\nb"'),
        ("\x07", r'"\u0007"'),
    ):
        assert yaml_text({"fill": text}) == f"fill: {written}\n"
        assert parse_document(yaml_text({"fill": text}), "").value == {"fill": text}


def test_long_rules_take_several_lines() -> None:
    long = "x + " * 30 + "x"
    document = {"rules": [{"fill": "a", "value": long, "optional": True}, {"add": "b"}], "tables": {"t": {}}}
    assert yaml_text(document) == (
        f"rules:\n  - fill: a\n    value: {long}\n    optional: true\n  - {{add: b}}\ntables: {{t: {{}}}}\n"
    )


def test_long_mappings_take_several_lines() -> None:
    document = {"tables": {"names": {f"name_{i}": i for i in range(12)}}, "sources": ["a", "b"]}
    lines = yaml_text(document).splitlines()
    assert lines[:3] == ["tables:", "  names:", "    name_0: 0"]
    assert lines[-1] == "sources: [a, b]"
    assert parse_document("\n".join(lines) + "\n", "").value == document


values = st.recursive(
    st.one_of(st.text(max_size=12), st.integers(-99, 99), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text("abc d:#'\"", min_size=1, max_size=5), inner, max_size=3),
    ),
    max_leaves=8,
)


@examples(20)
@given(st.dictionaries(st.sampled_from(["a", "b", "c: d", "1"]), values, min_size=1))
def test_it_reads_back(document: dict[str, Any]) -> None:
    text = yaml_text(document)
    assert parse_document(text, "").value == document
