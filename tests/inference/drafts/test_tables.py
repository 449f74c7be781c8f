"""The tables of a draft."""

from ckpt_surgery.inference.drafts.tables import Tables


def test_equal_tables_are_one() -> None:
    tables = Tables()
    assert tables.named("order", {"a": 0, "b": 1}) == "order"
    assert tables.named("order", {"b": 0}) == "order2"
    assert tables.named("order", {"a": 0, "b": 1}) == "order"
    assert tables.named("members", {"b": 0}) == "order2"  # whatever it would be called
    assert tables.items() == {"order": {"a": 0, "b": 1}, "order2": {"b": 0}}


def test_tables_that_agree_are_one() -> None:
    tables = Tables()
    assert tables.extended("names", {"a": "x"}) == "names"
    assert tables.extended("names", {"a": "x", "b": "y"}) == "names"
    assert tables.extended("names", {"a": "z"}) == "names2"
    assert tables.extended("names", {"c": "z", "b": "y"}) == "names"
    assert tables.items() == {"names": {"a": "x", "b": "y", "c": "z"}, "names2": {"a": "z"}}
