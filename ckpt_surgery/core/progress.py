"""The progress of a run, which the engine reports and the command line shows."""

from dataclasses import dataclass

WRITING = "writing"
CHECKING = "checking"
"""Reading back what was written, or computing everything once before `donate` deletes arrays."""
READING = "reading"


@dataclass(frozen=True)
class Progress:
    """How much of one part of a run is done."""

    done_bytes: int
    """Bytes of the arrays, or of their regions, that are done."""
    total_bytes: int
    """Bytes of all arrays that this part of the run is about: shape × itemsize."""
    doing: str = WRITING
    """What is being done: `writing`; `checking`, for reading back what was written, and for what
    `restore` with `donate` computes before it deletes anything; `reading`."""
