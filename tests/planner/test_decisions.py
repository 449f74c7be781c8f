"""Who claims what: rules, policies, the target, and everything that is refused."""

import pytest

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.formats.opening import encoder
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.language.expressions import regexes
from ckpt_surgery.planner import running
from ckpt_surgery.planner.plan import Fate
from tests.support.calls import record_calls
from tests.support.leaves import key
from tests.support.passes import rules_of
from tests.support.plans import fates, plan_of, problems_of


@pytest.mark.each
@pytest.mark.parametrize(
    ("written", "leaves", "wanted"),
    [
        (["match: a, to: z"], ["a", "b"], {"z": "renamed", "b": "kept"}),
        ([r"match: 'l(\d)/(.*)', to: 'm\1/\2'"], ["l0/w"], {"m0/w": "renamed"}),
        (["match: '(?P<p>.*)/k', to: '${upper(p)}/k'"], ["a/k"], {"A/k": "renamed"}),
        (["match: a, to: b", "match: b, to: a"], ["a", "b"], {"a": "renamed", "b": "renamed"}),  # a swap
        (["match: a, drop: true"], ["a", "b"], {"a": "dropped", "b": "kept"}),
        (["match: '.*', value: x * 2"], ["a"], {"a": "transformed"}),
        (["match: a, to: b, value: x.T"], ["a"], {"b": "transformed"}),
        (["match: a, to: 'b/${x.shape[0]}'"], ["a"], {"b/2": "renamed"}),
        (["match: a, to: '$$a'"], ["a"], {"$a": "renamed"}),
        (["match: '.*', when: key == 'a', drop: true"], ["a", "b"], {"a": "dropped", "b": "kept"}),
        (["match: q, drop: true, optional: true"], ["a"], {"a": "kept"}),
    ],
)
def test_fates(written: list[str], leaves: list[str], wanted: dict[str, str]) -> None:
    assert fates(plan_of(rules_of(*written), leaves)) == wanted


@pytest.mark.parametrize("kind", ["string", "empty", "prng_key"])
def test_leaves_that_are_not_arrays_can_be_renamed_and_dropped(kind: str) -> None:
    plan = plan_of(rules_of("match: a, to: z", "match: b, drop: true"), dict.fromkeys("abc", kind))
    assert fates(plan) == {"z": "renamed", "b": "dropped", "c": "kept"}
    assert [str(s.leaf.kind) for s in plan.steps] == [kind, kind]


# --- lists and dicts --------------------------------------------------------------------------------------


@pytest.mark.each
@pytest.mark.parametrize(
    ("rule", "leaf", "wanted"),
    [
        ("match: 'o/0/(.*)', to: 'o/0/n/\\1'", "o/[0]/w", "o/[0]/n/w"),  # the same list
        ("match: 'o/(\\d)/w', to: 'p/\\1/w'", "o/[0]/w", "p/[0]/w"),  # carried by a group
        ("match: '(.*)/w', to: 'p/\\1/v'", "o/[0]/w", "p/o/[0]/v"),  # several at once
        ("match: 'o/0/w', to: 'p/0/w'", "o/[0]/w", "p/0/w"),  # new: a dict key
        ("match: 'o/w', to: 'p/[0]/w'", "o/w", "p/[0]/w"),  # new, written as an index
        ("match: 'o/(\\d)', to: 'o/x\\1'", "o/[0]", "o/x0"),  # no longer an index
    ],
)
def test_container_kinds(rule: str, leaf: str, wanted: str) -> None:
    (step,) = plan_of(rules_of(rule), [leaf]).steps
    assert step.leaf.key == key(wanted)


# --- sources, lookups, passes -------------------------------------------------------------------------------

MERGE = """version: 1
sources: [base, lora]
params: {scale: 2.0}
rules:
  - match: '(?P<p>.*)/kernel'
    when: has(lora[f'{p}/kernel/a'])
    value: x + scale * (lora[f'{p}/kernel/a'] @ lora[f'{p}/kernel/b'])
"""


def test_lookups_count_as_used() -> None:
    base = {"q/kernel": "float32[4,5]", "k/kernel": "float32[4,5]"}
    lora = {"q/kernel/a": "float32[4,2]", "q/kernel/b": "float32[2,5]", "other": "float32[1]"}
    plan = plan_of(MERGE, base, lora)
    assert fates(plan) == {"q/kernel": "transformed", "k/kernel": "kept", "other": "dropped"}
    assert plan.steps[0].sources == (("base", "q/kernel"), ("lora", "q/kernel/a"), ("lora", "q/kernel/b"))


def test_any_number_of_sources_and_their_names() -> None:
    rule = "match: '.*', source: '*', value: mean(xs) * len(sources)"
    plan = plan_of(rules_of(rule, head="sources: [s, '*']\n"), ["a"], ["a"], ["a"])
    assert plan.steps[0].sources == (("s", "a"), ("source_2", "a"), ("source_3", "a"))
    when = "version: 1\nsources: [s, '*']\npasses:\n- {when: len(sources) > 1, rules: [{match: a, to: b}]}\n"
    assert [s.leaf.key.text for s in plan_of(when, ["a"]).steps] == ["a"]
    assert [s.leaf.key.text for s in plan_of(when, ["a"], ["a"]).steps] == ["b"]


@pytest.mark.parametrize("kind", ["string", "empty", "prng_key", "scalar:int32", "float32[2]"])
def test_the_kind_of_a_leaf_can_be_asked_for(kind: str) -> None:
    wanted = {"scalar:int32": "scalar", "float32[2]": "array"}.get(kind, kind)
    text = rules_of(r"match: '.*', to: '${kind(source[key])}/\g<0>'")
    assert fates(plan_of(text, {"a": kind})) == {f"{wanted}/a": "renamed"}


def test_passes_see_the_names_of_the_one_before_and_fates_are_judged_over_all() -> None:
    text = "version: 1\npasses:\n- rules: [{match: a, to: b}]\n- rules: [{match: b, to: a}]\n"
    assert fates(plan_of(text, ["a"])) == {"a": "kept"}


def test_a_pass_can_be_switched_off() -> None:
    text = "version: 1\nparams: {active: false}\npasses:\n- {when: active, rules: [{match: a, to: b}]}\n"
    assert fates(plan_of(text, ["a"])) == {"a": "kept"}
    assert fates(plan_of(text, ["a"], overrides=["active=true"])) == {"b": "renamed"}


def test_a_pass_can_ask_what_the_sources_have() -> None:
    text = """version: 1
passes:
  - {when: "count('l_.*') == 2", rules: [{match: 'l_(.)', to: 'm_\\1'}]}
  - {when: "has(source['m_0'])", rules: [{match: 'm_0', drop: true}]}
"""
    assert fates(plan_of(text, ["l_0", "l_1"])) == {"m_0": "renamed", "m_1": "renamed"}  # as they were given
    assert fates(plan_of(text, ["l_0"])) == {"l_0": "kept"}


def test_a_count_is_made_once_for_all_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = record_calls(monkeypatch, running, "count_of", lambda pattern, *_: pattern)
    text = rules_of("match: '.*', when: \"count('l.*') == 3\"")
    assert fates(plan_of(text, ["l_0", "l_1", "l_2"])) == {"l_0": "kept", "l_1": "kept", "l_2": "kept"}
    assert counted == ["l.*"]


@pytest.mark.each
@pytest.mark.parametrize(
    ("rule", "where"),
    [
        ("match: 'PATTERN', to: z", "match"),
        ("fill: 'PATTERN', value: 'zeros((2,), \"float32\")'", "fill"),
        ("match: b, when: \"count('PATTERN') > 0\", to: z", "when"),
        ("add: z, value: \"full((count('PATTERN'),), 1, 'int8')\"", "value"),
    ],
)
def test_a_pathological_pattern_stops_with_its_rule_named(
    rule: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regexes, "REGEX_SECONDS", 0.05)
    leaves = ["b", "a" * 40 + "!a"]
    with pytest.raises(PlanError, match=rf"rules\[0\].{where}\n(.|\n)*took more than 0.05 s"):
        plan_of(rules_of(rule.replace("PATTERN", "(?:(a|aa)+)+$")), leaves, target=leaves)


MIRROR = """version: 1
passes:
  - mirror: {params: [opt/0/mu, opt/0/nu]}
    rules:
      - {match: 'params/layer_(?P<n>\\d+)/(?P<r>.*)', to: 'params/layers/${r}', by: int(n), value: stack(xs)}
"""


def test_mirrored_trees() -> None:
    leaves = [f"{tree}/layer_{n}/w" for tree in ("params", "opt/[0]/mu", "opt/[0]/nu") for n in (0, 1)]
    plan = plan_of(MIRROR, leaves)
    assert [(step.leaf.key, str(step.leaf.spec)) for step in plan.steps] == [
        (key(text), "float32[2,2,3]")
        for text in ("params/layers/w", "opt/[0]/mu/layers/w", "opt/[0]/nu/layers/w")
    ]
    assert plan.steps[1].sources == (("source", "opt/0/mu/layer_0/w"), ("source", "opt/0/mu/layer_1/w"))


# --- the target -------------------------------------------------------------------------------------------

FALLBACK, PREFER = "target: {missing: fallback}\n", "target: {prefer: target}\n"


@pytest.mark.each
@pytest.mark.parametrize(
    ("head", "written", "source", "target", "wanted"),
    [
        (FALLBACK, [], ["a", "b"], ["a", "c"], {"a": "kept", "b": "dropped", "c": "defaulted"}),
        ("", [], ["a"], {"a": "float32[2,3]", "b/mu": "empty"}, {"a": "kept", "b/mu": "defaulted"}),
        (PREFER, [], ["a"], ["b"], {"a": "dropped", "b": "defaulted"}),
        (PREFER, [], ["a"], ["a"], {"a": "defaulted"}),
        ("", ["fill: z, from: a"], ["a", "b"], ["z", "b"], {"z": "renamed", "b": "kept"}),
        ("", ["fill: a, fallback: true"], ["a"], ["a"], {"a": "defaulted"}),
        (PREFER, ["fill: a, fallback: true"], ["a", "b"], ["a", "b"], {"a": "kept", "b": "defaulted"}),
        ("", ["fill: a, value: x * 2"], ["a"], ["a"], {"a": "transformed"}),
        ("", ["fill: z, value: \"source['a'] + source['b']\""], ["a", "b"], ["z"], {"z": "transformed"}),
        ("", ["fill: z, value: \"target['a']\""], ["a"], ["a", "z"], {"a": "kept", "z": "added"}),
        ("", ["match: a, to: z"], ["a", "z"], ["z"], {"z": "renamed"}),  # a rule's output wins over the name
        (FALLBACK, ["match: a, drop: true"], ["a"], ["a"], {"a": "defaulted"}),
        (f"{FALLBACK}unmatched: drop\n", [], ["a"], ["a"], {"a": "defaulted"}),
    ],
)
def test_with_a_target(
    head: str, written: list[str], source: list[str], target: list[str], wanted: dict[str, str]
) -> None:
    recipe = rules_of(*written, head=head) if written else f"version: 1\n{head}"
    assert fates(plan_of(recipe, source, target=target)) == wanted


@pytest.mark.parametrize(
    ("given", "wanted", "lost"),
    [
        ("float32", "int32", "fractions"),
        ("bfloat16", "uint16", "fractions"),
        ("int32", "bool", "everything but whether values are zero"),
        ("complex64", "float32", "the imaginary part"),
    ],
)
def test_a_cast_to_the_target_s_dtype_is_not_suggested_where_it_loses_values(
    given: str, wanted: str, lost: str
) -> None:
    source, target = {"a": "float32[2]", "b": f"{given}[2]"}, {"a": "bfloat16[2]", "b": f"{wanted}[2]"}
    (warning,) = plan_of("version: 1\n", source, target=target).warnings
    assert warning.endswith(f"; a cast of `b` loses {lost}")


def test_the_targets_container_kinds_hold() -> None:
    for source, target, readable in (("o/0/w", "o/[0]/w", True), ("o/[0]/w", "o/0/w", False)):
        (step,) = plan_of("version: 1\n", [source], target=[target], readable=readable).steps
        assert step.leaf.key == key("o/[0]/w")


def test_a_when_that_fails_is_the_only_problem() -> None:
    text = rules_of("match: a, when: 'x[9, 9, 9]', optional: true, drop: true", head="unmatched: error\n")
    assert len(problems_of(plan_of, text, ["a"])) == 1


def test_problems_of_several_rules_come_together_and_equal_ones_once() -> None:
    text = rules_of(
        "match: 'a.*', value: \"x + source['q']\"", "match: nothing, drop: true", "match: b, to: a1"
    )
    says = [str(p) for p in problems_of(plan_of, text, ["a1", "a2", "a3", "a4", "b"])]
    assert len(says) == 2
    assert "(at `a{1..4}`)" in says[0]
    assert "recipe.yaml:4" in says[1]


def test_the_lists_of_another_source_are_its_own() -> None:
    text = rules_of(r"match: 'l/(\d)/a', to: 'l/\1/b'", head="sources: [base, lora]\n")
    plan = plan_of(text, ["l/0/a", "l/1/a"], ["l/[0]/a"])
    assert {step.leaf.key.sequences for step in plan.steps} == {(False, False, False)}


@pytest.mark.parametrize("value", ["0", "zeros(x.shape, x.dtype)", "zeros([7], 'int8')"])
def test_a_leaf_whose_value_is_replaced_is_neither_dropped_nor_added(value: str) -> None:
    plan = plan_of(rules_of(f'match: b, to: c, value: "{value}"'), ["a", "b"])
    assert [(s.leaf.key.text, s.fate, s.sources, s.replaces) for s in plan.steps] == [
        ("c", Fate.TRANSFORMED, (("source", "b"),), True),
        ("a", Fate.KEPT, (("source", "a"),), False),
    ]
    assert (plan.dropped, plan.warnings) == ((), ())
    assert plan.steps[0].cut is not None
    assert plan.steps[0].cut.read == 0


@pytest.mark.parametrize("order", [("base", "lora"), ("lora", "base")])
def test_fill_takes_the_first_source_that_it_names(order: tuple[str, str]) -> None:
    text = rules_of(f"fill: a, source: [{', '.join(order)}]", head="sources: [base, lora]\n")
    plan = plan_of(text, ["a"], ["a"], target=["a"])
    assert [step.sources for step in plan.steps] == [((order[0], "a"),)]


SIDES = """version: 1
sources: [base, lora]
unmatched: error
passes:
- rules:
  - {match: a, value: "x + lora['a']"}
  - {match: junk, source: lora, drop: true}
- rules:
  - {match: a, to: b}
"""


def test_what_one_pass_has_settled_is_settled() -> None:
    plan = plan_of(SIDES, ["a"], ["a", "junk"])
    assert fates(plan) == {"junk": "dropped", "b": "transformed"}
    assert [(d.leaf.key.text, d.why) for d in plan.dropped] == [("junk", "drop")]
    with pytest.raises(PlanError, match="no rule claims `other`"):
        plan_of(SIDES, ["a"], ["a", "junk", "other"])


def test_a_leaf_of_another_source_may_wait_for_a_later_pass() -> None:
    text = SIDES.replace("  - {match: junk, source: lora, drop: true}\n", "").replace(
        "to: b}", "to: b}\n  - {match: junk, source: lora}"
    )
    assert fates(plan_of(text, ["a"], ["a", "junk"])) == {"b": "transformed", "junk": "kept"}


def test_a_leaf_whose_shape_was_asked_for_is_used() -> None:
    rule = "match: a, value: \"reshape(-x, source['b'].shape)\""
    text = rules_of(rule, head="unmatched: error\n")
    assert fates(plan_of(text, ["a", "b"])) == {"a": "transformed", "b": "dropped"}


def test_elements_of_the_target_need_not_be_used() -> None:
    text = rules_of("fill: e, value: \"concat([x, target['e'][2:]])\"")
    plan = plan_of(text, {"e": "float32[2,3]"}, target={"e": "float32[6,3]"})
    assert plan.warnings == ()


def test_leaves_of_several_sources_are_told_apart() -> None:
    text = rules_of("match: 'a', source: '*', to: b", head="sources: [base, lora]\n")
    with pytest.raises(PlanError, match=r"from `base:a`; .* from `lora:a`"):
        plan_of(text, ["a"], ["a"])


def test_a_gap_in_a_list_is_told_at_the_rule_that_made_it() -> None:
    orbax = encoder("orbax", SinkOptions())
    for rule in ("match: 'l/1', drop: true", "match: 'l/1', to: other"):
        with pytest.raises(PlanError, match=r"recipe.yaml:3:3  rules\[0\]\n(.|\n)*none at index 1"):
            plan_of(rules_of(rule), ["l/[0]", "l/[1]", "l/[2]"], unsupported=orbax.unsupported)
