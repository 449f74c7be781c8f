"""Plans and results as people see them, to the character, at a width of 100 columns."""

import re
from dataclasses import replace

import pytest

from ckpt_surgery.cli.render import plan as render_plan
from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.language.loading import ParamSource, ParamValue
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Costs, Fate, Transfer
from ckpt_surgery.planner.plan_json import counts
from ckpt_surgery.planner.prepared import DestinationOptions
from ckpt_surgery.report.plan import Row
from ckpt_surgery.report.plan_texts import summary_row
from ckpt_surgery.runs.run import Result


def shown(lines) -> str:
    return "\n".join(line.plain for line in lines)


def diff(plan, *, full=False, verbose=False, width=100) -> str:
    return shown(render_plan.plan_lines(plan, full=full, verbose=verbose, width=width))


TOWER = """\
recipe       tower.yaml
source       /ckpt/source  (orbax, 100 leaves)
target       /ckpt/target  (orbax, 100 leaves)

kept         1 leaf, 4 B
renamed      params/layer_{0..47}/mlp/wi → model/block_{0..47}/mlp/wi/kernel
             48 × bf16[2048,8192]  rules[0], line 4
transformed  params/layer_{0..47}/ln → model/stacked/scale  f32[48,2048]  (48 → 1)  rules[1], line 8
added        fusion/kernel                               bf16[512,256]            rules[2], line 12
DEFAULTED    model/head/kernel                           f32[2048,10]             the target's value
DROPPED      opt_state/…                                 3 leaves, f32, 24.0 KiB  rules[3], line 20
DROPPED      ema                                         f32[2048]                not in target

100 leaves → 52: 1 kept, 48 renamed, 1 transformed, 1 added, 1 DEFAULTED, 4 DROPPED
1.50 GiB computed, 1.50 GiB to read, peak memory 64.0 MiB"""


NARROW = """\
renamed      params/layer_{0..47}/mlp/wi
             → model/block_{0..47}/mlp/wi/kernel
             48 × bf16[2048,8192]
             rules[0], line 4
transformed  params/layer_{0..47}/ln
             → model/stacked/scale
             f32[48,2048]  (48 → 1)
             rules[1], line 8
added        fusion/kernel
             bf16[512,256]  rules[2], line 12"""

WIDE = (
    "renamed      params/layer_{0..47}/mlp/wi → model/block_{0..47}/mlp/wi/kernel  48 × bf16[2048,8192]     "
    "rules[0], line 4\n"
    "transformed  params/layer_{0..47}/ln → model/stacked/scale                    f32[48,2048]  (48 → 1)   "
    "rules[1], line 8\n"
    "added        fusion/kernel                                                    bf16[512,256]            "
    "rules[2], line 12\n"
)


def test_a_diff(tower):
    assert diff(tower) == TOWER
    assert WIDE in diff(tower, width=160)
    text = diff(tower, width=50)
    assert NARROW in text
    rows = text.split("\n\n")[1].split("\n")
    assert max(map(len, rows)) <= 50


def test_the_source_and_the_destination_are_shown_with_step_and_item(plain):
    assert "destination" not in diff(plain)
    item = DestinationOptions("new\x1b", "orbax", 10, "state", 3, False, None, LinkMode.AUTO)
    source = replace(plain.inputs[0], step=10, item="st\x1bate")
    assert diff(replace(plain, inputs=(source,), destination=item)).split("\n")[1:3] == [
        "source       /ckpt/source  (orbax, step 10, item st\\x1bate, 100 leaves)",
        "destination  new\\x1b  (orbax, step 10, item state)",
    ]


def test_verbose_lists_what_is_kept_and_full_every_key(tower):
    lines = diff(tower, verbose=True).split("\n")
    kept = "kept         step                                        f32[]"
    assert [line for line in lines if line.startswith("kept")] == [kept]
    text = diff(tower, full=True)
    assert "renamed      params/layer_17/mlp/wi → model/block_17/mlp/wi/kernel\n" in text
    assert "{0..47}/mlp" not in text
    assert text.count("renamed      ") == 48


def test_a_plan_without_changes_and_one_without_leaves(make_plan, plain):
    assert diff(plain).endswith(
        "\n\nkept         1 leaf, 64 B\n\n100 leaves → 1: 1 kept\n"
        "64 B computed, 64 B to read, peak memory 64.0 MiB"
    )
    assert "100 leaves → 0: nothing" in diff(make_plan())


@pytest.mark.parametrize(("fate", "style"), [("DROPPED", "bold red"), ("DEFAULTED", "bold yellow")])
def test_losses_stand_out(tower, fate, style):
    lines = render_plan.plan_lines(tower, full=False, verbose=False, width=100)
    first = next(line for line in lines if line.plain.startswith(fate))
    assert [str(span.style) for span in first.spans if span.start == 0] == [style]


def test_many_sources_are_cut_short_without_full(make_plan, tower):
    many = replace(tower.steps[0], sources=tuple(("source", f"{c}") for c in "abcde"))
    plan = make_plan([replace(many, fate=tower.steps[-1].fate)])
    assert "a, b, c and 2 more → step  f32[]  (5 → 1)" in diff(plan)
    assert "a, b, c, d, e → step      f32[]  (5 → 1)" in diff(plan, full=True)


def test_the_last_line_of_apply(tower):
    """The speed is that of what was written."""

    def last_lines(seconds: float, width: int, links: int = 0) -> list[str]:
        costs = replace(tower.costs, bytes_linked=links, bytes_computed=(3 << 29) - links)
        plan = replace(tower, costs=costs) if links else tower
        result = Result(plan, seconds, "/out\x1b")
        return [line.plain for line in render_plan.result_lines(result, width)][1:]

    counts = "done  1 kept, 48 renamed, 1 transformed, 1 added, 1 DEFAULTED, 4 DROPPED ·"
    assert last_lines(2.5, 120) == [f"{counts} 1.50 GiB in 2.50 s (615 MiB/s) · /out\\x1b"]
    assert last_lines(0.25, 120) == [f"{counts} 1.50 GiB in 0.25 s · /out\\x1b"]
    assert last_lines(0.25, 80) == [counts, "    1.50 GiB in 0.25 s · /out\\x1b"]
    linked = f"{counts} 1.50 GiB in 2.00 s"
    assert last_lines(2, 200, 1 << 30) == [f"{linked} (written at 256 MiB/s) · /out\\x1b"]
    assert last_lines(2, 200, 3 << 29) == [f"{linked} · /out\\x1b"]


@pytest.mark.parametrize("width", [60, 80])
def test_nothing_below_the_diff_is_wider_than_the_terminal(tower, width):
    costs = Costs(600 << 30, 1 << 30, 2 << 30, 3 << 30, 650 << 30, 999 << 30, 50 << 20, 2 << 30, 1 << 30)
    plan = replace(tower, costs=costs, restorable_by={"orbax-checkpoint": "0.5.21", "tensorstore": "0.1.80"})
    lines = diff(plan, verbose=True, width=width).split("\n\n")[-1].split("\n")
    assert max(map(len, lines)) <= width
    assert not any(line.endswith(("peak", "GiB to")) for line in lines)


RULE = RuleRef("rules[0]", 4)
MIRRORS = ("opt/mu", "opt/nu")
SLOTS = ("v", "v_col", "v_row")


@pytest.mark.each
@pytest.mark.parametrize(
    ("row", "words"),
    [
        (  # bytes of a subtree with mirrors are its own
            Row("dropped", "a/…", (), 1, 2, 0, "f32", 3 * 2048, RULE, "drop", MIRRORS),
            ["DROPPED", "a/…", "2 leaves, f32, 2.00 KiB, also in mu and nu"],
        ),
        (
            Row("transformed", "p/…", ("*:p/…",), 1, 53, 3, "f32", 96, RULE, also=MIRRORS, averaged=True),
            ["averaged", "p/…", "53 leaves, f32 (3 → 1), also in mu and nu"],
        ),
        (
            Row("renamed", "t/b", ("a",), 12, 1, 1, "bf16[6,20]", 96, RULE, other_shapes=SLOTS),
            ["renamed", "a → t/b", "12 × bf16[6,20], also in v, v_col and v_row (other shapes or dtypes)"],
        ),
        (
            Row("transformed", "step", ("step",), 1, 1, 1, "i32[]", 4, RULE, "value replaced"),
            ["transformed", "step", "i32[], value replaced"],
        ),
    ],
)
def test_a_row(row, words):
    (line,) = render_plan.row_lines([summary_row(row, False)], 140)
    assert re.split(" {2,}", line.plain) == [*words, "rules[0], line 4"]


def test_every_fate_has_a_style_and_a_place_in_the_order(make_plan):
    assert set(render_plan.STYLES) == {*Fate, "dropped"} == set(counts(make_plan()))


def test_params_are_shown_with_where_they_come_from(make_plan):
    params = (
        ParamValue("n", 4, ParamSource.SET),
        ParamValue("heads", 8, ParamSource.CONFIG, "n_head", "config\x1b.json"),
        ParamValue("d", 1, ParamSource.DEFAULT, None, "config.json has no `d`"),
        ParamValue("m", ("a",), ParamSource.SET),
        ParamValue("k", True, ParamSource.CONFIG, "k", "config\x1b.json"),
        ParamValue("e", 2, ParamSource.DEFAULT),
    )
    assert diff(replace(make_plan(), params=params)).split("\n")[2:6] == [
        "params       n=4, m=[a]  (--set)",
        "             heads=8 ← n_head, k=true  (config\\x1b.json)",
        "             d=1  (default: config.json has no `d`)",
        "             e=2  (default)",
    ]
    assert diff(replace(make_plan(), params=params), width=40).split("\n")[3:5] == [
        "             heads=8 ← n_head,",
        "             k=true  (config\\x1b.json)",
    ]


def test_the_ways_of_the_bytes_are_told_and_what_hard_links_would_save(make_plan):
    costs = Costs(600 << 10, 100 << 10, 200 << 10, 300 << 10, 650 << 10, 1 << 20, 50 << 10)
    assert diff(replace(make_plan(), costs=costs)).split("\n")[-2:] == [
        "100 KiB linked, 200 KiB copied, 300 KiB computed, 50.0 KiB unused in linked files, 650 KiB to read,",
        "    peak memory 1.00 MiB",
    ]
    costs = Costs(600 << 10, 0, 600 << 10, 0, 600 << 10, 0, 0, 400 << 10)
    assert diff(replace(make_plan(), costs=costs)).split("\n")[-1] == (
        "600 KiB copied (-v says why), 600 KiB to read, peak memory 0 B"
    )
    assert diff(replace(make_plan(), costs=costs), verbose=True).split("\n")[-2:] == [
        "400 KiB are copied because programs rewrite such files in place; `--link-mode hardlink` links them",
        "if nothing will rewrite SRC",
    ]
    without = replace(make_plan(), costs=replace(costs, bytes_linkable=0))
    assert "hardlink" not in diff(without, verbose=True)
    assert "-v" not in diff(without)


def test_shared_files_are_told_with_their_source(make_plan, tower):
    step = replace(tower.steps[0], transfer=Transfer.LINK, sources=(("source", "a"),))
    plan = make_plan([step, replace(step, transfer=Transfer.COMPUTE, sources=(("other", "a"),))])
    files = [AdoptedFile(f"d/{i}", f"/in/{i}", LinkMode.HARDLINK, 10, 0) for i in range(1200)]
    path = plan.inputs[0].path

    def told(*shared: AdoptedFile) -> list[str]:
        result = Result(plan, 1, "/out", shared=shared)
        return [line.plain for line in render_plan.result_lines(result, 120) if "shared" in line.plain]

    assert told() == []
    assert told(files[0]) == [f"1 file is shared with {path} (hard links): do not rewrite it in place"]
    assert told(*files) == [f"1,200 files are shared with {path} (hard links): do not rewrite them in place"]


def test_versions_that_restore_the_result_are_the_last_line_with_v(make_plan):
    plan = replace(make_plan(), restorable_by={"orbax-checkpoint": "0.5.21"})
    assert diff(plan, verbose=True).split("\n")[-1] == "restorable by orbax-checkpoint ≥ 0.5.21"
    assert "restorable" not in diff(plan)
