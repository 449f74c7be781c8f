"""`infer`: the recipe that makes one checkpoint's structure of another's."""

import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Unpack

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_recipe
from ckpt_surgery.cli.parameters.options import RULE, Argument, DraftTo, Form, JsonTo
from ckpt_surgery.cli.parameters.paths import check_json_name
from ckpt_surgery.cli.terminal.console import STDOUT, Line, Terminal
from ckpt_surgery.core.text import number_of, shown
from ckpt_surgery.inputs import options as of_library
from ckpt_surgery.inputs.options import ReadOptions

if TYPE_CHECKING:
    from ckpt_surgery.api.inferring import Inferred

UNDECIDED = 3
"""Exit code for a recipe that leaves something to decide."""
VALUES = {
    "shared": "the target's values are in the source",
    "partly": "a smaller part of the target's values is in the source",
    "unrelated": "none of the target's values are in the source: names decide",
    "none": "values were not compared: names, shapes and dtypes decide",
}
MOST = 10
"""Problems of one kind that are listed."""

EXAMPLES = {
    "infer old new": "The recipe that makes new of old, with the evidence for each rule.",
    "infer old new --out draft.yaml": "Into a file.",
    "infer old model.json --json -": "For a listing of keys, shapes and dtypes; the findings as JSON.",
    "infer old new -e 's|params/old/(.*)|params/new/\\1|'": "With a hint, which decides and teaches.",
}


@command("infer", EXAMPLES, "Draft a recipe from two checkpoints.")
def infer(
    terminal: Terminal,
    src: Annotated[str, Argument("SRC")],
    target: Annotated[str, Argument("TARGET")],
    recipe: Annotated[of_library.HintRecipe, Form("RECIPE", complete=complete_recipe)],
    rules: Annotated[of_library.HintRules, RULE],
    out: DraftTo,
    overwrite: of_library.ReplaceOut,
    values: of_library.Compared,
    json_to: JsonTo,
    **options: Unpack[ReadOptions],
) -> int:
    """Draft the recipe that turns the structure of SRC into that of TARGET, another checkpoint or a listing.

    Where TARGET has numbers of SRC, they decide, and every element is compared. What is not decided is listed
    with its candidates and the `-e` for each, and the exit code is 3. The recipe goes to stdout, all else to
    stderr.
    """
    from ckpt_surgery.api import inferring

    which: of_library.SourceOptions = {"step": options.get("step"), "item": options.get("item")}
    which["src_format"] = options.get("src_format")
    inferring.check_written([None if json_to == STDOUT else json_to, out], src, target, recipe, **which)
    check_json_name(json_to)
    run = partial(inferring.infer, src, target, recipe=recipe, rules=rules, values=values)
    with terminal.reading() as progress:
        inferred = run(out=out, overwrite=overwrite, progress=progress, **options)
    terminal.write(inferred.document)
    if out is None and json_to != STDOUT:
        sys.stdout.write(inferred.recipe)
    terminal.warn_of(inferred.warnings)
    terminal.wrapped(_lines(inferred, out))
    return 0 if inferred.decided else UNDECIDED


def _lines(inferred: "Inferred", out: str | None) -> "Iterator[Line]":
    """The summary: what decided, what is open, what is dropped."""
    from ckpt_surgery.core.folding import few_keys

    findings = inferred.findings
    yield ((VALUES[inferred.values], "dim"),)
    leaves = number_of(inferred.target_leaves, "leaf")
    for evidence, count in Counter(str(one.evidence) for one in findings.formations).most_common():
        yield ((f"{count:,}", "bold"), f" of {leaves}: {evidence}")
    if findings.from_target:
        keys = few_keys(findings.from_target)
        yield (("from the target: ", "bold yellow"), f"{keys}; run the recipe with --target")
    if findings.dropped:
        yield (("dropped: ", "bold yellow"), few_keys(findings.dropped))
    for conflict in findings.conflicts[:MOST]:
        values, names = few_keys(conflict.by_values), few_keys(conflict.by_names)
        disagreement = f"`{shown(conflict.target)}` has the values of {values}; its name says {names}"
        yield (("values over names: ", "bold yellow"), disagreement)
    open_ones = [f"{few_keys(one.targets)}: {shown(one.why)}" for one in findings.undecided[:MOST]]
    more = len(findings.undecided) - MOST
    if more > 0:
        open_ones.append(f"and {more:,} more; the recipe lists all")
    yield from ((("not decided: ", "bold red"), one) for one in open_ones)
    yield from ((("problem: ", "bold red"), shown(problem)) for problem in inferred.problems)
    what = f"every element of {number_of(inferred.compared, 'leaf')}" if inferred.compared else "no values"
    word, how = ("not decided", "bold red"), "the recipe does not run as it is"
    if inferred.decided:
        word, how = ("decided", "bold green"), f"planned · {what} compared"
    where = "" if out is None else f" · {shown(out)}"
    yield (word, f"  {number_of(len(inferred.draft.rules), 'rule')} · {how}{where}")
