"""A plan as rows and totals: what `plan` and `apply` show."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ckpt_surgery.core.folding import ShownKey
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import parts_of
from ckpt_surgery.core.text import bytes_text, number_of, shown
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Fate, Plan, Replacement, Step, is_mean, lineage, printed_origin
from ckpt_surgery.planner.plan_json import DROPPED
from ckpt_surgery.planner.target import TARGET
from ckpt_surgery.report.leaves import describe, folded
from ckpt_surgery.report.moves import LeafMove, RowPattern, Subtree, mirrored, subtrees

ARROW = " → "
"""Between what a leaf was and what it is."""
MOST_SOURCES = 3
"""Number of sources that a row and a summary name."""


@frozen()
class Row:
    """One line of the diff: leaves that share a fate, rules and a description. Each leaf begins as a row."""

    fate: str
    """One of `Fate`, or `dropped`."""
    key: str
    """Pattern of the output keys, or of the source keys where the leaves are dropped; printable. A pattern
    that ends with `/…` stands for subtrees, all leaves of which are in this row."""
    sources: tuple[str, ...]
    """Patterns of the source keys that are read; with the source's name if there are several sources, with
    `*` for the same key in all of them, and with `first,third` for the same key in some."""
    count: int
    """Number of keys, or of subtrees, that the pattern stands for."""
    leaves: int
    """Number of leaves of each of them: 1, unless they are subtrees."""
    gathers: int
    """Number of source leaves that each leaf is made from."""
    spec: str
    """Dtype and shape, or kind: `bf16[8]`, or `f32[8] → bf16[8]` if it changes; of subtrees the dtypes."""
    nbytes: int
    """Size of all the leaves together: shape × itemsize."""
    rule: RuleRef | None
    """The rule that did the work; None where a policy or the target decided."""
    why: str = ""
    """The reason why leaves are dropped: `drop`, `not in target`, …; `value replaced` where a new value does
    not follow from the old one."""
    also: tuple[str, ...] = ()
    """Subtrees in which the same has happened below the same keys."""
    rules: tuple[RuleRef, ...] = ()
    """The rules that changed the leaves, from the first pass to the last; `rule` is one of them."""
    other_shapes: tuple[str, ...] = ()
    """Subtrees, and slots of an optimizer, in which the same has happened to leaves of other shapes."""
    averaged: bool = False
    """Whether each leaf is the mean of its source leaves."""
    keeps_shape: bool = False
    """Whether the leaf may share the row of a subtree: its shape stays, and it is no surprise."""

    @property
    def total(self) -> int:
        """Number of leaves."""
        return self.count * self.leaves * (1 + len(self.also) + len(self.other_shapes))

    @property
    def decided(self) -> tuple[str, str, str, bool]:
        """What decided about the leaves; only where it is equal do they share a row."""
        return (self.fate, " ".join([rule.path for rule in self.rules]), self.why, self.averaged)

    @property
    def origins(self) -> tuple[str, ...]:
        """The source keys that are read, or the one that is dropped."""
        return (self.key,) if self.fate == DROPPED else self.sources

    @property
    def move(self) -> LeafMove:
        """The one leaf, as part of subtrees."""
        key = None if self.fate == DROPPED else tuple(parts_of(self.key))
        sources = tuple([tuple(parts_of(one)) for one in self.origins])
        return LeafMove(key, sources, self.decided if self.keeps_shape else None)


def plan_rows(plan: Plan, *, full: bool = False, part: bool = False) -> list[Row]:
    """The diff. Every output leaf and every dropped leaf is in exactly one row.

    Rows are in the plan's own order, dropped leaves last. With `full` each leaf has a row to itself. `part`:
    whether the plan lacks leaves of the whole one, so that none of its subtrees is known to be complete.
    """
    names = tuple(dict.fromkeys(i.name for i in plan.inputs if i.name != TARGET))
    several = len(names) > 1
    leaves = [_of_step(step, several) for step in plan.steps]
    for gone in plan.dropped:
        leaf, rules = gone.leaf, () if gone.rule is None else (gone.rule,)
        key, size = named_key(gone.source, leaf.key.printed, several), leaf.nbytes
        about = (describe(leaf), size, gone.rule, gone.why)
        leaves.append(Row(DROPPED, key, (), 1, 1, 0, *about, rules=rules, keeps_shape=True))
    if full or part:
        parts = [Subtree(row.key, row.origins, (n,), ((),)) for n, row in enumerate(leaves)]
    else:
        read = dict.fromkeys(source for row in leaves for source in row.origins)
        parts = subtrees([row.move for row in leaves], [tuple(parts_of(key)) for key in read])
    entries = [_entry(leaves, one, names) for one in parts]
    rows, patterns = [], []
    for f in folded(entries, full):
        members = [leaves[n] for n in parts[f.first].members]
        one, whole = members[0], len(members) > 1
        end = "/…" if whole else ""
        dtypes = (ARROW.join(s.partition("[")[0] for s in member.spec.split(ARROW)) for member in members)
        row = replace(
            one,
            key=f.key + end,
            sources=tuple([source + end for source in f.sources]),
            count=f.count,
            leaves=len(members),
            spec=", ".join(dict.fromkeys(dtypes)) if whole else one.spec,
            nbytes=sum(member.nbytes for member in members) * f.count,
        )
        rows.append(row)
        if full or part:
            continue
        stays = len(f.sources) != 1 or f.sources[0] == f"*:{f.key}"
        # Where neither shape nor dtype changes, they say nothing of what is done.
        unchanged = one.fate in (Fate.KEPT, Fate.RENAMED) and ARROW not in one.spec
        loose = (one.decided, parts[f.first].rests, f.count) if unchanged else None
        like = entries[f.first].like
        patterns.append(RowPattern(f.key, f.key if stays else f.sources[0], like, whole, loose))
    if full or part:
        return rows
    kept = []
    for index, *mirrors in mirrored(patterns):
        also, shaped = (tuple([tree for _, tree in some]) for some in mirrors)
        size = sum(rows[n].nbytes for n in (index, *(n for some in mirrors for n, _ in some)))
        kept.append(replace(rows[index], nbytes=size, also=also, other_shapes=shaped))
    return list(_added_together(_dropped_together(kept) if several else kept))


def _dropped_together(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows; those of one key that is dropped from several sources as one: `second,third:step`."""
    alike: dict[Any, list[str]] = {}
    for n, row in enumerate(rows):
        name, _, key = row.key.partition(":")
        alike.setdefault(replace(row, key=key) if row.fate == DROPPED else n, []).append(name)
    for row, names in alike.items():
        if isinstance(row, int):
            yield rows[row]
            continue
        listed = ",".join(names) if len(names) <= MOST_SOURCES else f"{names[0]},…,{names[-1]}"
        times = len(names)
        yield replace(row, key=f"{listed}:{row.key}", count=row.count * times, nbytes=row.nbytes * times)


def _added_together(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows; those of one name and spec that one rule adds in three places or more as one: `state/…/m`."""
    alike: dict[Any, list[Row]] = {}
    for n, row in enumerate(rows):
        top, _, name = row.key.partition("/")[0], *row.key.rpartition("/")[1:]
        many = row.fate == Fate.ADDED.value and row.rule is not None and not row.sources
        alike.setdefault((row.rule, row.spec, top, name) if many else n, []).append(row)
    for group in alike.values():
        if len(group) < 3:
            yield from group
            continue
        keys = [row.key.split("/") for row in group]
        start = next(n for n, parts in enumerate(zip(*keys, strict=False)) if len(set(parts)) > 1)
        key = "/".join([*keys[0][:start], "…", keys[0][-1]])
        count, size = sum(row.count for row in group), sum(row.nbytes for row in group)
        rules = tuple(dict.fromkeys(rule for row in group for rule in row.rules))
        yield replace(group[0], key=key, count=count, nbytes=size, rules=rules)


def leaves_before(plan: Plan) -> int:
    """Number of leaves of all sources."""
    return sum(i.leaves for i in plan.inputs if i.name != TARGET)


def has_changes(plan: Plan) -> bool:
    """Whether the result differs from the first source in any key or value."""
    return bool(plan.dropped or plan.dropped_items) or any(step.fate is not Fate.KEPT for step in plan.steps)


def replacement_text(replacement: Replacement | None) -> str | None:
    """Sentence on what a run replaces, adds and leaves at its destination; None if it has none."""
    if replacement is None or not (replacement.one_item or replacement.items or replacement.nbytes):
        return None
    path, items = shown(replacement.path), ", ".join(map(shown, replacement.items))
    stays = f"; stays: {', '.join(map(shown, replacement.stays))}" if replacement.stays else ""
    if not replacement.overwrites:
        return f"adds an item to {path}{stays}"
    if not replacement.one_item:
        return f"replaces {path}: {items}" if items else f"replaces {path} ({bytes_text(replacement.nbytes)})"
    size = f"{number_of(replacement.leaves or 0, 'leaf')}, {bytes_text(replacement.nbytes)}"
    return f"replaces {path}/{items} ({size}){stays}"


def why_of(step: Step) -> str:
    """Remark on a leaf's new value: that it replaces the old one, or nothing."""
    return "value replaced" if step.replaces else ""


def _of_step(step: Step, several: bool) -> Row:
    read, after = lineage(step), describe(step.leaf)
    sources = tuple([named_key(one[0], printed_origin(*one, read), several) for one in step.sources])
    described = {describe(leaf) for leaf in read.values()}
    before = described.pop() if len(described) == 1 else ""
    is_moved = bool(sources and before) and step.fate not in (Fate.DEFAULTED, Fate.ADDED)
    return Row(
        step.fate.value,
        step.leaf.key.printed,
        sources,
        count=1,
        leaves=1,
        gathers=len(sources),
        spec=after if before in ("", after) else f"{before}{ARROW}{after}",
        nbytes=step.leaf.nbytes,
        rule=step.rule,
        why=why_of(step),
        rules=step.rules,
        averaged=is_mean(step.value),
        keeps_shape=is_moved and before.partition("[")[2] == after.partition("[")[2],
    )


def _entry(leaves: Sequence[Row], subtree: Subtree, names: Sequence[str]) -> ShownKey:
    """Row to fold: a key and its sources, and the rest of its text."""
    one = leaves[subtree.members[0]]
    looks = tuple([(rest, leaves[n].spec) for rest, n in zip(subtree.rests, subtree.members, strict=True)])
    like = (one.decided, looks, one.gathers)
    if one.fate == DROPPED:
        return ShownKey(subtree.sources[0], (), like)
    return ShownKey(subtree.key or one.key, _under_one_key(subtree.sources, names), like)


def _under_one_key(sources: tuple[str, ...], names: Sequence[str]) -> tuple[str, ...]:
    """The keys, those that several sources have as one: `*:w` for all sources, `first,third:w` for some."""
    if len(sources) < 2 or len(names) < 2:
        return sources
    holders: dict[str, list[str]] = {}
    for source in sources:
        name, _, key = source.partition(":")
        holders.setdefault(key, []).append(name)
    texts = []
    for key, having in holders.items():
        every = len(having) == len(names) and TARGET not in having
        texts.append(f"{'*' if every else ','.join(having)}:{key}")
    return tuple(texts)


def named_key(source: str, key: str, several: bool) -> str:
    """The key of a leaf of a source, with the source's name if there are `several` sources."""
    return f"{source}:{key}" if several or source == TARGET else key
