"""The tables of a draft."""

from ckpt_surgery.inference.drafts.tables import Tables


def test_tables_that_agree_are_one() -> None:
    tables = Tables(["order"])
    assert tables.named("names", {"a": "x"}) == "names"
    assert tables.named("names", {"a": "x", "b": "y"}) == "names"
    assert tables.named("names", {"a": "z"}) == "names2"
    assert tables.named("names", {"c": "z", "b": "y"}) == "names"
    assert tables.named("order", {"a": 0}) == "order2"
    assert tables.named("members", {"b": 0}, alone=True) == "members"
    assert tables.named("members", {"c": 0}, alone=True) == "members2"
    assert tables.items() == {
        "names": {"a": "x", "b": "y", "c": "z"},
        "names2": {"a": "z"},
        "order2": {"a": 0},
        "members": {"b": 0},
        "members2": {"c": 0},
    }
