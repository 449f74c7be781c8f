"""Where texts differ: whole components."""

import pytest

from ckpt_surgery.inference.keys.words import span_of, tokens


def test_tokens() -> None:
    assert tokens("a.b/c_d") == ["a", ".", "b", "/", "c_d"]


@pytest.mark.parametrize(
    ("texts", "before", "words", "after"),
    [
        (["a/q/w", "a/k/w"], "a/", ("q", "k"), "/w"),
        (["a.q_proj.w", "a.k_proj.w"], "a.", ("q_proj", "k_proj"), ".w"),  # not in the middle of a component
        (["params/w", "opt/0/mu/w"], "", ("params", "opt/0/mu"), "/w"),
        (["a/b", "a/b/c"], "a/b", ("", "/c"), ""),
        (["a", "b"], "", ("a", "b"), ""),
        (["a/a", "a/a/a"], "a/a", ("", "/a"), ""),  # what both ends share is counted once
    ],
)
def test_spans(texts: list[str], before: str, words: tuple[str, ...], after: str) -> None:
    span = span_of(texts)
    assert (span.before, span.words, span.after) == (before, words, after)
    assert [span.before + word + span.after for word in span.words] == texts
