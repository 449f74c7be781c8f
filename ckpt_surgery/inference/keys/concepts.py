"""Translate the words of keys to concepts: `self_attn.q_proj.weight` is attention, query, weight.

Words without an entry in the table of synonyms are concepts themselves. A number that is a part of a name
counts by its rank: `conv1` and `Conv_0` are both the first, where the others are `conv2` and `Conv_1`.
"""

import functools
import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ckpt_surgery.core.frozen import frozen


class Rank(NamedTuple):
    """The rank of a number among those behind one text in a checkpoint whose subtrees are alike."""

    place: int
    """From 0."""
    among: int
    """Number of numbers."""
    first: int
    """The least of them."""
    kind: int = 0
    """Number of kinds of subtrees that begin with a smaller number."""

    def of(self, what: str) -> str:
        """The concept of the number of `what`."""
        return f"{what}#{self.place}" if not self.kind else f"{what}#{self.kind}.{self.place}"


Ranks = Callable[[str, int], Rank]
"""The rank of a number behind a text."""


NUMBER = re.compile(r"\d{1,18}")
"""A number in a key; longer ones are hashes, and count as several."""
_WORD = re.compile(rf"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|{NUMBER.pattern}|[^\W\d_]+")
SUBLAYERS = frozenset({"attention", "cross", "mlp"})
"""Sublayers of a block."""
_PLACES = {"attention": "before", "cross": "beforecross", "mlp": "between"}
"""Place of the norm that belongs to each sublayer."""
PLACED = frozenset({"final", "somewhere"})
"""Places of norms that are guessed where no word says which norm it is."""
_TWO_NORMS = ("before", "between")
"""Places of the norms of a block that has two of them, numbered."""
_MOMENTS = ("m", "v")
"""Slots of Adam in their order, where they are numbered."""
_SLOTS = frozenset({"m", "v", "vrow", "vcol", "ema"})
_SPECIAL = frozenset(
    {"embedding", "query", "key", "kv", "before", "beforecross", "between", "after", "final", "initial"}
)
"""Concepts of norms whose place is not guessed."""


@frozen()
class Meaning:
    """Words of a template, and what they mean."""

    words: tuple[str, ...]
    """Its words in their order, in lower case, indices left out."""
    concepts: tuple[str, ...]
    """Concepts of the words, in their order, each once."""
    silent: tuple[str, ...] = ()
    """Words that usually say nothing, such as `model`."""
    guessed: bool = False
    """True if no word says which norm it is: the last one outside of layers, any in a layer."""
    ranks: tuple[str, ...] = ()
    """The numbers among the words, as ranks: `#0/3` for the first of three."""
    parent: str = ""
    """Key of the first parent of its kind: what lies in one belongs together."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """Concepts and all other words, each once: what is aligned."""
        parent = [f"@#{self.parent}"] if self.parent else []
        return tuple(dict.fromkeys((*self.concepts, *self.silent, *self.ranks, *parent)))


def shifted(one: Meaning, other: Meaning) -> bool:
    """True if a number is another one of as many in two names with the same words."""
    pairs = zip(one.ranks, other.ranks, strict=False)
    return any(a != b and a.partition("/")[2] == b.partition("/")[2] for a, b in pairs)


def meaning(text: str, rank: Ranks = lambda before, number: Rank(0, 1, number)) -> Meaning:
    """Read a template's text: `layers/{}/mlp/wi_0/kernel` is layer, mlp, gate, weight."""
    tokens = _tokens(text)
    raw = tuple(word for word, _ in tokens)
    ranks = {at: rank(text[:at], int(word)) for word, at in tokens if word.isdecimal()}
    words = [
        _from_one(before, word, ranks[at]) if at in ranks else word
        for before, (word, at) in zip(("", *raw), tokens, strict=False)
    ]
    concepts: list[str] = []
    silent: list[str] = []
    place = 0
    while place < len(tokens):
        taken, new = _longest(words, place, concepts)
        if taken == 0:
            word, at = tokens[place]
            new = _unknown(word, concepts, ranks.get(at))
            taken = 1
        elif not new:
            silent += words[place : place + taken]
        concepts += [concept for concept in new if concept not in concepts]
        place += taken
    sublayers = SUBLAYERS.intersection(concepts)
    unplaced = "norm" in concepts and _SPECIAL.isdisjoint(concepts)
    guessed = unplaced and len(sublayers) != 1
    if guessed:
        concepts.append("somewhere" if "layer" in concepts else "final")
    elif unplaced:
        (sublayer,) = sublayers
        concepts[concepts.index(sublayer)] = _PLACES[sublayer]
    numbers = tuple(f"#{each.place}/{each.among}" for each in ranks.values() if each.among > 1)
    return Meaning(raw, tuple(concepts), tuple(silent), guessed, numbers)


def _from_one(before: str, number: str, rank: Rank) -> str:
    """A number as the table counts: `ln 0` is its `ln 1` where norms are counted from 0.

    If there are more numbers than in the table, they mean nothing: `fc 1` to `fc 3` are not an MLP of two.
    """
    known = _numbered().get(before)
    if known is None:
        return number
    from_zero = rank.among > 1 and rank.place == int(number)
    shifted = str(int(number) + 1) if from_zero and "0" not in known else number
    return shifted if rank.among <= len(known) else ""


def with_sublayer(said: Meaning, sublayer: str) -> Meaning:
    """The meaning of a leaf of a sublayer, `attention`, `cross` or `mlp`, whose own name does not say so."""
    if not set(said.concepts).isdisjoint(SUBLAYERS):
        return said
    if "norm" in said.concepts:
        kept = [concept for concept in said.concepts if concept not in PLACED]
        return replace(said, concepts=(*kept, _PLACES[sublayer]))
    return replace(said, concepts=(*said.concepts, sublayer))


def indexed(before: str, rank: Rank, concepts: Collection[str]) -> str:
    """The concept of an index behind this text: a slot of Adam's, or its rank among what it counts."""
    state = set(meaning(before).tokens) == {"optimizer"}
    if state and rank.among == len(_MOMENTS) and _SLOTS.isdisjoint(concepts):
        return _MOMENTS[rank.place]
    return rank.of(counted(before))


def counted(text: str) -> str:
    """Concept that an index behind this text counts, by the last word before it; "" for none."""
    tokens = _tokens(text)
    if not tokens:
        return ""
    for length in (3, 2, 1):
        words = tuple(word for word, _ in tokens[-length:])
        concepts = _table("anywhere").get(words)
        if concepts:
            return concepts[-1]
    return tokens[-1][0]


def _tokens(text: str) -> list[tuple[str, int]]:
    """The words of a text, in lower case and respelled, each with its offset."""
    tokens: list[tuple[str, int]] = []
    for match in _WORD.finditer(text):
        word = match.group().lower()
        if word.isdecimal():
            word = word.lstrip("0") or "0"
        tokens += [(part, match.start()) for part in _table("spellings").get((word,), (word,))]
    return tokens


def _longest(words: Sequence[str], place: int, earlier: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """Number of words of the longest phrase from here, and its concepts; 0 where no phrase is known."""
    last, attention = place == len(words) - 1, "attention" in earlier or "cross" in earlier
    applies = {  # the most specific first
        "in optimizer": "optimizer" in earlier and (last or earlier[-1] == "optimizer"),
        "in attention": attention,
        "at the end": last and bool(earlier) and not attention,
        "in mlp": "mlp" in earlier,
        "in layer": "layer" in earlier,
        "root": not earlier,
        "anywhere": True,
    }
    tables = [_table(name) for name, here in applies.items() if here]
    for length in range(len(words) - place, 0, -1):
        phrase = tuple(words[place : place + length])
        for table in tables:
            if phrase in table:
                return length, table[phrase]
    return 0, ()


def _unknown(word: str, earlier: Sequence[str], rank: Rank | None) -> tuple[str, ...]:
    """The concept of a word that no phrase has. `rank`: of a number."""
    if rank is None:
        return (word,)
    before, place, among = earlier[-1] if earlier else "", rank.place, rank.among
    if before == "norm" and among == len(_TWO_NORMS):
        return (_TWO_NORMS[place],)
    if among > 1:
        return (rank.of(before),)
    return (f"{before}#{word}",) if before == "layer" else ()


@functools.cache
def synonyms() -> Mapping[str, Sequence[str]]:
    """The lines of each table of `synonyms.txt`, by its name."""
    text = Path(__file__).with_name("synonyms.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    starts = [at for at, line in enumerate(lines) if line.startswith("[")]
    return {lines[a].strip("[]"): lines[a + 1 : b] for a, b in itertools.pairwise([*starts, len(lines)])}


@functools.cache
def _table(name: str) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """The phrases of a table, with their concepts."""
    table: dict[tuple[str, ...], tuple[str, ...]] = {}
    for line in synonyms()[name]:
        concepts, phrases = line.split(":")
        means = tuple(concepts.split()) if concepts != "-" else ()
        table |= {tuple(phrase.split()): means for phrase in phrases.split(",")}
    return table


@functools.cache
def _numbered() -> Mapping[str, frozenset[str]]:
    """Words that the table numbers, with their numbers."""
    numbers: dict[str, frozenset[str]] = {}
    for name in ("anywhere", "in attention", "in mlp"):
        for phrase in _table(name):
            if len(phrase) > 1 and phrase[-1].isdecimal():
                numbers[phrase[-2]] = numbers.get(phrase[-2], frozenset()) | {phrase[-1]}
    return numbers


@functools.cache
def all_concepts() -> frozenset[str]:
    """Every concept that a phrase of a table means."""
    tables = ("anywhere", "in attention", "in mlp", "in layer")
    return frozenset(concept for name in tables for means in _table(name).values() for concept in means)
