"""Sizes of drafts as params."""

import numpy as np

import ckpt_surgery
from ckpt_surgery.inference.drafts.sizes import named_sizes

QUERY = {"match": "q_proj", "to": "query", "value": "rearrange(x, '(h d) a -> a h d', h=12)"}


def test_lengths_get_names_by_what_they_count() -> None:
    shared = {"match": r"layers\\.(?P<word>k_proj|v_proj)", "to": "${names[word]}", "value": "f(x, h=4)"}
    experts = {"match": "w", "to": "w", "value": "rearrange(stack(xs), '(l e) a -> l e a', l=16)"}
    rules, sizes = named_sizes([QUERY, shared, experts])
    assert [rule["value"] for rule in rules] == [
        "rearrange(x, '(h d) a -> a h d', h=heads)",
        "f(x, h=kv_heads)",
        "rearrange(stack(xs), '(l e) a -> l e a', l=layers)",
    ]
    assert sizes == {"heads": 12, "kv_heads": 4, "layers": 16}


def test_other_numbers_of_one_kind_have_other_names() -> None:
    other = {**QUERY, "to": {"a": "f(x, h=12)", "b": "f(x, h=8, d=5)"}}
    rules, sizes = named_sizes([QUERY, other])
    assert rules[1]["to"] == {"a": "f(x, h=heads)", "b": "f(x, h=heads_2, d=5)"}
    assert sizes == {"heads": 12, "heads_2": 8}


def test_halves_and_what_is_no_length_stay() -> None:
    rule = {"match": "h=12", "to": "x", "value": "rearrange(x, '(h d) a -> a h d', h=2)[3]"}
    assert named_sizes([rule, {"match": "old", "drop": True}]) == ([rule, {"match": "old", "drop": True}], {})


def test_a_draft_is_right_for_another_number_of_heads() -> None:
    def model(heads: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        weight = np.random.default_rng(heads).standard_normal((heads * 5, 7)).astype(np.float32)
        return {"q_proj": weight}, {"query": weight.reshape(heads, 5, 7).transpose(2, 0, 1)}

    found = ckpt_surgery.infer(*model(3))
    assert "params: {heads: 3}" in found.recipe
    source, target = model(6)
    made = ckpt_surgery.restore(found.recipe, source, set={"heads": 6})
    assert np.array_equal(made["query"], target["query"])
