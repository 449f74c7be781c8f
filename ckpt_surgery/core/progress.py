"""The progress of a run, which the engine reports and the command line shows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How many of a run's output bytes are written."""

    done_bytes: int
    """Bytes of the output regions that are written."""
    total_bytes: int
    """Bytes of all output arrays: shape × itemsize."""
