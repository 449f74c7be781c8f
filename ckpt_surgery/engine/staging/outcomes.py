"""Sentences about how things are after a failure, added to what the failure says."""

from ckpt_surgery.core.errors import Problem, SurgeryError


def add(failure: BaseException, sentence: str, hint: str | None = None) -> None:
    """Add a sentence to a failure's message."""
    if isinstance(failure, SurgeryError):
        failure.problems += (Problem(sentence, hint=hint),)
        failure.args = ("\n\n".join(map(str, failure.problems)),)
    else:
        failure.add_note(sentence if hint is None else f"{sentence}. {hint}")


def told(error: SurgeryError) -> str:
    """The problems of an error in one line, without their hints."""
    return "; ".join(problem.message for problem in error.problems)
