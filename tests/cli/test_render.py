"""The text that people see, to the character, at a width of 100 columns."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from rich.text import Text

from ckpt_surgery.api import Result
from ckpt_surgery.cli import progress, render, render_plan
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.inspecting import Inspection
from ckpt_surgery.report.differences import Holds, Uncompared, ValueDifference, diff_trees
from ckpt_surgery.report.leaves import Statistics, Unread


def shown(lines) -> str:
    return "\n".join(line.plain for line in lines)


def diff(plan, *, full=False, verbose=False, width=100) -> str:
    return shown(render_plan.plan_lines(plan, full=full, verbose=verbose, width=width))


TOWER = """\
recipe       tower.yaml
source       /ckpt/source  (orbax, 100 leaves)
target       /ckpt/target  (orbax, 100 leaves)

kept         1 leaf, 4 B
renamed      model/block_{0..47}/mlp/wi/kernel  48 × bf16[2048,8192]  rules[0], line 4
             ← params/layer_{0..47}/mlp/wi
transformed  model/stacked/scale                 1 × f32[48,2048]     rules[1], line 8
             ← params/layer_{0..47}/ln  (48 → 1)
added        fusion/kernel                       1 × bf16[512,256]    rules[2], line 12
DEFAULTED    model/head/kernel                   1 × f32[2048,10]     the target's value
DROPPED      opt_state/{0..2}/mu                 3 × f32[2048]        rules[3], line 20
DROPPED      ema                                 1 × f32[2048]        not in target

100 leaves → 52: 1 kept, 48 renamed, 1 transformed, 1 added, 1 DEFAULTED, 4 DROPPED
1.50 GiB out (1.50 GiB computed), 1.50 GiB to read, peak memory 64.0 MiB"""

NARROW = """\
renamed      model/block_{0..47}/mlp/wi/kernel
                                       48 × bf16[2048,8192]  rules[0], line 4
             ← params/layer_{0..47}/mlp/wi
transformed  model/stacked/scale        1 × f32[48,2048]     rules[1], line 8"""


def test_a_diff(tower):
    assert diff(tower) == TOWER


def test_the_step_and_the_item_of_a_source_are_shown(plain):
    chosen = replace(plain, inputs=(replace(plain.inputs[0], step=10, item="st\x1bate"),))
    assert "source       /ckpt/source  (orbax, step 10, item st\\x1bate, 100 leaves)" in diff(chosen)


def test_a_key_too_long_for_its_column_has_a_line_to_itself(tower):
    assert NARROW in diff(tower, width=70)


def test_verbose_lists_what_is_kept(tower):
    lines = diff(tower, verbose=True).split("\n")
    assert "kept         step                                1 × f32[]" in lines
    assert "kept         1 leaf, 4 B" not in lines


def test_full_lists_every_key(tower):
    text = diff(tower, full=True)
    assert "renamed      model/block_17/mlp/wi/kernel" in text
    assert "{0..47}/mlp" not in text
    assert text.count("renamed      ") == 48


def test_a_plan_without_changes(plain):
    assert diff(plain).endswith(
        "\n\nkept         1 leaf, 64 B\n\n100 leaves → 1: 1 kept\n"
        "64 B out (64 B computed), 64 B to read, peak memory 64.0 MiB"
    )


def test_a_plan_without_leaves(make_plan):
    assert "100 leaves → 0: nothing" in diff(make_plan())


@pytest.mark.parametrize(("fate", "style"), [("DROPPED", "bold red"), ("DEFAULTED", "bold yellow")])
def test_losses_stand_out(tower, fate, style):
    lines = render_plan.plan_lines(tower, full=False, verbose=False, width=100)
    first = next(line for line in lines if line.plain.startswith(fate))
    assert [str(span.style) for span in first.spans if span.start == 0] == [style]


def test_hostile_keys_stay_on_their_line(hostile):
    text = diff(hostile)
    assert "[red]a[/red]" in text
    assert "← \\x1b[31mb" in text
    assert "c\\nDROPPED  d" in text
    assert "\x1b" not in text
    assert not any(line.startswith("DROPPED") for line in text.split("\n"))


def test_hostile_warnings_stay_on_their_line(hostile):
    assert shown(render.warning_lines(hostile.warnings)) == "Warning: `\\x1b[2J[bold]x`\\nis odd"


def test_many_sources_are_cut_short_without_full(make_plan, tower):
    many = replace(tower.steps[0], sources=tuple(("source", f"{c}") for c in "abcde"))
    plan = make_plan([replace(many, fate=tower.steps[-1].fate)])
    assert "← a, b, c and 2 more  (5 → 1)" in diff(plan)
    assert "← a, b, c, d, e  (5 → 1)" in diff(plan, full=True)


def test_the_last_line_of_apply(tower):
    assert render_plan.result_line(Result(tower, 2.5, "/out\x1b")).plain == (
        "done  1 kept, 48 renamed, 1 transformed, 1 added, 1 DEFAULTED, 4 DROPPED"
        " · 1.50 GiB in 2.50 s (615 MiB/s) · /out\\x1b"
    )
    assert render_plan.result_line(Result(tower, 0.25, "/out")).plain.endswith(" · 1.50 GiB in 0.25 s · /out")


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


class Lines:
    """Stands in for a console."""

    def __init__(self):
        self.printed: list[str] = []

    def print(self, text: Text, soft_wrap: bool) -> None:
        self.printed.append(text.plain)


def test_progress_without_a_terminal_is_a_line_every_ten_seconds():
    now, console = [100.0], Lines()
    report = progress.lines(console, lambda: now[0])
    for second, done in ((1, 10), (9.9, 20), (10, 250 << 20), (19, 300), (20.5, 500 << 20)):
        now[0] = 100.0 + second
        report(Progress(int(done), 1000 << 20))
    assert console.printed == [
        "250 MiB of 0.98 GiB, 25.0 MiB/s, 30.0 s left",
        "500 MiB of 0.98 GiB, 24.4 MiB/s, 20.5 s left",
    ]


def test_a_terminal_gets_a_bar_once_there_is_something_to_tell():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with progress.reporting(console, quiet=False) as report:
        assert out.getvalue() == ""
        report(Progress(1 << 30, 4 << 30))
        report(Progress(2 << 30, 4 << 30))
    assert "2.00 GiB of 4.00 GiB, " in out.getvalue()


def test_what_is_no_terminal_gets_no_animation():
    out = io.StringIO()
    with progress.reporting(Console(file=out, width=100), quiet=False) as report:
        report(Progress(1, 2))
    assert out.getvalue() == ""


def test_quiet_runs_report_nothing():
    with progress.reporting(Console(file=io.StringIO(), force_terminal=True), quiet=True) as report:
        assert report is None


def test_progress_before_anything_is_done():
    assert progress.progress_text(Progress(0, 2048), 3.0) == "0 B of 2.00 KiB"
