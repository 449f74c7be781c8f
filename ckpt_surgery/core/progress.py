"""How far a run is: what the engine reports, and the command line shows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """The output bytes of a run, those that are written and all of them."""

    done_bytes: int
    """Bytes of the output regions that are written."""
    total_bytes: int
    """Bytes of all output arrays: shape × itemsize."""
