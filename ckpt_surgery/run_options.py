"""How a plan is carried out: the arguments that `apply`, `convert` and `merge` have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from ckpt_surgery.core.progress import Progress
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.prepublication import verify_mode
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.requests import ConvertOptions, PlanOptions


class RunArguments(TypedDict, total=False):
    """How a plan is carried out: what `apply` describes, and `convert` and `merge` take too."""

    overwrite: bool
    resume: bool
    verify: Verify | str
    copy_config: bool | None
    engine: str
    scheduler: str | None
    progress: Callable[[Progress], None] | None
    on_plan: Callable[[Plan], None] | None


class ApplyArguments(RunArguments, PlanOptions, total=False):
    """Arguments of `apply` that are given by name."""


class ConvertArguments(RunArguments, ConvertOptions, total=False):
    """Arguments of `convert` and `merge` that are given by name."""


@dataclass(frozen=True)
class RunOptions:
    """How a plan is carried out, in one form: `RunArguments`, with their defaults."""

    overwrite: bool = False
    resume: bool = False
    verify: Verify = Verify.FAST
    copy_config: bool | None = None
    engine: str = "local"
    scheduler: str | None = None
    progress: Callable[[Progress], None] | None = None
    on_plan: Callable[[Plan], None] | None = None


def run_options(given: RunArguments) -> RunOptions:
    """The options of a run among these arguments. Raises UsageError for a mode that is none."""
    chosen: dict[str, Any] = {
        name: value for name, value in given.items() if name in RunArguments.__annotations__
    }
    return RunOptions(**{**chosen, "verify": verify_mode(chosen.get("verify", Verify.FAST))})
