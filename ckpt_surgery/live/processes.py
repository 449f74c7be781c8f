"""Agreement among the processes of one program: all of them go on, or every one raises.

All processes make the arrays of a sharding over several of them. If one gave up, the others would wait for it
forever in their next computation. So they compare reports twice: before data is read, and at the end.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ckpt_surgery.core import errors
from ckpt_surgery.core.documents import json_text
from ckpt_surgery.core.errors import Code, Interrupted, PlanError, SurgeryError
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
        report: Report = "", "", digests(result)
    except Interrupted:
        raise
    except Exception as error:
        with suppress(jax.errors.JaxRuntimeError):  # the others are gone; the own error says more
            _gather(_failure(error))
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
        "the shardings": {
            text: [str(sharding), None if mesh is None else [device.id for device in mesh.devices.flat]]
            for text, sharding in shardings.items()
            if sharding is not None and len({device.process_index for device in sharding.device_set}) > 1
            for mesh in [getattr(sharding, "mesh", None)]
        },
    }
    texts = {name: json_text({"part": part}, indent=None) for name, part in parts.items()}
    return {name: hashlib.sha256(text.encode("ascii")).hexdigest() for name, text in texts.items()}


Report = tuple[str, str, Digests]
"""Outcome of `make` in one process: class and message of its error, if any; digests of the result."""


def _failure(error: Exception) -> Report:
    if not isinstance(error, SurgeryError):
        return SurgeryError.__name__, shown(f"{type(error).__name__}: {error}"), {}
    more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
    return type(error).__name__, error.problems[0].message + more, {}


def _encoded(report: Report) -> np.ndarray:
    """REPORT_BYTES bytes: two lines and the message, then zeros."""
    error, message, digests = report
    data = "\n".join((json.dumps(digests), error, message)).encode("utf-8", "replace")[:REPORT_BYTES]
    return np.frombuffer(data.ljust(REPORT_BYTES, b"\0"), np.uint8)


def _decoded(data: np.ndarray) -> Report:
    """Inverse of `_encoded`, except for the end of a long message."""
    digests, error, message = data.tobytes().rstrip(b"\0").decode("utf-8", "ignore").split("\n", 2)
    return error, message, json.loads(digests)


def _gather(report: Report) -> Sequence[Report]:
    """Exchange reports; return those of all processes by number. Raises JaxRuntimeError if one is gone."""
    from jax.experimental.multihost_utils import process_allgather

    return [_decoded(data) for data in np.asarray(process_allgather(_encoded(report)))]


def _check(reports: Sequence[Report]) -> None:
    """Raise if a process has failed, or has another plan than the first one."""
    for number, (error, message, _) in enumerate(reports):
        if error:
            told = f"process {number} of {len(reports)} failed, so none returns a result: {message}"
            raise getattr(errors, error, SurgeryError)(told)
    _, _, first = reports[0]
    others = {number: digests for number, (_, _, digests) in enumerate(reports) if digests != first}
    parts = [name for name in first if any(digests[name] != first[name] for digests in others.values())]
    if parts:
        raise PlanError(
            f"the processes have made different plans: {', '.join(parts)} of process "
            f"{', '.join(map(str, others))} are not those of process 0",
            hint="Call it with the same arguments in every process.",
        )
