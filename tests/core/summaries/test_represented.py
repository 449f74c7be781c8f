"""What is used of wings above."""

from ckpt_surgery.core.summaries.represented import Represented, from_above
from ckpt_surgery.core.summaries.summary import Summary


class Small(Represented):
    def _summary(self) -> Summary:
        return Summary("of nothing")


def test_both_forms_come_from_one_summary() -> None:
    assert repr(Small()) == "<Small of nothing>"
    assert "<b>Small</b> of nothing" in Small()._repr_html_()


def test_functions_are_found_by_name() -> None:
    assert from_above("core.text", "shown")("\x1b") == "\\x1b"
