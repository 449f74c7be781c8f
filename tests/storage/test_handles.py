"""A bounded number of open handles."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ckpt_surgery.storage.handles import Handles


def test_the_least_recently_used_handle_is_dropped() -> None:
    opened: list[str] = []
    handles = Handles(lambda name: opened.append(name) or name.upper(), most=2)  # type: ignore[func-returns-value]
    assert [handles.get(name) for name in "abacab"] == ["A", "B", "A", "C", "A", "B"]
    assert opened == ["a", "b", "c", "b"]  # `a` was used since, `b` had to be opened again
    handles.clear()
    assert handles.get("a") == "A"
    assert opened[-1] == "a"


def test_what_cannot_be_opened_is_not_kept() -> None:
    answers: Iterator[OSError | str] = iter([OSError("gone"), "handle"])

    def open_one(name: str) -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    handles = Handles(open_one, most=2)
    with pytest.raises(OSError, match="gone"):
        handles.get("a")
    assert handles.get("a") == "handle"


def test_threads_share_one_handle() -> None:
    opened: list[str] = []

    def open_one(name: str) -> object:
        opened.append(name)
        return object()

    handles = Handles(open_one, most=1)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: handles.get("a"), range(100)))
    assert (len(found), opened) == (1, ["a"])
