"""Folded lines are exact: the tests read the notation back and compare what it stands for."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.folding import Fold, ShownKey, escaped, fold, unfolded
from tests.support.effort import examples

_SLOT = re.compile(r"(?<!\\)((?:\\\\)*)\{([^{}]*)\}")
_ESCAPE = re.compile(r"\\(?:([\\{}])|x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([nrt]))")


def unescaped(text: str) -> str:
    def one(m: re.Match[str]) -> str:
        code = m[2] or m[3] or m[4]
        return m[1] or (chr(int(code, 16)) if code else {"n": "\n", "r": "\r", "t": "\t"}[m[5]])

    return _ESCAPE.sub(one, text)


def numbers(span: str) -> list[str]:
    found = []
    for run in span.split(","):
        first, dots, last = run.partition("..")
        if dots:
            found += [str(i).zfill(len(first)) for i in range(int(first), int(last) + 1)]
        else:
            found.append(run)
    return found


def parsed(text: str) -> list[str | tuple[str, list[str] | None]]:
    """Literals, and (letter or "", numbers) for each slot; numbers is None for a bare letter."""
    parts: list[str | tuple[str, list[str] | None]] = []
    position = 0
    for match in _SLOT.finditer(text):
        parts.append(unescaped(text[position : match.start()] + match[1]))
        letter, _, span = match[2].rpartition(":")
        if re.fullmatch(r"[a-z]\d*", span):
            parts.append((span, None))
        else:
            parts.append((letter, numbers(span)))
        position = match.end()
    return [*parts, unescaped(text[position:])]


def filled(parts, chosen) -> str:
    rest = iter(chosen)
    return "".join(part if isinstance(part, str) else next(rest) for part in parts)


def meaning(line: Fold) -> list[tuple[str, frozenset[str]]]:
    """Every key that a line stands for, with its sources, by the rules in the module's docstring."""
    key = parsed(line.key)
    names: dict[str, list[str]] = {}
    for n, (letter, values) in enumerate(p for p in key if not isinstance(p, str)):
        names.setdefault(letter or f"#{n}", values)
    found = []
    for indices in itertools.product(*(range(len(values)) for values in names.values())):
        at = dict(zip(names, indices, strict=True))
        found.append((_resolved(key, names, at, bool(names))[0], _sources(line, names, at)))
    return found


def _sources(line, names, at) -> frozenset[str]:
    resolved = (_resolved(parsed(text), names, at, bool(names)) for text in line.sources)
    return frozenset(itertools.chain.from_iterable(resolved))


def _resolved(parts, names, at, in_step: bool) -> list[str]:
    lettered = not any(name.startswith("#") for name in names)
    choices = []
    for n, (letter, values) in enumerate(p for p in parts if not isinstance(p, str)):
        if letter:
            choices.append([(values or names[letter])[at[letter]]])
        elif in_step and not lettered:
            choices.append([values[at[f"#{n}"]]])
        else:
            choices.append(values)
    return [filled(parts, chosen) for chosen in itertools.product(*choices)]


def assert_exact(entries: list[ShownKey], lines: list[Fold]) -> None:
    shown = [pair for line in lines for pair in meaning(line)]
    assert len(shown) == len({key for key, _ in shown}), "a key is on two lines"
    assert dict(shown) == {e.key: frozenset(e.sources) for e in entries}
    assert all(len(meaning(line)) == line.count for line in lines)
    likes = {e.key: e.like for e in entries}
    for line in lines:
        assert {likes[key] for key, _ in meaning(line)} == {entries[line.first].like}
        assert entries[line.first].key in dict(meaning(line))


CASES = [
    (["a"], ["a"], "nothing to fold"),
    (["w_3"], ["w_3"], "a number that does not vary is text"),
    ([f"l_{i}/w" for i in range(48)], ["l_{0..47}/w"], "a range"),
    (["l_0", "l_2", "l_5"], ["l_{0,2,5}"], "a list"),
    (["l_0", "l_1"], ["l_{0,1}"], "two make no range"),
    (["l_0", "l_1", "l_2", "l_7"], ["l_{0..2,7}"], "a range and more"),
    ([f"l_{i:02}" for i in range(48)], ["l_{00..47}"], "zero-padded"),
    ([f"l_{i:02}" for i in range(8, 11)], ["l_{08..10}"], "padding that ends"),
    (["l_9", "l_10", "l_11"], ["l_{9..11}"], "unpadded across a power of ten"),
    (["l_1", "l_01"], ["l_{1,01}"], "one number written in two ways"),
    ([f"l_{i}/e_{j}" for i in range(3) for j in range(4)], ["l_{0..2}/e_{0..3}"], "a full product"),
    (
        [f"l_{i}/e_{j}" for i in range(3) for j in range(3) if (i, j) != (2, 0)],
        ["l_{0,1}/e_{0..2}", "l_2/e_{1,2}"],
        "not a full product",
    ),
    ([f"l_{i}/b_{i}" for i in range(3)], ["l_{i:0..2}/b_{i}"], "one index in two places"),
    (["l_0/b_1", "l_1/b_0"], ["l_0/b_1", "l_1/b_0"], "two indices that are neither"),
    (["a0/x", "a1/y"], ["a0/x", "a1/y"], "other text"),
    (["{0}", "{1}"], ["\\{{0,1}\\}"], "braces of the key itself"),
    (["\\0", "\\1"], ["\\\\{0,1}"], "a backslash of the key itself"),
    (["\x1b[31m", "\x1b[32m"], ["\\x1b[{31,32}m"], "a terminal's escape sequence"),
    (["a\n0"], ["a\\n0"], "a line break"),
    (["a\0b0", "a\0b1"], ["a\\x00b{0,1}"], "a zero byte is no second key"),
    (["é_0", "é_1"], ["é_{0,1}"], "letters beyond ASCII"),
    (["²_0", "²_1"], ["²_{0,1}"], "a digit of another kind"),
    ([f"h{'9' * 19}{i}" for i in range(2)], [f"h{'9' * 19}{i}" for i in range(2)], "too long for an index"),
    ([""], [""], "an empty key"),
]


@pytest.mark.parametrize(("keys", "lines", "reason"), CASES, ids=[reason for *_, reason in CASES])
def test_keys(keys, lines, reason):
    entries = [ShownKey(key) for key in keys]
    found = fold(entries)
    assert [line.key for line in found] == lines, reason
    assert_exact(entries, found)


SOURCES = [
    ([(f"b{i}", (f"l{i}",)) for i in range(4)], [("b{0..3}", ("l{0..3}",))], "the same index"),
    ([(f"b{i}", (f"l{i + 1}",)) for i in range(4)], [("b{0..3}", ("l{1..4}",))], "shifted"),
    ([(f"b{i}", (f"l{2 * i}",)) for i in range(4)], [("b{0..3}", ("l{0,2,4,6}",))], "every other one"),
    ([(f"b{i}", (f"l{i:02}",)) for i in range(4)], [("b{0..3}", ("l{00..03}",))], "padded on one side"),
    ([("b0", ("l1",)), ("b1", ("l0",))], [("b0", ("l1",)), ("b1", ("l0",))], "the other way round"),
    ([("b", tuple(f"l{i}/w" for i in range(4)))], [("b", ("l{0..3}/w",))], "many to one"),
    (
        [(f"b{i}", tuple(f"l{i}/e{j}" for j in range(4))) for i in range(3)],
        [("b{i:0..2}", ("l{i}/e{0..3}",))],
        "many to each of several: a letter says which index is gathered",
    ),
    (
        [(f"b{i}", tuple(f"l{j}" for j in range(3))) for i in range(3)],
        [("b{i:0..2}", ("l{0..2}",))],
        "each from all, which is not each from one",
    ),
    (
        [(f"b{i}/c{j}", (f"c{j}/b{i}",)) for i in range(2) for j in range(2)],
        [("b{i:0,1}/c{j:0,1}", ("c{j}/b{i}",))],
        "indices that change places",
    ),
    (
        [(f"b{i}/c{j}", (f"b{i + 1}",)) for i in range(2) for j in range(2)],
        [("b{i:0,1}/c{j:0,1}", ("b{i:1,2}",))],
        "one to many",
    ),
    ([(f"b{i}", ("w",)) for i in range(3)], [("b{0..2}", ("w",))], "one source for all"),
    (
        [(f"b{i}", (f"x:l{i}", f"y:l{i}/a")) for i in range(3)],
        [("b{0..2}", ("x:l{0..2}", "y:l{0..2}/a"))],
        "two sources each",
    ),
]


@pytest.mark.parametrize(("pairs", "lines", "reason"), SOURCES, ids=[reason for *_, reason in SOURCES])
def test_sources(pairs, lines, reason):
    entries = [ShownKey(key, sources) for key, sources in pairs]
    found = fold(entries)
    assert [(line.key, line.sources) for line in found] == lines, reason
    assert all(line.gathers == len(entries[line.first].sources) for line in found)
    assert_exact(entries, found)


def test_only_what_is_alike_shares_a_line():
    lines = fold([ShownKey("a0", (), "f32[2]"), ShownKey("a1", (), "f32[3]"), ShownKey("a2", (), "f32[2]")])
    assert [(line.key, line.first) for line in lines] == [("a{0,2}", 0), ("a1", 1)]


def test_unfolded_keeps_every_key():
    entries = [ShownKey("a{1}", ("b1", "b2")), ShownKey("a2")]
    assert [(f.key, f.sources, f.count, f.gathers, f.first) for f in unfolded(entries)] == [
        ("a\\{1\\}", ("b{1,2}",), 1, 2, 0),
        ("a2", (), 1, 0, 1),
    ]


PIECES = ["\0", "é", "a", "b_", "/", "0", "1", "2", "9", "10", "00", "01"]
PIECES += ["{", "}", "\\", "..", ",", ":", "i", "\x1b"]
KEYS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@examples(150)
@given(st.dictionaries(KEYS, st.lists(KEYS, unique=True, max_size=5).map(tuple), max_size=20))
def test_any_keys_and_sources_are_exact(sources):
    entries = [ShownKey(key, found, key.count("a")) for key, found in sources.items()]
    assert_exact(entries, fold(entries))


INDEX = st.integers(0, 3)
SHAPES = st.sampled_from(
    [
        "l{0}/e{1}|{0}/{1}",
        "l{0}/e{1}|x{1}/y{0}",
        "l{0}/e{1}|x{2}",
        "l{0}/e{0}|x{2}/{1}",
        "l{0}|x{0}/{3}",
        "l{0}/{1}|x/{3}",
    ]
)


@examples(150)
@given(SHAPES, st.sets(st.tuples(INDEX, INDEX), max_size=16), st.integers(-1, 2), st.booleans())
def test_indexed_trees_are_exact(shape, indices, shift, several):
    key_shape, source_shape = shape.split("|")
    sources: dict[str, tuple[str, ...]] = {}
    for i, j in sorted(indices):
        each = range(3) if several else [j]
        made = [source_shape.format(i, j, i + shift + 1, k) for k in each]
        sources[key_shape.format(i, j)] = tuple(dict.fromkeys(made))
    entries = [ShownKey(key, found) for key, found in sources.items()]
    assert_exact(entries, fold(entries))


def test_hostile_keys_stay_cheap():
    """Keys of 2 kB with many indices that neither count up together nor form a product."""
    keys = ["/".join(["1"] * i + ["0"] * (1000 - i)) for i in range(1000)]
    entries = [ShownKey(key) for key in keys]
    lines = fold(entries)
    assert sum(line.count for line in lines) == 1000


def test_escaped_is_what_a_line_of_one_shows():
    key = "\x1b[31m{x}\\\u202e"
    assert escaped(key) == "\\x1b[31m\\{x\\}\\\\\\u202e"
    assert unescaped(escaped(key)) == key
