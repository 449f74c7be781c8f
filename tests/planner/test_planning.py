"""What a plan says of every leaf: its fate, its costs, why it was dropped, and what is warned of."""

from dataclasses import replace

from ckpt_surgery.planner.plan import Transfer
from ckpt_surgery.planner.planning import costs_of
from tests.support.leaves import leaf
from tests.support.plans import plan_of, problems_of

HEAD = "version: 1\n"


def test_costs_are_sums_by_transfer() -> None:
    """Of leaves of 24 bytes; a linked one reads nothing, a copied one reads what is stored."""
    plan = plan_of(HEAD, ["a", "b"])
    computed = plan.steps[0]
    assert computed.cut is not None
    linked = replace(computed, transfer=Transfer.LINK, cut=None, stored=leaf("a").manifest)
    found = costs_of([computed, computed, linked], memory=1 << 30, workers=2, dead=5, linkable=[False] * 3)
    assert (found.bytes_out, found.bytes_computed, found.bytes_linked, found.bytes_copied) == (72, 48, 24, 0)
    assert found.bytes_read == 2 * computed.cut.read == 48
    assert found.bytes_dead == 5
    one = costs_of([computed], memory=1 << 30, workers=2, dead=0, linkable=[False])
    assert one.peak_memory == 4 * computed.cut.working_set + 24  # two workers with two tasks each, and writes
    two = costs_of([computed, computed], memory=10, workers=2, dead=0, linkable=[False] * 2)
    assert two.peak_memory == 10  # within the budget


DECISIONS = """version: 1
unmatched: drop
passes:
- unmatched: keep
  rules: [{match: a, drop: true}, {match: b, to: c}, {match: g, value: x + 1}]
- rules:
  - {match: c, drop: true}
  - {match: d, to: {n: 'zeros([2], "int8")'}}
  - {match: e}
  - {match: g, drop: true}
"""


def test_the_first_decision_against_a_leaf_is_why_it_is_dropped() -> None:
    plan = plan_of(DECISIONS, [*"abdefg"])
    assert [(gone.leaf.key.text, gone.why, str(gone.rule)) for gone in plan.dropped] == [
        ("a", "drop", "passes[0].rules[0] (line 5)"),
        ("b", "drop", "passes[1].rules[0] (line 7)"),
        ("d", "no output uses it", "passes[1].rules[1] (line 8)"),
        ("f", "unmatched: drop", "None"),
        ("g", "drop", "passes[1].rules[3] (line 10)"),
    ]


def test_what_a_format_cannot_hold_is_a_problem_of_the_rule_that_made_it() -> None:
    def unsupported(leaves: object) -> list[str]:
        return ["`n/0` has a bad name", "`n/1` has a bad name", "`z` is too long", "it is Tuesday"]

    rules = "rules:\n- {match: '(\\d)', to: 'n/\\1'}\n- {match: z}\n"
    problems = problems_of(plan_of, HEAD + rules, ["0", "1", "z", "y"], unsupported=unsupported)
    assert [(p.message, p.place and p.place.line) for p in problems] == [
        ("`n/{0,1}` (2 leaves) has a bad name", 3),
        ("`z` is too long", 4),
        ("it is Tuesday", None),
    ]


def test_leaves_alike_are_cut_alike() -> None:
    plan = plan_of(HEAD, {"a": "float32[4096,4096]", "b": "float32[4096,4096]", "c": "float32[4096,8]"})
    first, second, third = (one.cut for one in plan.steps)
    assert first is second
    assert third != first


def test_a_budget_that_is_too_small_names_every_leaf() -> None:
    leaves = {"a": "float32[4000]", "b": "float32[4000]"}
    first, second = (problem.message for problem in problems_of(plan_of, HEAD, leaves, memory=1000))
    assert first.startswith("`a`: one element needs 31.3 KiB of memory")
    assert second == first.replace("`a`", "`b`")


def test_dtypes_that_differ_from_the_targets() -> None:
    source = {"l/0": "float32[2]", "l/1": "float32[2]", "m": "int8[2]", "n": "int8[2]"}
    target = {**source, "l/0": "bfloat16[2]", "l/1": "bfloat16[2]", "m": "int16[2]"}
    assert plan_of(HEAD, source, target=target).warnings == (
        "`l/{0,1}` (2 leaves) is float32, in the target bfloat16 (and 1 more leaves differ in dtype); "
        "`target: {dtype: target}` casts",
    )
    cast = plan_of(f"{HEAD}target: {{dtype: target}}\n", source, target=target)
    assert cast.warnings == ()
    assert [str(one.fate) for one in cast.steps] == ["transformed", "transformed", "transformed", "kept"]
