"""The diff of a plan in words: what one of its rows says, without columns and colours."""

from collections.abc import Iterator, Sequence

from ckpt_surgery.core.summary import Summary, SummaryRow, warning_lines
from ckpt_surgery.core.text import bytes_text, chosen_text, number_of, shown
from ckpt_surgery.planner.plan import Fate, Plan, Transfer
from ckpt_surgery.planner.plan_json import DROPPED, counts
from ckpt_surgery.planner.target import TARGET
from ckpt_surgery.report.plan import ARROW, MOST_SOURCES, Row, leaves_before, plan_rows

ORDER = ("kept", "renamed", "transformed", "added", "defaulted", DROPPED)
"""The order of the diff: possible surprises come last, next to the prompt."""

LOUD = frozenset({Fate.DEFAULTED.value, DROPPED})
"""Fates that are written in capitals, so that they stand out without colour too."""

WAYS = {Transfer.LINK: "linked", Transfer.COPY: "copied", Transfer.COMPUTE: "computed"}
"""Words for the bytes of an output, by its transfer."""

KINDS = {"arrays": "arrays, ", "json": "JSON, ", "other": ""}
"""Content of an item."""


def diff_rows(plan: Plan, *, full: bool = False, kept: bool = False, part: bool = False) -> list[SummaryRow]:
    """The diff in its order, then items that are lost. Leaves that are kept are counted, unless `kept`."""
    rows = sorted(plan_rows(plan, full=full, part=part), key=lambda row: ORDER.index(row.fate))
    stay = [] if kept else [row for row in rows if row.fate == Fate.KEPT]
    listed = []
    if count := sum(row.total for row in stay):
        text = f"{number_of(count, 'leaf')}, {bytes_text(sum(row.nbytes for row in stay))}"
        listed.append(SummaryRow(fate_word("kept"), text, count=count))
    listed += [summary_row(row, full) for row in rows[len(stay) :]]
    items = () if part else plan.dropped_items
    several = len({gone.source for gone in items}) > 1
    for gone in items:
        name = shown(f"{gone.source}:{gone.item}" if several else gone.item)
        what = f"{KINDS[gone.kind]}{bytes_text(gone.bytes)}"
        listed.append(SummaryRow(fate_word(DROPPED), f"item {name}", what, shown(gone.why), 0))
    return listed


def summary_row(row: Row, full: bool) -> SummaryRow:
    """What one row says."""
    word = "averaged" if row.averaged else fate_word(row.fate)
    return SummaryRow(word, keys_text(row, full), held_text(row), reason_text(row, full), row.total)


def fate_word(fate: str) -> str:
    """The fate as it is written: `renamed`, `DROPPED`."""
    return fate.upper() if fate in LOUD else fate


def fate_texts(plan: Plan) -> list[tuple[str, str]]:
    """Each fate that leaves have, and their number: `1 kept`, `140 renamed`, `1 DROPPED`."""
    by_fate = counts(plan)
    return [(fate, f"{by_fate[fate]:,} {fate_word(fate)}") for fate in ORDER if by_fate[fate]]


def keys_text(row: Row, full: bool) -> str:
    """`old → new`, or the key alone where it stays."""
    if row.sources in ((), (row.key,), (f"*:{row.key}",), (f"target:{row.key}",)):
        return row.key
    most = len(row.sources) if full else MOST_SOURCES
    listed = ", ".join(row.sources[:most])
    more = f" and {len(row.sources) - most} more" if len(row.sources) > most else ""
    return f"{listed}{more}{ARROW}{row.key}"


def held_text(row: Row) -> str:
    """`48 × bf16[2048,8192]`, `16 leaves, f32, also in mu and nu`, `i32[], value replaced`."""
    if row.leaves > 1:
        here = row.nbytes // (1 + len(row.also))
        size = [bytes_text(here)] if row.fate == DROPPED else []
        text = ", ".join([number_of(row.count * row.leaves, "leaf"), row.spec, *size])
        text = f"{text} ({row.gathers:,}{ARROW}1)" if row.gathers > 1 else text
    else:
        text = row.spec if row.gathers < 2 else f"{row.gathers:,} × {row.spec}"
        if row.gathers > 1 and ARROW not in row.spec:
            text = f"{row.spec}  ({row.gathers:,}{ARROW}1)"
        elif row.gathers > 1 and row.count > 1:
            text = f"({text})"
        text = f"{row.count:,} × {text}" if row.count > 1 else text
    also = f", also in {_listed(row.also)}" if row.also else ""
    shapes = f", also in {_listed(row.other_shapes)} (other shapes or dtypes)" if row.other_shapes else ""
    why = f", {row.why}" if row.why and row.fate != DROPPED else ""
    return f"{text}{also}{shapes}{why}"


def _listed(names: Sequence[str]) -> str:
    """`mu, nu and v`: the last components, where they tell the subtrees apart."""
    distinct = list(dict.fromkeys(names))
    ends = [name.rpartition("/")[2] for name in distinct]
    *before, last = ends if len(set(ends)) == len(ends) else distinct
    return f"{', '.join(before)} and {last}" if before else last


def reason_text(row: Row, full: bool) -> str:
    """The rules that did the work, or the policy that decided."""
    if row.rule is None:
        return "the target's value" if row.fate == Fate.DEFAULTED else shown(row.why)
    rules = [row.rule, *(rule for rule in row.rules if rule != row.rule)]
    numbered = [shown(rule.title) + ("" if rule.line is None else f", line {rule.line}") for rule in rules]
    if len(numbered) > 2 and not full:
        numbered[1:] = [f"{len(numbered) - 1} more"]
    return ", and ".join(numbered)


def cost_texts(plan: Plan, of_copies: str = "") -> Iterator[str]:
    """`3.00 GiB linked`, `1.00 GiB computed`, …: the parts of what goes out, what is read, and memory.

    `of_copies` is added where bytes are copied.
    """
    costs = plan.costs
    parts = (
        (costs.bytes_linked, "linked"),
        (costs.bytes_copied - costs.bytes_served, f"copied{of_copies}"),
        (costs.bytes_served, "copied by the store itself"),
        (costs.bytes_computed, "computed"),
    )
    yield from [f"{bytes_text(size)} {way}" for size, way in parts if size] or ["0 B out"]
    if costs.bytes_dead:
        whole = "copied" if costs.bytes_served else "linked"
        yield f"{bytes_text(costs.bytes_dead)} unused in {whole} files"
    yield f"{bytes_text(costs.bytes_read)} to read"
    yield f"peak memory {bytes_text(costs.peak_memory)}"


def plan_summary(plan: Plan) -> Summary:
    """The diff as it is printed: leaves that are kept are counted, possible surprises come last."""
    sources = [i for i in plan.inputs if i.name != TARGET]
    named = [f"{i.path} ({chosen_text(i.format, i.step, i.item)})" for i in sources[:MOST_SOURCES]]
    more = f" and {len(sources) - MOST_SOURCES:,} more sources" if len(sources) > MOST_SOURCES else ""
    goal = plan.destination
    to = "" if goal is None else f"{ARROW}{goal.path} ({chosen_text(goal.format, goal.step, goal.item)})"
    way = f"{plan.recipe}: {', '.join(named)}{more}{to}"
    closing = (", ".join(cost_texts(plan)), *warning_lines(plan.warnings))
    return Summary(totals_text(plan), (way,), diff_rows(plan), closing)


def totals_text(plan: Plan) -> str:
    """`16 leaves → 7: 1 kept, 140 renamed, 1 DROPPED`."""
    fates = ", ".join(text for _, text in fate_texts(plan)) or "nothing"
    return f"{number_of(leaves_before(plan), 'leaf')}{ARROW}{len(plan.steps):,}: {fates}"
