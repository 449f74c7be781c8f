"""What `infer` found, as lines of styled text. Prints nothing."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.text import number_of, shown

if TYPE_CHECKING:
    from ckpt_surgery.api.inferring import Inferred

VALUES = {
    "shared": "the target's values are in the source",
    "partly": "a smaller part of the target's values is in the source",
    "unrelated": "none of the target's values are in the source: names decide",
    "none": "values were not compared: names, shapes and dtypes decide",
}
MOST = 10
"""Problems of one kind that are listed."""


def inference_lines(found: "Inferred", out: str | None) -> Iterator[Text]:
    """The summary: what decided, what is open, what is dropped."""
    findings = found.findings
    yield Text(f"{VALUES[found.values]}", "dim")
    for evidence, count in Counter(str(one.evidence) for one in findings.formations).most_common():
        yield Text.assemble(
            (f"{count:,}", "bold"), f" of {number_of(found.target_leaves, 'leaf')}: {evidence}"
        )
    if findings.from_target:
        keys = few_keys(list(findings.from_target))
        yield Text.assemble(("from the target: ", "bold yellow"), f"{keys}; run the recipe with --target")
    if findings.dropped:
        yield Text.assemble(("dropped: ", "bold yellow"), few_keys(list(findings.dropped)))
    for conflict in findings.conflicts[:MOST]:
        values, names = few_keys(list(conflict.by_values)), few_keys(list(conflict.by_names))
        told = f"`{shown(conflict.target)}` has the values of {values}; its name says {names}"
        yield Text.assemble(("values over names: ", "bold yellow"), told)
    for one in findings.undecided[:MOST]:
        keys = few_keys(list(one.targets))
        yield Text.assemble(("not decided: ", "bold red"), f"{keys}: {shown(one.why)}")
    more = len(findings.undecided) - MOST
    if more > 0:
        yield Text.assemble(("not decided: ", "bold red"), f"and {more:,} more; the recipe lists all")
    for problem in found.problems:
        yield Text.assemble(("problem: ", "bold red"), shown(problem))
    rules = number_of(len(found.draft.rules), "rule")
    where = "" if out is None else f" · {shown(out)}"
    if found.decided:
        yield Text.assemble(("decided", "bold green"), f"  {rules} · planned · {_compared(found)}{where}")
    else:
        yield Text.assemble(
            ("not decided", "bold red"), f"  {rules} · the recipe does not run as it is{where}"
        )


def _compared(found: "Inferred") -> str:
    """How many leaves have been compared with those of the target, element by element."""
    return (
        f"every element of {number_of(found.compared, 'leaf')} compared"
        if found.compared
        else "no values compared"
    )
