"""How much the tests try: `make test` takes a share of what `make test-all` does."""

import os

from hypothesis import settings

THOROUGH = os.environ.get("EXAMPLES") == "random"
"""Whether this is `make test-all`, or one of the runs that try as much."""
SHARE = 5
CASES = 2
"""Cases of one test that `make test` tries: the first and the last one."""


def examples(count: int) -> settings:
    """Settings of a property that `make test-all` tries with so many examples, `make test` with a fifth."""
    return settings(max_examples=count if THOROUGH else max(count // SHARE, 1))


def sample(count: int) -> set[int]:
    """Indices of the cases that `make test` tries, of `count`."""
    return {i * (count - 1) // (CASES - 1) for i in range(CASES)}
