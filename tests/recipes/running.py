"""What tests of packaged recipes share."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.errors import PlanError, SurgeryError
from ckpt_surgery.planner.plan import Plan
from tests.support.plans import plan_of

RECIPES = Path(__file__).parent.parent.parent / "recipes"

Save = Callable[[str, Any], Path]
Run = Callable[..., Mapping[str, Any]]


def text_of(name: str) -> str:
    return (RECIPES / f"{name}.yaml").read_text()


def planned(name: str, *sources: Any, **options: Any) -> Plan:
    return plan_of(text_of(name), *sources, **options)


def fails(says: str, run: Callable[[], object], error: type[SurgeryError] = PlanError) -> None:
    """The error says one of the texts that `says` has, divided by `|`."""
    with pytest.raises(error) as caught:
        run()
    assert any(text in str(caught.value) for text in says.split("|")), f"{says!r} is not in {caught.value}"
