"""Which rule claims which leaf, what `fill` rules give, and why rules claim nothing."""

import re
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.functions.arrays import reads
from ckpt_surgery.language.expressions.regexes import MatchBudget, compile_pattern
from ckpt_surgery.planner import claiming
from ckpt_surgery.planner.claiming import NearMiss, claim, filled, near_miss, why_unused
from ckpt_surgery.planner.problems import OPTIONAL
from ckpt_surgery.planner.running import Mirror, PassRun
from tests.support.passes import Described, pass_run_of, rules_of, target_of
from tests.support.plans import problems_of

MU = Mirror("params", "opt/0/mu")


def claimed(recipe: str, *sources: Described, mirrors: tuple[Mirror, ...] = ()) -> PassRun:
    """A pass after its rules have claimed leaves."""
    run = pass_run_of(recipe, *sources)
    run.mirrors = [*run.mirrors, *mirrors]
    claim(run)
    return run


def keys_of(run: PassRun) -> dict[int, list[str]]:
    return {rule.index: [one.entry.key.text for one in rule.claims] for rule in run.rules if rule.claims}


def test_a_rule_sees_the_leaves_of_its_sources() -> None:
    rules = ["match: x", "match: y, source: b", "match: z, source: '*'"]
    text = rules_of(*rules, head="sources: [a, b]\n")
    run = claimed(text, ["x", "y", "z"], ["x", "y", "z"])
    assert keys_of(run) == {0: ["x"], 1: ["y"], 2: ["z", "z"]}
    assert len(run.claimed) == 4


def test_what_a_mirror_shows() -> None:
    assert MU.seen("opt/0/mu/w") == "params/w"
    assert MU.seen("opt/0/mu") is None
    assert MU.seen("opt/0/mux/w") is None
    assert MU.seen("params/w") is None


def test_mirrored_leaves_are_matched_as_though_they_lay_elsewhere() -> None:
    rules = rules_of(r"match: 'params/(\w+)'", "match: '.*'")
    rule = claimed(rules, ["params/w", "opt/0/mu/w"], mirrors=(MU,)).rules[0]
    one, other = rule.claims
    assert (one.entry.key.text, one.match[1], one.mirror) == ("params/w", "w", None)
    assert (other.entry.key.text, other.match[1], other.mirror) == ("opt/0/mu/w", "w", MU)
    assert rule.names_of(other)["key"] == "opt/0/mu/w"


@pytest.mark.parametrize(("rule", "mirror"), [("", None), (", value: x + 1, mirror_value: x", MU)])
def test_a_leaf_that_matches_both_ways(rule: str, mirror: Mirror | None) -> None:
    """By its own key, unless the rule says what becomes of mirrored leaves."""
    text = f"version: 1\npasses:\n- mirror: {{params: [opt/0/mu]}}\n  rules: [{{match: '.*w'{rule}}}]\n"
    assert [one.mirror for one in claimed(text, ["opt/0/mu/w"]).rules[0].claims] == [mirror]


BELOW = "For all that is below, add `/.*`: a pattern has to match the whole key."
WHOLE = "A pattern has to match the whole key: write what stands around the part, or `.*`."
PART = "it matches only a part, `{}`, of keys such as `opt/decoder_layer_0/w`"
QUOTED = "For all keys that the regular expression matches, write a recipe: `match: 'opt/.*/w'`."


@pytest.mark.each
@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        (
            "(opt|ema)/decoder_layer_0",
            "it matches only the beginning of keys such as `opt/decoder_layer_0/w`",
            BELOW,
        ),
        (r"layer_(\d+)/(.*)", PART.format("layer_0/w"), WHOLE),
        ("(x)?", "no key matches", OPTIONAL),  # nothing is no part
        (r"(?i)LAYER_(\d+)/(.*)", PART.format("layer_0/w"), WHOLE),
        (r"(e).*\1r", PART.format("ecoder_layer"), WHOLE),
        (r"opt/\.\*/w", "no key is called `opt/.*/w`", QUOTED),
        (r"x\.\*", "no key matches", OPTIONAL),
    ],
)
def test_a_pattern_that_matches_parts_or_is_taken_literally(pattern: str, message: str, hint: str) -> None:
    run = claimed(rules_of(f"match: '{pattern}'"), ["opt/decoder_layer_0/w", "step"])
    (problem,) = why_unused(run.rules[0]).problems
    assert (problem.message, problem.hint) == (f"the rule claims nothing: {message}", hint)


def test_the_part_of_a_key_that_a_pattern_matches() -> None:
    keys = ["a/b/c", "d/b/c"]

    def missed(pattern: str) -> NearMiss | None:
        return near_miss(compile_pattern(pattern), keys, MatchBudget())

    assert missed("d/b") == ("beginning", "d/b", "d/b/c")
    assert missed("(a|d)/.") == ("beginning", "a/b", "a/b/c")
    assert missed("(a|d/b)") == ("part", "a", "a/b/c")  # an open end
    assert missed("b/c") == ("end", "b/c", "a/b/c")
    assert missed("x") is None


def test_a_pattern_that_is_slow_on_parts_of_keys_misses() -> None:
    """It is no error: the rule has one already."""
    ticks = count(step=3)
    matching = MatchBudget(lambda: next(ticks))
    assert near_miss(compile_pattern("b"), ["a/b"], matching) is None


PARTS = ["a", "ab", "l0", "l1", "w", "[a-l]+", ".*", "l\\d", "(a|w)", "w?"]
PARTS += ["(?P<n>\\w+)", "(?!a).*", "(?i:W)"]
PATTERNS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map("/".join)
KEYS = st.lists(st.sampled_from(["a", "ab", "l0", "l1", "w", "aw", "l" * 600]), min_size=1, max_size=3).map(
    "/".join
)
RULES = st.tuples(PATTERNS.filter(lambda text: text.count("?P<n>") < 2), st.none() | KEYS)
"""Patterns, each with a key that the rule's `when` refuses."""


@given(
    st.lists(RULES, min_size=1, max_size=7),
    st.lists(KEYS, min_size=1, max_size=12, unique=True),
    st.booleans(),
)
def test_the_first_rule_of_any_is_what_python_finds_one_by_one(
    rules: list[tuple[str, str | None]], keys: list[str], mirrored: bool
) -> None:
    """An alternation of the rules finds it; those with a look-ahead, and long keys, are matched apart."""
    recipe = rules_of(*(f"match: '{pattern}', when: key != '{refused}'" for pattern, refused in rules))
    mirrors = (Mirror("a", "l0"),) if mirrored else ()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claiming, "MOST_IN_BATCH", 3)
        found = keys_of(claimed(recipe, keys, mirrors=mirrors))
    wanted: dict[int, list[str]] = {}
    for key in keys:
        seen = [key, *(f"a{key[2:]}" for _ in mirrors if key.startswith("l0/"))]
        for i, (pattern, refused) in enumerate(rules):
            if key != refused and any(re.fullmatch(pattern, text) for text in seen):
                wanted.setdefault(i, []).append(key)
                break
    assert found == wanted


def test_a_pattern_without_a_safe_length_is_tried_on_the_root() -> None:
    assert keys_of(claimed(rules_of("match: '(?i).*'"), [""])) == {0: [""]}


TARGET = target_of(["a", "b", "l/0"])


def test_the_first_rule_that_matches_wins() -> None:
    rules = rules_of(
        "fill: a, from: x", "fill: '[ab]', fallback: true", r"fill: 'l/(\d)', from: 'm\1', value: x.T"
    )
    run = pass_run_of(rules, ["x", "m0"], target=TARGET)
    given = filled(run, TARGET)
    run.problems.raise_all()
    assert {
        text: (str(entry.rule), [(r.source, r.leaf.key.text) for r in reads(entry.value)])
        for text, entry in given.items()
    } == {
        "a": ("rules[0] (line 3)", [("source", "x")]),
        "b": ("rules[1] (line 4)", [("target", "b")]),
        "l/0": ("rules[2] (line 5)", [("source", "m0")]),
    }
    assert given["l/0"].value.spec.shape == (3, 2)


def test_a_when_that_is_false_leaves_the_key_to_the_next_rule() -> None:
    rules = rules_of("fill: '[ab]', when: key == 'b'", "fill: a, from: b")
    given = filled(pass_run_of(rules, ["a", "b"], target=TARGET), TARGET)
    assert {text: str(entry.rule) for text, entry in given.items()} == {
        "a": "rules[1] (line 4)",
        "b": "rules[0] (line 3)",
    }


@pytest.mark.each
@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (["fill: a"], "no source leaf is called `a` (at `a`)"),
        (["fill: l/1"], "the rule claims nothing: no key of the target matches; did you mean `l/0`?"),
        (["fill: l"], "the rule claims nothing: it matches only the beginning of keys such as `l/0`"),
        (["fill: a, when: 1 > 2"], "the rule claims nothing: `when` is false for `a`"),
        (
            ["fill: '[ab]', fallback: true", "fill: '[ab]', fallback: true"],
            "the rule claims nothing: earlier rules claimed all that it matches, 2 keys",
        ),
        (
            ["fill: a, when: int(key) > 0"],
            "`int` is for numbers and texts of integers, not 'a' (at `a`)",
        ),  # and nothing else
    ],
)
def test_problems(rules: list[str], says: str) -> None:
    run = pass_run_of(rules_of(*rules), ["kernel"], target=TARGET)
    filled(run, TARGET)
    assert [problem.message for problem in problems_of(run.problems.raise_all)] == [says]


def test_a_number_has_the_shape_and_dtype_that_the_target_wants() -> None:
    target = target_of({"a": "bfloat16[4]"})
    (entry,) = filled(pass_run_of(rules_of("fill: a, value: '0'"), ["b"], target=target), target).values()
    assert (entry.value.spec.shape, entry.value.spec.dtype.name) == ((4,), "bfloat16")


def test_an_optional_rule_may_claim_nothing() -> None:
    run = pass_run_of(rules_of("fill: z, optional: true"), ["a"], target=TARGET)
    assert filled(run, TARGET) == {}
    assert run.problems.is_empty
