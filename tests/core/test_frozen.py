"""Small frozen values keep what the decorator promises."""

import dataclasses

import pytest

from ckpt_surgery.core.frozen import frozen


@frozen()
class Point:
    x: int
    y: int = 0


@frozen(eq=False)
class Node:
    x: int


def test_values_are_equal_by_their_fields() -> None:
    assert Point(1) == Point(1, 0)
    assert Point(1) != Point(1, 1)
    assert len({Point(1), Point(1, 0), Point(2)}) == 2
    assert dataclasses.replace(Point(1), y=3) == Point(1, 3)


def test_nodes_are_equal_where_they_are_one() -> None:
    one = Node(1)
    assert len({one, one, Node(1)}) == 2
    with pytest.raises(AttributeError):
        Point(1).z = 2  # type: ignore[attr-defined]


def test_the_type_checker_keeps_them_from_being_changed() -> None:
    """`make types` fails where the checker has nothing to say here: an ignore must be needed."""
    point = Point(1)
    point.x = 2  # type: ignore[misc]
    assert point == Point(2)
