"""What `make test` leaves to `make test-all`."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import leave_cases, pytest_collection_modifyitems
from tests.support.effort import sample


@dataclass
class Case:
    """One case of a test, as pytest collects it."""

    nodeid: str
    index: int
    marks: list[pytest.Mark] = field(default_factory=list)

    @property
    def callspec(self) -> SimpleNamespace:
        return SimpleNamespace(indices={"case": self.index})

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(self.iter_markers(name), None)

    def iter_markers(self, name: str) -> Any:
        return (mark for mark in self.marks if mark.name == name)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


def cases(*marks: pytest.MarkDecorator) -> list[Case]:
    return [Case(f"test_x.py::test_x[{n}]", n, [mark.mark for mark in marks]) for n in range(10)]


def tried(items: list[Case]) -> list[int]:
    return sorted(item.index for item in items if not item.get_closest_marker("slow"))


@pytest.mark.parametrize(("count", "kept"), [(1, {0}), (2, {0, 1})])
def test_few_cases_are_all_tried(count: int, kept: set[int]) -> None:
    assert sample(count) == kept


def test_of_many_cases_the_first_and_the_last_are_tried_in_any_order() -> None:
    items = cases()
    leave_cases(items[::-1])
    assert tried(items) == [0, 9]


def test_of_promises_every_case_is_tried() -> None:
    items = cases(pytest.mark.each)
    leave_cases(items)
    assert tried(items) == list(range(10))


def test_a_slow_test_says_why() -> None:
    pytest_collection_modifyitems(cases(pytest.mark.slow("waits")))
    with pytest.raises(pytest.UsageError, match=r"test_x.py::test_x\[0\]"):
        pytest_collection_modifyitems(cases(pytest.mark.slow))
