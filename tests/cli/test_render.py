"""The text that people see, to the character, at a width of 100 columns."""

from dataclasses import replace

import pytest

from ckpt_surgery.cli import render
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.inspecting import Inspection
from ckpt_surgery.report.differences import Holds, Uncompared, ValueDifference, diff_trees
from ckpt_surgery.report.leaves import Statistics, Unread


def shown(lines) -> str:
    return "\n".join(line.plain for line in lines)


def test_hostile_warnings_stay_on_their_line(hostile):
    assert shown(render.warning_lines(hostile.warnings)) == "Warning: `\\x1b[2J[bold]x`\\nis odd"


@pytest.fixture
def found(leaves) -> Inspection:
    return Inspection("/ckpt", "orbax", 10, "default", {"epoch": 3}, leaves)


HEAD = """\
/ckpt  (orbax, step 10, item default)
27 leaves, 509 MiB
metadata {"epoch": 3}

"""
TREE = """\
params
  layer_{0..11}
    mlp/kernel            12 ×  bf16[2048,8192]    384 MiB  P('x', None) on mesh x:4,y:2
    ln                    12 ×  f32[2048]         96.0 KiB
  embed                         bf16[32000,2048]   125 MiB
step                            scalar i64             8 B
name                            string                 0 B"""
FLAT = """\
params/layer_{0..11}/mlp/kernel  12 ×  bf16[2048,8192]    384 MiB  P('x', None) on mesh x:4,y:2
params/layer_{0..11}/ln          12 ×  f32[2048]         96.0 KiB
params/embed                           bf16[32000,2048]   125 MiB
step                                   scalar i64             8 B
name                                   string                 0 B"""


def listed(found, *, flat=False, full=False, verbose=False) -> str:
    return shown(render.inspection_lines(found, flat=flat, full=full, verbose=verbose, width=100))


def test_a_tree(found):
    assert listed(found) == HEAD + TREE


def test_a_flat_list(found):
    assert listed(found, flat=True) == HEAD + FLAT


def test_verbose_shows_chunks(found):
    assert "P('x', None) on mesh x:4,y:2  [512,8192] C zstd\n" in listed(found, verbose=True)


def test_full_trees_have_every_key(found):
    assert "  layer_7\n    mlp/kernel" in listed(found, full=True)


def test_long_metadata_is_cut_short(found):
    long = replace(found, metadata={"k": "x" * 500})
    assert listed(long).split("\n")[2] == 'metadata {"k": "' + "x" * 193 + "… (-v shows all)"
    assert "x" * 500 in listed(long, verbose=True)


def test_a_leaf_may_have_leaves_below_it(found):
    a = found.leaves[-2]
    keys = [replace(a, key=type(a.key).parse(text)) for text in ("a", "a/b", "a//c", "")]
    lines = listed(replace(found, leaves=tuple(keys), metadata={})).split("\n")[3:]
    assert [line.partition("scalar")[0].rstrip() for line in lines] == ["a", "  b", "  /c", ""]


def test_deep_keys_need_no_recursion(found):
    a = found.leaves[-2]
    keys = [replace(a, key=type(a.key).parse("/".join("x" * n))) for n in range(1, 1500, 2)]
    assert listed(replace(found, leaves=tuple(keys), metadata={})).count("scalar i64") == 750


def test_statistics(found):
    numbers = {
        "params/embed": Statistics(-1.0, 2.0, 1e-9, 1 / 3, 0, 4),
        "step": Statistics(*[None] * 4, 1, 0),  # type: ignore[call-arg]
    }
    lines = shown(render.statistics_lines(replace(found, statistics=numbers), False)).split("\n")
    assert lines[-3:] == [
        "params/embed                bf16[32000,2048]"
        "  min -1          max 2           mean 1e-09       std 0.3333  4 inf",
        "step                        scalar i64      "
        "  min -           max -           mean -           std -  1 NaN",
        "name                        string",
    ]


def test_statistics_of_what_could_not_be_read(found):
    unread = {"step": Unread("it is gone", damaged=True)}
    lines = shown(render.statistics_lines(replace(found, statistics=unread), False)).split("\n")
    assert lines[-2] == "step                        scalar i64        not read: it is gone"


def compared(a, b, **values) -> str:
    found = replace(diff_trees({x.key.text: x for x in a}, {x.key.text: x for x in b}), **values)
    return shown(render.difference_lines(found, full=False, width=100))


def test_a_difference(leaves):
    other = [replace(leaf, kind=leaves[-1].kind) if leaf is leaves[-2] else leaf for leaf in leaves[6:-1]]
    assert compared(leaves, other) == (
        "only in A    params/layer_{0..5}/mlp/kernel  6 × bf16[2048,8192]\n"
        "only in A    name                            1 × string\n"
        "changed      step                            1 × scalar i64 → string\n"
        "different: 7 only in A, 1 changed; 20 leaves in both"
    )


def test_no_difference(leaves):
    assert compared(leaves, leaves) == (
        "same keys, kinds, shapes, dtypes (27 leaves); --values compares the numbers too"
    )
    assert compared(leaves, leaves, values=()) == "same keys, kinds, shapes, dtypes and values (27 leaves)"


def test_values_that_differ(leaves):
    values = (
        ValueDifference("params/layer_0/ln", False, 1e-3, 1e-4, 0.99999),
        ValueDifference("params/embed", False, 1e-3, float("inf"), None),
        ValueDifference("step", True, 0.0, 0.0, 1.0),
    )
    assert compared(leaves, leaves, values=values) == (
        "values       params/embed       max abs 0.001      max rel inf        cosine -\n"
        "values       params/layer_0/ln  max abs 0.001      max rel 0.0001     cosine 0.99999000\n"
        "different: 2 with other values; 27 leaves in both"
    )


def test_values_that_cannot_be_measured_or_compared(leaves):
    values = (
        ValueDifference("a", False, 1e-3, float("inf"), None),
        ValueDifference("words", False, None, None, None),
    )
    uncompared = tuple(Uncompared(f"k{i}", "it is a pickle") for i in range(22))
    lines = compared(leaves, leaves, values=values, uncompared=uncompared).split("\n")
    assert lines[:3] == [
        "values       words  other bytes",
        "values       a      max abs 0.001      max rel inf        cosine -",
        "not compared k0   it is a pickle",
    ]
    assert lines[-2:] == [
        "not compared and 2 more leaves (--full)",
        "different: 2 with other values, 22 not compared; 27 leaves in both",
    ]
    assert compared(leaves, leaves, values=(), uncompared=uncompared[:1]) == (
        "not compared k0  it is a pickle\nnot known to be the same: 1 not compared; 27 leaves in both"
    )


def test_empty_nodes_that_the_other_format_cannot_have(leaves):
    empty = [Leaf(Key.parse(f"m/{i}"), LeafKind.EMPTY, empty="None") for i in range(3)]
    found = diff_trees(
        {x.key.text: x for x in (*leaves, *empty)},
        {x.key.text: x for x in leaves},
        None,
        Holds("npz", empty=False),
    )
    assert shown(render.difference_lines(found, full=False, width=100)) == (
        "only in A    m/{0..2}                  3 × empty None  npz holds no empty nodes\n"
        "different: 3 only in A (3 empty nodes, which npz does not hold); 27 leaves in both"
    )


def test_only_the_worst_values_are_listed_without_full(leaves):
    values = tuple(ValueDifference(f"k{i}", False, 1.0, float(i), 1.0) for i in range(30))
    lines = compared(leaves, leaves, values=values).split("\n")
    assert lines[0].startswith("values       k29  ")
    assert lines[20] == "values       and 10 more leaves (--full)"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.421, "0.42 s"), (12.34, "12.3 s"), (59.99, "60.0 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_seconds_text(seconds, text):
    assert render.seconds_text(seconds) == text
