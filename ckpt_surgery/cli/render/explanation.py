"""Explanations as lines of styled text. Prints nothing."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ckpt_surgery.cli.render.plan import STYLES, row_lines
from ckpt_surgery.cli.terminal.columns import WORD, flowing, labelled
from ckpt_surgery.core.folding import ShownKey
from ckpt_surgery.core.text import bytes_text, number_of, shown
from ckpt_surgery.report.explanation import UNMATCHED, Made, Used, described
from ckpt_surgery.report.leaves import describe, folded
from ckpt_surgery.report.plan import named_key
from ckpt_surgery.report.plan_texts import WAYS, diff_rows, fate_word

if TYPE_CHECKING:
    from ckpt_surgery import Explanation
    from ckpt_surgery.report.explanation import Line

MOST = 6
"""Number of keys, of values of a group, and of functions that are shown without `--full`."""
MOST_LINES = 12
"""Number of lines of a rule that are shown without `--full`."""

OUTCOMES = {
    "later": "matches it too, but an earlier rule claims it: the first rule that matches wins",
    "when": "matches it, but its `when` is not true there",
    "source": "matches it, but reads another source",
    "beginning": "matches only its beginning, {key}: a pattern has to match the whole key",
    "end": "matches only its end, {key}: a pattern has to match the whole key",
}
"""Outcome of a rule that did not claim a leaf."""


def explanation_lines(explanation: "Explanation", *, full: bool, width: int) -> Iterator[Text]:
    """A part for the leaf of the result and for that of each source; or the leaves of a subtree, folded."""
    yield Text(shown(explanation.key), "bold")
    plan = explanation.plan
    if explanation.is_subtree:
        counts = [number_of(len(plan.steps), "leaf") + " of the result"] if plan.steps else []
        counts += [f"{number_of(len(plan.dropped), 'leaf')} DROPPED"] if plan.dropped else []
        yield Text(f"no leaf, but a subtree: {', '.join(counts)}", "dim")
        yield Text()
        yield from row_lines(diff_rows(plan, full=full, kept=True, part=True), width)
        return
    if explanation.made is not None:
        yield Text()
        yield from _made_lines(explanation, explanation.made, full, width)
    for one in explanation.used:
        yield Text()
        yield from _used_lines(explanation, one, full, width)


def _made_lines(explanation: "Explanation", made: Made, full: bool, width: int) -> Iterator[Text]:
    step, several = made.step, _several(explanation)
    word = (fate_word(step.fate), STYLES[step.fate])
    way = "copied by the store itself" if step.served else WAYS[step.transfer]
    about = f"  {describe(step.leaf)}, {bytes_text(step.leaf.nbytes)}, {way}"
    yield labelled("result", Text.assemble(word, about))
    named = [(named_key(name, leaf.key.printed, several), describe(leaf)) for name, leaf in made.sources]
    yield from _listed("made from", named, full)
    if step.rule is None:
        own = step.fate == "defaulted"
        why = "it is the target's own value" if own else "leaves that no rule claims stay (`unmatched: keep`)"
        yield labelled("rule", f"none: {why}")
    for number in range(len(made.stages)):
        yield from _stage_lines(explanation, made, number, full, width)
    if made.operations:
        steps = [described(made.sources)] if made.sources else []
        for one in made.operations:
            many = "" if one.count == 1 else f"{one.count:,} × "
            steps.append(f"{many}{one.name}: {one.spec}")
        cut = steps if full or len(steps) <= 2 * MOST else [*steps[:MOST], "…", *steps[-MOST:]]
        yield from _flowing("steps", [cut[0], *(f"→ {one}" for one in cut[1:])], " ", width)


def _stage_lines(explanation: "Explanation", made: Made, n: int, full: bool, width: int) -> Iterator[Text]:
    """Lines for one rule, the `n`th on the way."""
    stage = made.stages[n]
    several, alone = _several(explanation), len(made.stages) == 1
    where = "" if stage.pass_name is None else f" of the pass {stage.pass_name}"
    yield from _rule_lines(explanation, stage.rule.path, stage.rule.line, full, where)
    if not alone or {(one.source, one.key) for one in stage.claims} != set(made.step.sources):
        claimed = [(named_key(one.source, one.key, several), "") for one in stage.claims]
        yield from _listed("  claims", claimed, full)
    if stage.claims or not alone:
        others = [(named_key(source, key, several), "") for source, key in stage.looked_up]
        yield from _listed("  looks up", others, full)
    # `n = 0, 1, 2, …, 47`: the values of each group and variable, in the order of the leaves.
    values: dict[str, dict[str, None]] = {}
    for bound in (*(one.bound for one in stage.claims), stage.variables):
        for name, value in bound.items():
            values.setdefault(name, {})[shown(value) or "''"] = None
    groups = []
    for name, distinct in values.items():
        texts = [*distinct]
        texts = texts if full or len(texts) <= MOST else [*texts[:3], "…", texts[-1]]
        groups.append(f"{chr(92) if name.isdecimal() else ''}{shown(name)} = {', '.join(texts)}")
    if groups:
        yield from _flowing("  groups", groups, "; ", width)
    lets = [(f"  let {name}", text) for name, text in stage.let.items()]
    for label, text in [*lets, *(("  value", text) for text in stage.values)]:
        yield labelled(label, shown(" ".join(text.split())))
    if not alone:
        yield from _listed("  makes", [(key, "") for key in stage.keys], full)


def _used_lines(explanation: "Explanation", used: Used, full: bool, width: int) -> Iterator[Text]:
    path = next(i.path for i in explanation.plan.inputs if i.name == used.source)
    leaf, gone = used.leaf, used.dropped
    about = f"{describe(leaf)}, {bytes_text(leaf.nbytes)}"
    yield labelled(shown(used.source), about).append(f"  in {shown(path)}", "dim")
    if gone is None:
        printed = {step.leaf.key.text: step.leaf.key.printed for step in explanation.plan.steps}
        yield from _listed("becomes", [(printed.get(key, key), "") for key in used.outputs], full)
        step = None if explanation.made is None else explanation.made.step
        if step is not None and step.rule is None and (used.source, leaf.key.text) in step.sources:
            yield from _near(used, width, claimed=False)  # it was said already that it stays
            return
    else:
        why = "`drop: true`" if gone.why == "drop" else shown(gone.why)
        yield Text.assemble((f"{'DROPPED':<{WORD}}", STYLES["dropped"]), why)
        if gone.why.startswith(UNMATCHED):
            yield from _excerpt(explanation.excerpts.get(UNMATCHED, ()), full)
    rules = {one.rule.path: one.rule for one in used.attempts if one.outcome.value == "claimed"}
    if gone is not None and gone.rule is not None:
        rules[gone.rule.path] = gone.rule
    for rule in rules.values():
        yield from _rule_lines(explanation, rule.path, rule.line, full)
    if used.outputs and not rules:
        yield labelled("rule", "none claims it: a `fill` rule or an expression reads it")
    yield from _near(used, width, bool(rules) or gone is None)


def _near(used: Used, width: int, claimed: bool) -> Iterator[Text]:
    """Rules that did not claim a leaf, and why."""
    others = [one for one in used.attempts if one.outcome.value in OUTCOMES]
    for one in others:
        line = "" if one.rule.line is None else f", line {one.rule.line}"
        label = labelled("not by" if claimed else "nearly", f"{one.rule.path}{line}: ")
        yield label.append(shown(one.pattern), "cyan")
        why = OUTCOMES[one.outcome.value].format(key=shown(one.key))
        yield from _flowing("", why.split(" "), " ", width)
    if not (others or claimed):
        yield labelled("rule", "none matches its key, the beginning or the end of it")


def _several(explanation: "Explanation") -> bool:
    return len({i.name for i in explanation.plan.inputs} - {"target"}) > 1


def _rule_lines(
    explanation: "Explanation", path: str, line: int | None, full: bool, where: str = ""
) -> Iterator[Text]:
    """Path and place of a rule, and its lines in the recipe."""
    position = shown(explanation.plan.recipe) + ("" if line is None else f":{line}")
    yield labelled("rule", shown(path + where)).append(f"  {position}", "dim")
    yield from _excerpt(explanation.excerpts.get(path, ()), full)


def _excerpt(lines: "Sequence[Line]", full: bool) -> Iterator[Text]:
    most = len(lines) if full or len(lines) <= MOST_LINES + 1 else MOST_LINES
    digits = len(str(lines[-1].number)) if lines else 0
    for number, text in lines[:most]:
        yield Text.assemble((f"  {number:>{digits}} | ", "dim"), shown(text))
    if most < len(lines):
        yield Text(f"  {len(lines) - most} more lines (--full shows them)", "dim")


def _listed(label: str, rows: Sequence[tuple[str, str]], full: bool) -> Iterator[Text]:
    """Keys with what they are, those that differ in indices only on one line."""
    distinct = dict(rows)
    entries = [ShownKey(key, (), spec) for key, spec in distinct.items()]
    folds = folded(entries, full)
    most = len(folds) if full or len(folds) <= MOST + 1 else MOST
    for n, one in enumerate(folds[:most]):
        spec = distinct[entries[one.first].key]
        many = f"{one.count:,} × " if one.count > 1 and spec else ""
        yield labelled("" if n else label, one.key).append(f"  {many}{spec}".rstrip(), "dim")
    if most < len(folds):
        yield labelled("", f"and {len(folds) - most} more (--full lists them)")


def _flowing(label: str, parts: Sequence[str], between: str, width: int) -> Iterator[Text]:
    """Parts one after the other, on as many lines as they need."""
    yield from flowing([labelled(label, parts[0]), *map(Text, parts[1:])], between, width, WORD)
