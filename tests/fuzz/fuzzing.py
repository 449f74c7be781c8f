"""Random input for as long as it is wanted: a few examples in `make test`, many in `make fuzz`."""

import contextlib
import json
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

EXAMPLES = 6
"""In `make test`, always the same."""
MORE_BYTES = 1 << 30
"""Memory that reading a damaged checkpoint of a few kilobytes may take, with all threads' stacks."""
ROUND = 300
"""Examples between two looks at the clock."""


def fuzz(check: Callable[[Any], None], examples: st.SearchStrategy[Any]) -> None:
    """Call `check` with examples: a few, or new ones for FUZZ_SECONDS where the environment says how many.

    A failure prints the smallest example that fails, and the number of its round.
    """
    seconds = float(os.environ.get("FUZZ_SECONDS", "0"))
    suppressed = list(HealthCheck)
    if not seconds:
        settings(
            max_examples=EXAMPLES, derandomize=True, database=None, deadline=None,
            suppress_health_check=suppressed,
        )(given(examples)(check))()  # fmt: skip
        return
    until = time.monotonic() + seconds
    start = time.time_ns()
    for number in range(start, start + 1_000_000):
        if time.monotonic() >= until:
            return
        test = given(examples)(check)
        test = settings(max_examples=ROUND, database=None, deadline=None, suppress_health_check=suppressed)(
            test
        )
        seed(number)(test)()


@contextlib.contextmanager
def capped() -> Iterator[None]:
    """Let this process take little more memory than it has, where the system can hold it to that.

    Python's own count of memory (tracemalloc) cannot be switched on and off while TensorStore's threads run.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        yield
        return
    held = dict(line.split(":", 1) for line in status.read_text().splitlines())["VmData"]
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(held.split()[0]) * 1024 + MORE_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


# --- damage -----------------------------------------------------------------------------------------------

Damage = tuple[float, int, bytes, int]
"""A place in the data from 0 to 1, how many bytes are taken out there, bytes that are put there, and how
often those that were taken out are put behind these."""


def damages() -> st.SearchStrategy[Sequence[Damage]]:
    """One to four changes of a file: bytes and pieces of it changed, left out, put in or repeated.

    Most are near the beginning or the end, where formats have their headers.
    """
    place = st.one_of(st.floats(0, 0.05), st.floats(0.95, 1), st.floats(0, 1))
    numbers = st.sampled_from(
        [b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f", b"[" * 50, b"\x00", b"9" * 20, b"-"]
    )
    length, never = st.integers(1, 64), st.just(0)
    one = st.one_of(
        st.tuples(place, st.just(1), st.binary(min_size=1, max_size=1), never),
        st.tuples(place, length | st.just(1 << 40), st.just(b""), never),
        st.tuples(place, never, numbers | st.binary(min_size=1, max_size=16), never),
        st.tuples(place, length, st.just(b""), st.integers(1, 40)),
    )
    return st.lists(one, min_size=1, max_size=4)


def damaged(data: bytes, changes: Sequence[Damage]) -> bytes:
    """The bytes after all changes."""
    for place, length, new, times in changes:
        start = int(place * max(0, len(data) - 1))
        data = data[:start] + new + data[start : start + length] * times + data[start + length :]
    return data


# --- JSON -------------------------------------------------------------------------------------------------

_ODD: Sequence[Any] = (
    None, True, -1, 0, 1, 2**63, -(2**70), 0.5, 1e400, "", "x", "../../x", "\0", "\ud800",
    [], {}, [[]], {"x": 1},
)  # fmt: skip

Edit = tuple[int, str, int]
"""A number that picks a node, what is done there, and a number that picks the new value."""


def edits() -> st.SearchStrategy[Sequence[Edit]]:
    """One to three changes of a JSON document."""
    action = st.sampled_from(["replace", "remove", "copy", "rename"])
    return st.lists(st.tuples(st.integers(0, 10**6), action, st.integers(0, 10**6)), min_size=1, max_size=3)


def edited(document: Any, changes: Sequence[Edit]) -> Any:
    """The document after all changes."""
    document = json.loads(json.dumps(document))
    for node, action, value in changes:
        nodes = list(_nodes(document))
        if not nodes:
            break
        holder, key = nodes[node % len(nodes)]
        other, other_key = nodes[value % len(nodes)]
        if action == "replace":
            holder[key] = _ODD[value % len(_ODD)]
        elif action == "copy":
            holder[key] = json.loads(json.dumps(other[other_key]))
        elif action == "rename" and isinstance(holder, dict):
            holder[str(other_key)] = holder.pop(key)
        else:
            del holder[key]
    return document


def _nodes(document: Any) -> list[tuple[Any, Any]]:
    """Every place in a document: what holds it, and its key or index."""
    found, left = [], [document]
    while left:
        holder = left.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                left.append(holder[key])
    return found
