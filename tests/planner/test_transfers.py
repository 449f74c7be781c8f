"""Which outputs are linked, copied or computed: decided from manifests alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Manifest, bytes_codec, encoding_of
from ckpt_surgery.core.manifests import raw_codec as raw
from ckpt_surgery.core.protocols import DataFile
from ckpt_surgery.functions.arrays import Node, Read
from ckpt_surgery.planner.outputs import Destination, Transfers, transfers
from ckpt_surgery.planner.plan import Plan
from tests.support.effort import examples
from tests.support.memory import MemoryEncoder
from tests.support.plans import links_on, plan_over, transfers_of

HERE, ELSEWHERE = "device:7", "device:8"
"""Numbers of file systems."""
F32 = np.dtype(np.float32)


def chunks(*places: tuple[str, int, int]) -> dict[tuple[int, ...], Chunk]:
    return {(i,): Chunk(*place) for i, place in enumerate(places)}


def leaf(text: str, *places: tuple[str, int, int]) -> Leaf:
    """Float32 numbers in as many chunks as there are places: (file, offset, bytes)."""
    length = places[0][2] // 4
    spec = ArraySpec((length * len(places),), F32)
    return Leaf(Key.parse(text), LeafKind.ARRAY, spec, Manifest(spec, (length,), raw(1), chunks(*places)))


def matrix(text: str, file: str, shape: tuple[int, ...], offset: int = 0) -> Leaf:
    """One raw chunk."""
    spec = ArraySpec(shape, F32)
    chunk = {(0,) * len(shape): Chunk(file, offset, spec.nbytes)}
    return Leaf(Key.parse(text), LeafKind.ARRAY, spec, Manifest(spec, shape, raw(len(shape)), chunk))


def destination(
    sizes: Mapping[str, int],
    device: str | None = HERE,
    away: Sequence[str] = (),
    rewritten: Sequence[str] = (),
) -> Destination:
    """One that adopts everything; files are on its file system but for those that are `away`."""

    def data_file(path: str) -> DataFile:
        return DataFile(f"/real/{path}", sizes[path], ELSEWHERE if path in away else HERE)

    return Destination(
        encoder=MemoryEncoder(adopting=lambda leaf, manifest: True),
        wholly_stored=lambda manifest: manifest.complete,
        data_file=data_file,
        format="memory",
        holds_empty=True,
        linkable=links_on(device, [f"/real/{path}" for path in rewritten]),
    )


def values(*leaves: Leaf, source: str = "source") -> list[tuple[Leaf, Node]]:
    """Every leaf as it is."""
    return [(replace(one, manifest=None), Read(source, one)) for one in leaves]


def ways(found: Transfers) -> list[str]:
    return [
        "compute" if stored is None else "copy" if copied else "link"
        for stored, copied in zip(found.stored, found.copied, strict=True)
    ]


def planned(recipe: str, leaves: Sequence[Leaf], where: Destination) -> Plan:
    listing = {one.key.text: one for one in leaves}
    return plan_over(recipe, {"source": listing}, where)


# --- one output -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "transfer"),
    [
        ("x", "link"),
        ("x.T", "link"),
        ("x[2:5]", "link"),  # rows of a raw chunk
        ("reshape(x.T, (4, 12))", "compute"),  # no order of stored axes gives that
        ("stack([x, x])[1]", "link"),
        ("x[:, 2:5]", "compute"),  # parts of rows
        ("cast(x, 'bfloat16')", "compute"),
        ("x * 1", "compute"),  # arithmetic always
        ("stack([x, x * 2])", "compute"),  # one of two
    ],
)
def test_what_is_linked(value: str, transfer: str) -> None:
    recipe = f'version: 1\nrules: [{{match: w, value: "{value}"}}, {{match: all, to: other}}]'
    leaves = [matrix("w", "f", (6, 8)), matrix("all", "f", (6, 8))]
    plan = planned(recipe, leaves, destination({"f": 6 * 8 * 4}))
    assert transfers_of(plan) == {"w": transfer, "other": "link"}
    stored = {step.leaf.key.text: step.stored for step in plan.steps}
    assert (stored["w"] is None) == (transfer == "compute")


def test_what_the_destination_does_not_adopt_is_computed() -> None:
    told: list[tuple[str, tuple[int, ...]]] = []

    def adopts(one: Leaf, manifest: Manifest) -> bool:
        told.append((one.key.text, manifest.spec.shape))
        return one.key.text != "b"

    where = replace(destination({"f": 800}), encoder=MemoryEncoder(adopting=adopts))
    leaves = [matrix("a", "f", (10, 10)), matrix("b", "f", (10, 10), 400)]
    plan = planned("version: 1\nrules: [{match: '(.)', value: 'x[2:]'}]", leaves, where)
    assert told == [("a", (8, 10)), ("b", (8, 10))]
    assert transfers_of(plan) == {"a": "copy", "b": "compute"}  # of the file, 320 of 800 bytes would be used


def test_an_array_that_is_not_wholly_stored_is_computed() -> None:
    one = leaf("w", ("f", 0, 40), ("f", 40, 40))
    assert one.manifest is not None
    gap = replace(one, manifest=replace(one.manifest, chunks={(1,): one.manifest.chunks[1,]}))
    found = transfers(values(gap), destination({"f": 80}))
    assert (ways(found), found.dead) == (["compute"], 0)


def test_chunks_within_the_index_need_no_file() -> None:
    spec = ArraySpec((2,), F32)
    manifest = Manifest(spec, (2,), raw(1), {(0,): Chunk("", 0, 8, b"12345678")})
    inline = Leaf(Key.parse("w"), LeafKind.ARRAY, spec, manifest)
    assert ways(transfers(values(inline), destination({}))) == ["link"]
    assert ways(transfers(values(inline), destination({}, device=None))) == ["copy"]


def test_parts_that_are_encoded_differently_are_not_put_together() -> None:
    plain = matrix("b", "f", (4, 5))
    assert plain.manifest is not None
    big = replace(plain.manifest.codec, encoding=encoding_of([bytes_codec("big")]))
    other = replace(plain, key=Key.parse("a"), manifest=replace(plain.manifest, codec=big))
    recipe = "version: 1\nrules: [{match: '[ab]', to: both, value: stack(xs)}]"
    plan = planned(recipe, [other, plain], destination({"f": 80}))
    assert transfers_of(plan) == {"both": "compute"}


# --- file systems -----------------------------------------------------------------------------------------

IN_TWO_FILES = [leaf("a", ("f", 0, 60)), leaf("b", ("g", 0, 60)), leaf("c", ("f", 60, 40), ("g", 60, 40))]


@pytest.mark.parametrize(
    ("device", "away", "expected"),
    [
        (HERE, (), ["link", "link", "link"]),
        (HERE, ("g",), ["link", "copy", "copy"]),  # the third lies in both files
        (ELSEWHERE, (), ["copy", "copy", "copy"]),
        (None, (), ["copy", "copy", "copy"]),  # asked for
    ],
)
def test_links_stay_within_a_file_system(
    device: str | None, away: Sequence[str], expected: list[str]
) -> None:
    found = transfers(values(*IN_TWO_FILES), destination({"f": 100, "g": 100}, device, away))
    assert ways(found) == expected
    assert found.dead == (40 if away else 0)  # what is copied out of a linked file is of no use there


@pytest.mark.parametrize(
    ("rewritten", "away", "expected", "could"),
    [
        ((), (), ["link", "link", "link"], [True, True, True]),
        (("g",), (), ["link", "copy", "copy"], [True, True, True]),  # the third lies in both files
        (("f", "g"), (), ["copy", "copy", "copy"], [True, True, True]),
        (("f",), ("g",), ["copy", "copy", "copy"], [True, False, False]),
    ],
)
def test_what_may_be_rewritten_in_place_is_copied_and_counted(
    rewritten: Sequence[str], away: Sequence[str], expected: list[str], could: list[bool]
) -> None:
    where = destination({"f": 100, "g": 100}, HERE, away, rewritten)
    found = transfers(values(*IN_TWO_FILES), where)
    assert (ways(found), found.linkable) == (expected, could)
    costs = planned("version: 1\n", IN_TWO_FILES, where).costs
    copies = [way == "copy" and can for way, can in zip(expected, could, strict=True)]
    assert costs.bytes_linkable == sum(n for n, one in zip((60, 60, 80), copies, strict=True) if one)


def test_what_is_mostly_unused_would_not_be_linked_anyway() -> None:
    where = destination({"f": 100, "g": 100}, HERE, (), ["f", "g"])
    plan = planned("version: 1\n", [leaf("a", ("f", 0, 40)), leaf("b", ("g", 0, 60))], where)
    assert (plan.costs.bytes_copied, plan.costs.bytes_linkable) == (100, 60)
    everything = replace(where, linkable=None)  # copies are asked for
    assert planned("version: 1\n", [leaf("b", ("g", 0, 60))], everything).costs.bytes_linkable == 0


def test_files_of_two_sources_with_one_name() -> None:
    """Each is looked at by itself: one is used wholly, of the other a tenth."""
    one, two = leaf("a", ("one/f", 0, 400)), leaf("b", ("two/f", 0, 40))
    both = [*values(one, source="one"), *values(two, source="two")]
    found = transfers(both, destination({"one/f": 400, "two/f": 400}))
    assert (ways(found), found.dead) == (["link", "copy"], 0)


def test_one_file_of_two_sources() -> None:
    """A checkpoint that is given twice: what either uses of it counts, once."""
    halves = [values(leaf(name, ("f", at, 40)), source=name) for name, at in (("a", 0), ("b", 20))]
    found = transfers([*halves[0], *halves[1]], destination({"f": 120}))
    assert (ways(found), found.dead) == (["link", "link"], 60)
    assert ways(transfers(halves[0], destination({"f": 120}))) == ["copy"]


def test_each_file_is_looked_at_once() -> None:
    asked: list[str] = []
    where = destination({"f": 100, "g": 100})

    def data_file(path: str) -> DataFile:
        asked.append(path)
        return where.data_file(path)

    leaves = [leaf("a", ("f", 0, 40)), leaf("b", ("f", 40, 40)), leaf("c", ("g", 0, 40), ("f", 0, 40))]
    transfers(values(*leaves), replace(where, data_file=data_file))
    assert sorted(asked) == ["f", "g"]


# --- dead bytes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "expected", "dead"),
    [
        (80, "link", 0),
        (81, "link", 1),
        (160, "link", 80),  # exactly half
        (161, "copy", 0),
        (10**12, "copy", 0),
    ],
)
def test_a_file_is_linked_where_half_of_it_is_used(size: int, expected: str, dead: int) -> None:
    found = transfers(values(leaf("a", ("f", 0, 40), ("f", 40, 40))), destination({"f": size}))
    assert (ways(found), found.dead) == ([expected], dead)


def test_dropping_the_optimizer_copies_what_is_left() -> None:
    places = {"params/w": ("f", 0), "opt/mu": ("f", 400), "opt/nu": ("f", 800), "params/b": ("g", 0)}
    leaves = [leaf(text, (*place, 400)) for text, place in places.items()]
    recipe = "version: 1\nrules: [{match: 'opt/.*', drop: true}]"
    plan = planned(recipe, leaves, destination({"f": 1200, "g": 440}))
    assert transfers_of(plan) == {"params/w": "copy", "params/b": "link"}
    costs = plan.costs
    assert (costs.bytes_copied, costs.bytes_linked, costs.bytes_dead, costs.bytes_read) == (400, 400, 40, 400)


def test_bytes_that_several_outputs_use_count_once() -> None:
    """The whole, a part of it and the whole again: 200 of 400 bytes, not 500."""
    a = leaf("a", ("f", 0, 200))
    part = leaf("b", ("f", 100, 100))
    assert ways(transfers(values(a, part, a), destination({"f": 402}))) == ["copy"] * 3
    found = transfers(values(a, part, a), destination({"f": 400}))
    assert (ways(found), found.dead) == (["link"] * 3, 200)


def test_what_is_copied_does_not_keep_a_file_alive() -> None:
    """`both` needs `f`, of which too little is used; then too little is used of `g` as well."""
    both = leaf("both", ("f", 0, 40), ("g", 0, 40))
    rest = leaf("rest", ("g", 40, 40))
    assert ways(transfers(values(both, rest), destination({"f": 1000, "g": 100}))) == ["copy", "copy"]
    found = transfers(values(both, rest), destination({"f": 1000, "g": 80}))
    assert (ways(found), found.dead) == (["copy", "link"], 40)


PLACE = st.tuples(st.sampled_from("fgh"), st.integers(0, 9).map(lambda n: 8 * n), st.just(24))
PLACES = st.lists(st.lists(PLACE, min_size=1, max_size=3), max_size=6)


@examples(150)
@given(PLACES, st.tuples(*[st.integers(96, 200)] * 3), st.sampled_from(["", "f", "gh"]))
def test_dead_bytes_of_linked_files(
    places: list[list[tuple[str, int, int]]], sizes: tuple[int, ...], away: str
) -> None:
    """Counted byte by byte: no file is linked for less than half of it, and copies come of a reason."""
    size = dict(zip("fgh", sizes, strict=True))
    leaves = [leaf(f"w{i}", *spots) for i, spots in enumerate(places)]
    found = transfers(values(*leaves), destination(size, HERE, tuple(away)))
    used = {
        (chunk.file, byte)
        for stored, way in zip(found.stored, ways(found), strict=True)
        if stored is not None and way == "link"
        for chunk in stored.chunks.values()
        for byte in range(chunk.offset, chunk.offset + chunk.length)
    }
    linked = {file for file, _ in used}
    counts = {file: sum(name == file for name, _ in used) for file in linked}
    assert found.dead == sum(size[file] - counts[file] for file in linked)
    assert all(2 * counts[file] >= size[file] for file in linked)
    for way, one in zip(ways(found), leaves, strict=True):
        assert one.manifest is not None
        files = {chunk.file for chunk in one.manifest.chunks.values()}
        assert (way == "link") == (files <= linked)
    assert linked.isdisjoint(away)


# --- what is told -----------------------------------------------------------------------------------------


def test_a_plan_tells_each_transfer_and_what_it_costs() -> None:
    leaves = [
        leaf("linked", ("f", 0, 400)),
        leaf("copied", ("g", 0, 80)),
        matrix("computed", "f", (10, 10), 400),
        Leaf(Key.parse("name"), LeafKind.STRING, string="x"),  # it costs nothing
        Leaf(Key.parse("none"), LeafKind.EMPTY, empty="None"),
    ]
    recipe = "version: 1\nrules: [{match: computed, value: \"cast(x, 'bfloat16')\"}]"
    plan = planned(recipe, leaves, destination({"f": 800, "g": 1000}))
    costs = plan.costs
    assert (costs.bytes_linked, costs.bytes_copied, costs.bytes_computed) == (400, 80, 200)
    assert costs.bytes_out == 680
    assert (costs.bytes_dead, costs.bytes_read) == (400, 80 + 400)
    told = dict.fromkeys(("computed", "name", "none"), "compute") | {"linked": "link", "copied": "copy"}
    assert transfers_of(plan) == told
