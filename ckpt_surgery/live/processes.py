"""Agreement among the processes of one program: all of them go on, or every one raises.

All processes make the arrays of a sharding over several of them. If one gave up, the others would wait for it
forever in their next computation. So they compare reports twice: before data is read, and at the end.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from ckpt_surgery.core import errors
from ckpt_surgery.core.documents import json_text
from ckpt_surgery.core.errors import Interrupted, PlanError, SurgeryError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.plan_json import planned_document

T = TypeVar("T")
Digests = Mapping[str, str]
"""Hexadecimal digests of the parts of a plan, by their names in messages."""

REPORT_BYTES = 4096
"""Bytes that each process sends to the others; longer messages are cut."""


def agree(make: Callable[[], T], digests: Callable[[T], Digests] = lambda result: {}) -> T:
    """Run `make` in every process; all return, or all raise.

    Every process has to call this, as often as the others. With one process nothing is exchanged.

    Raises what `make` raises. If it raises in another process, raises an error of the same class that names
    the process; PlanError if the `digests` of two results differ; SurgeryError if others do not answer.
    Interrupted and KeyboardInterrupt go up at once: their process is assumed to end, which jax notices in the
    others.
    """
    import jax

    if jax.process_count() == 1:
        return make()
    try:
        result = make()
        report = _Report(digests=digests(result))
    except Interrupted:
        raise
    except Exception as error:
        with suppress(jax.errors.JaxRuntimeError):  # the others are gone; the own error says more
            _gather(_Report.of(error))
        raise
    try:
        reports = _gather(report)
    except jax.errors.JaxRuntimeError as error:
        raise SurgeryError(
            f"the other processes do not answer: {shown(str(error))}", code=Code.INTERRUPTED
        ) from None
    _check(reports)
    return result


def plan_digests(plan: Plan, shardings: Mapping[str, Any]) -> Digests:
    """Digests of a plan and of the shardings of its arrays by key; they are equal in every process.

    Paths of files count by their last component alone: processes on several machines may have the same files
    at different places. Shardings over the devices of one process are its own and do not count.
    """
    document = planned_document(plan)
    parts = {
        "the recipe": replace(document.recipe, path=""),
        "the values of params": document.params,
        "the sources": {
            name: replace(source, path=source.path.replace("\\", "/").rstrip("/").rpartition("/")[2])
            for name, source in document.sources.items()
        },
        "the leaves": [document.leaves, document.dropped],
        "the shardings": {text: _sharding_part(sharding) for text, sharding in shardings.items()},
    }
    return {name: _digest(part) for name, part in parts.items()}


def _sharding_part(sharding: Any) -> Any:
    """The part of a sharding that must be equal: devices in order, and how arrays are divided over them."""
    if sharding is None or len({device.process_index for device in sharding.device_set}) == 1:
        return None
    mesh = getattr(sharding, "mesh", None)
    devices = [] if mesh is None else [device.id for device in mesh.devices.flat]
    return [str(sharding), devices]


def _digest(part: Any) -> str:
    return hashlib.sha256(json_text({"part": part}, indent=None).encode("ascii")).hexdigest()


@dataclass(frozen=True)
class _Report:
    """Outcome of `make` in one process."""

    error: str = ""
    """Class of the error that it raised; empty if it returned."""
    message: str = ""
    digests: Digests = field(default_factory=dict)

    @staticmethod
    def of(error: Exception) -> "_Report":
        if not isinstance(error, SurgeryError):
            return _Report(SurgeryError.__name__, shown(f"{type(error).__name__}: {error}"))
        more = len(error.problems) - 1
        return _Report(
            type(error).__name__, error.problems[0].message + (f" (and {more} more)" if more else "")
        )

    def encoded(self) -> np.ndarray:
        """REPORT_BYTES bytes: two lines and the message, then zeros."""
        text = "\n".join((json.dumps(self.digests), self.error, self.message))
        data = text.encode("utf-8", "replace")[:REPORT_BYTES]
        return np.frombuffer(data.ljust(REPORT_BYTES, b"\0"), np.uint8)

    @staticmethod
    def decoded(data: np.ndarray) -> "_Report":
        """Inverse of `encoded`, except for the end of a long message."""
        digests, error, message = data.tobytes().rstrip(b"\0").decode("utf-8", "ignore").split("\n", 2)
        return _Report(error, message, json.loads(digests))


def _gather(report: _Report) -> Sequence[_Report]:
    """Exchange reports; return those of all processes by number. Raises JaxRuntimeError if one is gone."""
    from jax.experimental.multihost_utils import process_allgather

    return [_Report.decoded(data) for data in np.asarray(process_allgather(report.encoded()))]


def _check(reports: Sequence[_Report]) -> None:
    """Raise if a process has failed, or has another plan than the first one."""
    for number, report in enumerate(reports):
        if report.error:
            message = f"process {number} of {len(reports)} failed, so none returns a result: {report.message}"
            kind: type[SurgeryError] = getattr(errors, report.error, SurgeryError)
            raise kind(message)
    parts = [name for name in reports[0].digests if len({report.digests[name] for report in reports}) > 1]
    if parts:
        others = [
            str(number) for number, report in enumerate(reports) if report.digests != reports[0].digests
        ]
        raise PlanError(
            f"the processes have made different plans: {', '.join(parts)} of process {', '.join(others)} "
            "are not those of process 0",
            hint="Call it with the same arguments in every process.",
        )
