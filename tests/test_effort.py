"""What `make test` leaves to `make test-all`."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import leave_cases, pytest_collection_modifyitems


class Case(pytest.Item):
    """One case of a test."""

    callspec: Any

    def runtest(self) -> None:
        """Do nothing."""


def cases(request: pytest.FixtureRequest, count: int, *marks: pytest.MarkDecorator) -> list[Any]:
    items: list[Any] = [Case.from_parent(request.session, name=f"test_x[{n}]") for n in range(count)]
    for n, item in enumerate(items):
        item.callspec = SimpleNamespace(indices={"case": n})
        for mark in marks:
            item.add_marker(mark)
    return items


@pytest.mark.each
@pytest.mark.parametrize(
    ("count", "marks", "tried"),
    [(1, [], [0]), (2, [], [0, 1]), (10, [], [0, 9]), (10, [pytest.mark.each], list(range(10)))],
)
def test_of_many_cases_the_first_and_the_last_are_tried_in_any_order_and_promises_all(
    request: pytest.FixtureRequest, count: int, marks: list[pytest.MarkDecorator], tried: list[int]
) -> None:
    items = cases(request, count, *marks)
    leave_cases(items[::-1])
    assert [n for n, item in enumerate(items) if not item.get_closest_marker("slow")] == tried


def test_a_slow_test_says_why(request: pytest.FixtureRequest) -> None:
    pytest_collection_modifyitems(cases(request, 2, pytest.mark.slow("waits")))
    with pytest.raises(pytest.UsageError, match=r"test_x\[0\]"):
        pytest_collection_modifyitems(cases(request, 2, pytest.mark.slow))
