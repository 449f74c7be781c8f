"""What carrying out a plan gives."""

from dataclasses import dataclass

from ckpt_surgery.core.protocols import AdoptedFile, Companion
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.report.verification import NOT_VERIFIED, VerifiedRun


@dataclass(frozen=True)
class Result:
    """What `apply` and `convert` did."""

    plan: Plan
    """The plan as it was carried out: what could not be linked counts as copied."""
    seconds: float
    """Wall time of planning, writing, and verification."""
    destination: str
    """Path of the result, as the caller gave it."""
    notices: tuple[str, ...] = ()
    """Sentences about leftovers of earlier runs that were put in order, and about files that were copied
    because no link was possible."""
    shared: tuple[AdoptedFile, ...] = ()
    """Files of the result that are hard links to files of sources: rewriting one in place changes both."""
    verified: VerifiedRun = NOT_VERIFIED
    """What was read back before the result was published."""
    companions: tuple[Companion, ...] = ()
    """Config and tokenizer files that came along."""
