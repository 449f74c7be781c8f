"""A listing as a tree with totals: of its subtrees, of its dtypes, its number of parameters; its summary."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ckpt_surgery.core.documents import Document
from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.core.folding import ShownKey
from ckpt_surgery.core.keys import ESCAPED, SEPARATOR, natural_order, parts_of
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.optimizer_states import is_parameter
from ckpt_surgery.core.summary import Summary, SummaryRow, warning_lines
from ckpt_surgery.core.text import bytes_text, count_text, number_of
from ckpt_surgery.report.leaves import describe, folded, look, short_dtype, times_text

CUT = "…"
"""Last component of the pattern of subtrees that are shown as a whole."""


@dataclass(frozen=True)
class DtypeTotal(Document):
    """Totals of the leaves of one type, or of a subtree."""

    leaves: int = 0
    """Number of leaves."""
    elements: int = 0
    """Number of their elements."""
    bytes: int = 0
    """Their size."""

    def __add__(self, other: "DtypeTotal") -> "DtypeTotal":
        sums = self.leaves + other.leaves, self.elements + other.elements, self.bytes + other.bytes
        return DtypeTotal(*sums)

    def __mul__(self, count: int) -> "DtypeTotal":
        return DtypeTotal(self.leaves * count, self.elements * count, self.bytes * count)


@dataclass(frozen=True, kw_only=True)
class SubtreeTotal(DtypeTotal):
    """Totals of a subtree."""

    key: str
    """Its key."""


@dataclass(frozen=True)
class TreeLine:
    """A line of a listing: leaves whose keys differ in indices only, or subtrees."""

    key: str
    """Pattern, printable; in a tree, its last components alone."""
    leaf: Leaf | None
    """One of the leaves, which look alike; None for subtrees."""
    total: DtypeTotal
    count: int = 1
    """Number of keys, or of subtrees, that the pattern stands for."""
    value: str = ""
    """The value that all of the leaves have: `= 10`, `"adam"`; empty where they differ, or none is known."""
    level: int = 0
    """Number of lines above that this one is inside of."""


def total_of(leaves: Iterable[Leaf]) -> DtypeTotal:
    """The size of these leaves together."""
    listed = list(leaves)
    sizes = [leaf.spec.size for leaf in listed if leaf.spec is not None]
    return DtypeTotal(len(listed), sum(sizes), sum([leaf.nbytes for leaf in listed]))


def dtype_totals(leaves: Iterable[Leaf]) -> dict[str, DtypeTotal]:
    """The leaves with arrays by the name of their dtype, the largest size first."""
    by_dtype: dict[DType, list[Leaf]] = defaultdict(list)
    for leaf in leaves:
        if leaf.spec is not None:
            by_dtype[leaf.spec.dtype].append(leaf)
    totals: dict[str, DtypeTotal] = defaultdict(DtypeTotal)
    for dtype, alike in by_dtype.items():  # those of both byte orders have one name
        totals[dtype.name] += total_of(alike)
    return dict(sorted(totals.items(), key=lambda item: -item[1].bytes))


def parameters(leaves: Iterable[Leaf]) -> int:
    """Number of elements of the arrays that a model is made of.

    These are all arrays but the states of optimizers and the variables that are not trained, which are known
    by their names, and counters, masks and indices: booleans and integers of 32 and 64 bits.
    """
    return sum(leaf.spec.size for leaf in leaves if leaf.spec is not None and is_parameter(leaf))


def subtrees(leaves: Iterable[Leaf], depth: int | None = None) -> tuple[SubtreeTotal, ...]:
    """The total of every subtree whose key has `depth` components at most; None: any number."""
    by_key: dict[str, DtypeTotal] = defaultdict(DtypeTotal)
    for leaf in leaves:
        total, prefix = total_of([leaf]), ""
        for i, name in enumerate(leaf.key.names[:-1][:depth]):
            part = name.replace(SEPARATOR, ESCAPED)
            prefix = f"{prefix}{SEPARATOR}{part}" if i else part
            by_key[prefix] += total
    return tuple(SubtreeTotal(**vars(total), key=key) for key, total in by_key.items())


def total_text(total: DtypeTotal) -> str:
    """`26 leaves, 267M elements`; leaves alone where they have no elements."""
    leaves = number_of(total.leaves, "leaf")
    if not total.elements:
        return leaves
    return f"{leaves}, {count_text(total.elements)} element{'' if total.elements == 1 else 's'}"


def dtype_texts(leaves: Iterable[Leaf]) -> list[str]:
    """`bf16 509 MiB in 13 leaves`, for each dtype; none where there is only one."""
    texts = [
        f"{short_dtype(name)} {bytes_text(total.bytes)} in {number_of(total.leaves, 'leaf')}"
        for name, total in dtype_totals(leaves).items()
    ]
    return texts if len(texts) > 1 else []


def size_texts(leaves: Sequence[Leaf], others: int = 0) -> list[str]:
    """`164 leaves`, `1.20 GiB`, `300,000 parameters`; `others`: number of leaves that are not among these."""
    total, count = total_of(leaves), parameters(leaves)
    listed = number_of(total.leaves + others, "leaf")
    parts = [f"{total.leaves:,} of {listed}" if others else listed, bytes_text(total.bytes)]
    if count:
        parts.append(number_of(count, "parameter"))
    if count and count != total.elements:
        parts.append(number_of(total.elements, "element"))
    return parts


def listing(
    leaves: Sequence[Leaf], texts: Mapping[str, str], *, full: bool = False, depth: int | None = None
) -> list[TreeLine]:
    """The lines of a listing. Every leaf is in exactly one; with `full` no line has several keys.

    `texts`: values by key text, which leaves have to share in order to share a line.

    Leaves with more components than `depth` are in the line of their subtree. Subtrees share a line where
    their keys differ in indices only and their totals are equal.
    """
    parts: dict[str, Leaf | DtypeTotal] = {}
    for leaf in leaves:
        key = leaf.key.printed
        if depth is None or len(names := parts_of(key)) <= depth:
            parts[key] = leaf
            continue
        key = SEPARATOR.join((*names[:depth], CUT))
        before = parts.get(key, DtypeTotal())
        assert isinstance(before, DtypeTotal)
        parts[key] = before + total_of([leaf])
    listed = list(parts.items())
    lines = []
    entries = (ShownKey(key, (), p if isinstance(p, DtypeTotal) else look(p, texts)) for key, p in listed)
    for line in folded(entries, full):
        _, what = listed[line.first]
        if isinstance(what, DtypeTotal):
            lines.append(TreeLine(line.key, None, what * line.count, line.count))
        else:
            total, value = total_of([what]) * line.count, texts.get(what.key.text, "")
            lines.append(TreeLine(line.key, what, total, line.count, value))
    return lines


def by_size(lines: Iterable[TreeLine]) -> list[TreeLine]:
    """The lines with the most bytes first."""
    return sorted(lines, key=lambda line: -line.total.bytes)


def name_order(leaf: Leaf) -> list[tuple[tuple[int, int, str, str], ...]]:
    """A sort key for leaves: their keys, component by component, with numbers by their values."""
    return [natural_order(name) for name in leaf.key.text.split(SEPARATOR)]


@dataclass
class _Node:
    """A node of the tree of folded keys."""

    line: TreeLine | None = None
    total: DtypeTotal = field(default_factory=DtypeTotal)
    children: dict[str, "_Node"] = field(default_factory=dict)


def tree(lines: Iterable[TreeLine], *, sort_by_size: bool = False) -> list[TreeLine]:
    """The same lines as a tree in order. A node with one child and no leaf shares the line of its child."""
    root = _Node()
    for line in lines:
        node = root
        for part in parts_of(line.key):
            node = node.children.setdefault(part, _Node())
            node.total += line.total
        node.line = line
    ordered = []
    waiting = _children(root, 0, sort_by_size)
    while waiting:
        level, name, node = waiting.pop()
        parts = [name]
        while node.line is None and len(node.children) == 1:
            ((name, node),) = node.children.items()
            parts.append(name)
        line = node.line or TreeLine("", None, node.total)
        ordered.append(replace(line, key=SEPARATOR.join(parts), total=node.total, level=level))
        waiting += _children(node, level + 1, sort_by_size)
    return ordered


def _children(node: _Node, level: int, sort_by_size: bool) -> list[tuple[int, str, _Node]]:
    """The children of a node in reverse, so that the first of them is taken first from the end of a stack."""
    children = [(level, name, child) for name, child in node.children.items()]
    if sort_by_size:
        children.sort(key=lambda child: -child[2].total.bytes)
    return children[::-1]


def listing_summary(
    about: str,
    leaves: Sequence[Leaf],
    texts: Mapping[str, str],
    others: int = 0,
    warnings: Sequence[str] = (),
    inside: int = 0,
) -> Summary:
    """A checkpoint by its leaves. `texts`: values that are known, by key text; see `shared_texts`.

    `others`: number of leaves that are not among these. `inside`: number of components that all keys begin
    with, and that are left out.
    """
    lines = listing(leaves, texts)
    if inside:
        lines = [replace(one, key=SEPARATOR.join(parts_of(one.key)[inside:])) for one in lines]
    heads = (size_texts(leaves, others), dtype_texts(leaves))
    facts = tuple([", ".join(head) for head in heads if head])
    rows = list(map(_listing_row, lines))
    return Summary(about, facts, rows, warning_lines(warnings), lambda: _upper_levels(tree(lines)))


def _upper_levels(lines: Sequence[TreeLine]) -> list[SummaryRow]:
    """A tree with as many of its levels as fit into 60 lines."""
    counts = Counter(line.level for line in lines)
    sizes = itertools.accumulate(counts[level] for level in sorted(counts))
    deepest = max(0, sum(size <= 60 for size in sizes) - 1)
    rows = []
    for line in lines:
        is_cut = line.level == deepest and line.leaf is None
        if line.level <= deepest:
            rows.append(_listing_row(line, f"{SEPARATOR}{CUT}" if is_cut else ""))
    return rows


def _listing_row(line: TreeLine, end: str = "") -> SummaryRow:
    what = total_text(line.total)
    if line.leaf is not None:
        what = f"{times_text(line.count, describe(line.leaf))} {line.value}".rstrip()
    total = line.total
    return SummaryRow("", line.key + end, what, bytes_text(total.bytes), total.leaves, line.level)
