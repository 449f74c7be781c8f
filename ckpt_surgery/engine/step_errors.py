"""What goes wrong while an output is made is told with its key, at the rule that made it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ckpt_surgery.core.errors import Problem, SurgeryError
from ckpt_surgery.planner.plan import Step


@contextmanager
def about(step: Step) -> Iterator[None]:
    """Adds the key and the rule of an output to the problems that are found inside."""
    try:
        yield
    except SurgeryError as error:
        raise type(error)(*_with_key(error.problems, step)) from error


def _with_key(problems: Sequence[Problem], step: Step) -> list[Problem]:
    place = None if step.rule is None else step.rule.value
    return [replace(p, message=f"`{step.leaf.key}`: {p.message}", place=p.place or place) for p in problems]
