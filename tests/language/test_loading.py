"""Recipes as files: what they become, and every problem of one at once with its place."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import RecipeError, SurgeryError, UsageError
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.language.expressions.scope import Table
from ckpt_surgery.language.loading import LoadedRecipe, load_recipe, parse_recipe
from ckpt_surgery.language.patterns.templates import parse_template
from ckpt_surgery.language.schema.fields import OutputPolicy, Pass, Recipe, Rule, TargetPolicy, schema
from tests.support.effort import examples
from tests.support.strategies import documents

WHOLE = r"""# yaml-language-server: $schema=recipe.schema.json
version: 1
params: {head_dim: 128}       # overridable: --set head_dim=64
tables: {matrix: {q: query, k: key}}
sources: [image, text]
target: {prefer: source, on_shape_mismatch: error}
output: {format: orbax, zarr: 3}
unmatched: keep
rules:
  - match: 'encoder/layer_(?P<n>\d+)/(?P<m>[qk])/kernel'
    to: 'image/layers/${n}/${matrix[m]}/kernel'
    value: rearrange(x, 'd (h k) -> d h k', k=head_dim)
  - {match: '.*/opt_state/.*', drop: true}
  - {add: fusion/kernel, value: 'zeros((512, 256), "bfloat16")'}
"""


def rules(text: str) -> LoadedRecipe:
    """A recipe of these rules, which start on line 3."""
    return parse_recipe(f"version: 1\nrules:\n{text.lstrip()}", "r.yaml")


def problems(text: str) -> list[tuple[int, int, str]]:
    """Line, column and message of every problem."""
    with pytest.raises(RecipeError) as caught:
        parse_recipe(text, "r.yaml")
    return [(p.place.line, p.place.column, p.message) for p in caught.value.problems if p.place]


def problems_of(rule: str, header: str = "") -> list[tuple[int, int, str]]:
    """The problems of a recipe of one rule in flow style on line 1; columns count from the rule's `{`."""
    found = problems(f"rules: [{rule}]\nversion: 1\n{header}")
    return [(line, column - len("rules: ["), told) for line, column, told in found]


# --- what recipes become --------------------------------------------------------------------------------


def test_the_whole_recipe() -> None:
    loaded = parse_recipe(WHOLE, "dir/r.yaml")
    recipe = loaded.recipe
    assert (loaded.path, loaded.sha256) == ("dir/r.yaml", hashlib.sha256(WHOLE.encode()).hexdigest())
    assert loaded.params == {"head_dim": 128}
    assert loaded.names["head_dim"] == 128
    assert loaded.names["matrix"] == Table("matrix", {"q": "query", "k": "key"}, loaded.params)
    assert recipe.sources == ("image", "text")
    assert recipe.target == TargetPolicy(prefer="source", on_shape_mismatch="error")
    assert recipe.output == OutputPolicy(format="orbax", zarr=3)
    first, second, third = recipe.passes[0].rules
    assert first.match is not None
    assert first.match.fullmatch("encoder/layer_3/q/kernel") is not None
    assert first.to == parse_template("image/layers/${n}/${matrix[m]}/kernel")
    assert first.value == parse("rearrange(x, 'd (h k) -> d h k', k=head_dim)")
    assert second.drop is True
    assert third.add == parse_template("fusion/kernel")


def test_outputs_of_a_mapping_keep_their_order_and_rules_have_sources() -> None:
    several = "{match: x, to: {'${key}/q': 'x[:4]', k: 'x[4:]'}, source: b}, {match: y, source: [a, b]}"
    loaded = parse_recipe(
        f"version: 1\nsources: [a, b]\nrules: [{several}, {{match: z, source: '*'}}]", "r.yaml"
    )
    first, *others = loaded.recipe.passes[0].rules
    assert isinstance(first.to, Mapping)
    assert [t.text for t in first.to] == ["${key}/q", "k"]
    assert [v.text for v in first.values] == ["x[:4]", "x[4:]"]
    assert first.templates == tuple(first.to)
    assert [rule.source for rule in (first, *others)] == ["b", ("a", "b"), "*"]


def test_passes() -> None:
    rule = "{match: a, value: x, mirror_value: x * 4}"
    first = f"{{when: count('a') > 0, mirror: {{params: [mu, nu]}}, rules: [{rule}]}}"
    second = "{unmatched: error, rules: [{match: b}, {match: c, value: x + 1}]}"
    loaded = parse_recipe(f"version: 1\nunmatched: drop\npasses:\n- {first}\n- {second}\n", "r.yaml")
    one, other = loaded.recipe.passes
    assert (loaded.recipe.unmatched, one.unmatched, other.unmatched) == ("drop", None, "error")
    assert one.mirror == {"params": ("mu", "nu")}
    assert one.rules[0].mirror_value == parse("x * 4")
    assert loaded.rule_location(1, 1) == ("passes", 1, "rules", 1)
    place = loaded.place((*loaded.rule_location(1, 1), "value"), 4, 5)
    assert (place.line, place.column, place.width) == (5, second.index("x + 1") + 7, 1)


# --- problems -------------------------------------------------------------------------------------------


HEADERS = [
    ("version: true", (1, 10), "version 1 of the recipe language, not true"),
    ("rules: []", (1, 1), "`version` is missing"),
    ("version: 1\nrules:", (2, 1), "`rules` has no value"),
    ("version: 1\nrules: [a]", (2, 9), "`rules[0]` has to be a mapping of fields, not 'a'"),
    ("version: 1\ndescription: 3", (2, 14), "`description` has to be text, not 3; write it in quotes"),
    ("version: 1\nparams: {a: null}", (2, 13), "`a` has to be text, a number, true or false, or a list"),
    ("version: 1\nparams: {a: {config: b}}", (2, 13), "`default` is missing"),
    ("version: 1\nparams: {a: {default: {b: 1}}}", (2, 23), "not a mapping"),
    ("version: 1\nparams: {a: {default: 1, config: 1}}", (2, 34), "has to be a path such as"),
    ("version: 1\nparams: {3: 1}", (2, 10), "has to be text"),
    ("version: 1\nparams: {a-b: 1}", (2, 10), "`a-b` is not a valid name"),
    ("version: 1\ntables: {a: 3}", (2, 13), "`a` has to be a mapping, not 3"),
    ("version: 1\nsources: []", (2, 10), "at least one source with a name"),
    ("version: 1\nsources: ['*', a]", (2, 11), "any number of further sources; it must come last"),
    ("version: 1\noutput: {structure_file: true}", (2, 26), "for versions of Orbax that only read zarr 2"),
    ("version: 1\nsources: [a, a]", (2, 14), "`a` is already a source"),
    ("version: 1\nsources: [a, 3]", (2, 14), "has to be text, not 3"),
    ("version: 1\nhooks: /etc/hooks.py", (2, 8), "a Python file beside the recipe"),
    ("version: 1\noutput: {zarr: 4}", (2, 16), "`zarr` must be one of 3 or 2, not 4"),
    ("version: 1\noutput: {fromat: orbax}", (2, 10), "unknown field `fromat`; did you mean `format`?"),
    ("version: 1\noutput: {sharding: source}", (2, 20), "must be one of target or none, not 'source'"),
    ("version: 1\noutput: {sharding: {specs: {x: []}}}", (2, 20), "`sharding` needs a `mesh`"),
    ("version: 1\noutput: {sharding: {mesh: {a: 0}, specs: {}}}", (2, 27), "axes with their lengths"),
    ("version: 1\noutput: {sharding: {mesh: {a: true}, specs: {}}}", (2, 27), "axes with their lengths"),
    ("version: 1\noutput: {sharding: {mesh: {a: 2}, specs: {x: a}}}", (2, 46), "has to be a list of mesh"),
    ("version: 1\nrules: []\npasses: []", (2, 1), "`rules` must be inside one of the `passes`"),
    ("version: 1\nmirror: {a: [b]}\npasses: []", (2, 1), "`mirror` must be inside one of the `passes`"),
    ("version: 1\npasses: [{rule: []}]", (2, 11), "unknown field `rule`; did you mean `rules`?"),
    ("version: 1\npasses: [{when: a}]", (2, 17), "unknown name `a`"),
    ("version: 1\npasses: [{name: }]", (2, 11), "`name` has no value"),
    ("version: 1\nmirror: {/a: [b]}", (2, 10), "a mirrored tree is given by its key"),
]


@pytest.mark.each
@pytest.mark.parametrize(("text", "place", "message"), HEADERS, ids=[row[0][:50] for row in HEADERS])
def test_problems_of_a_recipe(text: str, place: tuple[int, int], message: str) -> None:
    ((line, column, told),) = problems(text)
    assert message in told
    assert (line, column) == place


RULES = [
    # which fields go together
    ("{match: }", 2, "`match` has no value"),
    ("{match: a, form: b}", 12, "unknown field `form`; did you mean `for`?"),
    ("{fill: a, for: {i: range(2)}}", 11, "`for` goes with `match` or `add`, not with `fill`"),
    ("{add: a, value: '1', source: source}", 22, "`source` goes with `match` or `fill`, not with `add`"),
    ("{match: a, to: {}}", 12, "`to` is an empty mapping"),
    ("{match: a, to: b, for: {}}", 19, "`for` is an empty mapping"),
    ("{match: a, by: key}", 12, "`by` orders leaves that share one `to`; there is no `to`"),
    ("{match: a, to: b, by: key, value: x}", 19, "`by` orders `xs`, which no value of the rule uses"),
    ("{fill: a, fallback: true, let: {t: x}}", 27, "`let` does not go with `fallback: true`"),
    ("{match: a, let: {}}", 12, "`let` is an empty mapping"),
    # types
    ("{match: a, to: 3}", 16, "`to` has to be a key template, as text, not 3"),
    ("{match: a, to: {b: 3}}", 20, "`b` has to be an expression, as text, not 3"),
    ("{match: a, to: {several: x, 'b/': x}}", 31, "the key has an empty component"),
    ("{match: a, to: {'b/${': x}}", 20, "`${` is not closed"),
    ("{match: a, source: [3]}", 21, "has to be text, not 3"),
    ("{match: a, source: []}", 20, "the list of sources is empty"),
    # regular expressions and templates
    ("{fill: 'a**'}", 11, "not a regular expression: multiple repeat"),
    ("{add: 'b/\\1', value: '1'}", 10, "no regular expression here could have a group 1"),
    # names
    ("{match: '(?P<len>.)'}", 14, "the group `len` is a function"),
    ("{match: '(?P<source>.)'}", 14, "the group `source` is already a source"),
    ("{match: a, to: 'b/${p}', for: {p: range(2)}}", 32, "`p` is already a param"),
    ("{match: a, when: i > 1, to: '${i}', for: {i: range(2)}}", 18, "unknown name `i`"),
    ("{add: a, value: 'g[1]'}", 18, "`g` holds the groups"),
    ("{add: a, when: key, value: '1'}", 16, "`key` is the key that a rule claimed"),
    ("{match: a, let: {p: x}}", 18, "`p` is already a param"),
    ("{match: a, to: '${i}', for: {i: range(2)}, let: {i: x}}", 50, "`i` is already a variable of `for`"),
    ("{match: a, let: {t: x + u}, value: t}", 25, "unknown name `u`"),
    ("{match: a, let: {t: u, u: x}, value: t}", 21, "`u` is not known yet: an entry of `let` sees those"),
    ("{match: a, let: {t: x}, when: t}", 31, "unknown name `t`"),
    ("{match: a, let: {t: x}, to: '${t}'}", 32, "unknown name `t`"),
    ("{match: a, let: {t: x}, to: b, by: t, value: xs}", 36, "unknown name `t`"),
    # expressions
    ("{match: a, when: \"count('(') > 1\"}", 19, "not a regular expression"),
]


@pytest.mark.each
@pytest.mark.parametrize(("rule", "column", "message"), RULES, ids=[row[0] for row in RULES])
def test_problems_of_a_rule(rule: str, column: int, message: str) -> None:
    ((line, found, told),) = problems_of(rule, "params: {p: 1}\ntables: {table: {a: b}}")
    assert message in told
    assert (line, found) == (1, column)


GOOD = [
    "{match: a, to: b, let: {s: stack(xs), t: s.T}, by: key, value: t}",
    "{match: '(?P<n>.*)', for: {i: range(p)}, to: {'${n}${i}': t}, let: {t: 'x[i]'}}",
    "{fill: a, fallback: missing, let: {t: x.T}, value: t}",
    "{add: a, let: {n: len(key)}, value: n}",
    "{match: a, source: [source], value: mean(xs)}",
    "{match: '(?P<n>.)', to: '${n}', by: int(n), value: stack(xs)}",
    "{match: a, to: {b: 'stack(xs)', c: 'concat(xs)'}, by: key}",
    "{match: a, to: '${i}${p}', for: {i: 'range(x.ndim + p)'}, value: 'x[i] * p'}",
    "{match: (.), when: 'g[1] == key and has(target[key])', drop: true}",
    "{fill: (.), from: '\\1/${key}/${table[g[1]]}', when: x.ndim == 1, value: 'x + source[key]'}",
    "{add: '${table[i]}', for: {i: '[1, 2]'}, when: i > 1, value: 'ones((i,), ''float32'')'}",
    "{match: a, drop: false, optional: false, to: b}",
    "{match: a, mirror_value: x * 2, value: x}",
]


@pytest.mark.parametrize("rule", GOOD)
def test_rules_without_problems(rule: str) -> None:
    header = "params: {p: 1}\ntables: {table: {a: b}}\nmirror: {params: [opt]}"
    assert len(parse_recipe(f"rules: [{rule}]\nversion: 1\n{header}", "r").recipe.passes[0].rules) == 1


def test_fields_without_a_value_are_one_problem_each() -> None:
    found = problems("version: 1\nparams:\ntables:\nrules:\nhooks:")
    assert [p[:2] for p in found] == [(2, 8), (3, 8), (4, 1), (5, 1)]


def test_a_broken_field_hides_no_other_problem_and_makes_none() -> None:
    text = """version: 1
params: {p: {}}
sources: [3]
rules:
  - match: '(?P<n>a'
    to: '${n}/${p}/\\4'
    for: {i: 3}
    value: p * i + stak(n)
  - fill: b
    source: other
    value: p * yy
"""
    assert [p[:2] for p in problems(text)] == [(2, 13), (3, 11), (5, 13), (7, 14), (8, 20), (11, 16)]


def test_problems_of_the_document_are_not_told_twice() -> None:
    assert [p[:2] for p in problems("version: 1\nrules:\n- {match: &a b, drop: no, to: *a}")] == [
        (3, 11),
        (3, 23),
        (3, 31),
    ]


def test_a_hostile_number_of_problems_is_cut() -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe("version: 1\nrules:\n" + "- {match: a, zap: 1}\n" * 150, "r.yaml")
    assert len(caught.value.problems) == 101
    assert str(caught.value.problems[-1]) == "and 50 more problems"


FIELDS = (
    *("version", "rules", "passes", "match", "to", "for", "value", "source", "sources", "params", "tables"),
    *("let", "mirror", "when", "by", "drop", "fill", "add", "from", "unmatched", "target", "output", "zap"),
)
DATA = documents(
    st.sampled_from([1, 0, True, None, 0.5, "a", "x", "(?P<n>.)", "${n}", "a//b", "xs", "range(2)", "*", ""]),
    st.sampled_from(FIELDS) | st.just(3),
    max_leaves=15,
)


@examples(250)
@given(st.dictionaries(st.sampled_from(FIELDS), DATA, max_size=5))
def test_any_document_is_a_recipe_or_told_why_not(value: Mapping[str, Any]) -> None:
    text = json.dumps({"version": 1, **value})
    try:
        parse_recipe(text, "r.yaml")
    except SurgeryError as error:
        assert all(problem.place is not None for problem in error.problems)


# --- overrides ------------------------------------------------------------------------------------------

PARAMS = "version: 1\nparams: {whole: 1, part: 0.5}"


def test_all_overrides_are_looked_at_and_the_last_wins() -> None:
    loaded = parse_recipe(PARAMS, "r.yaml", ["whole=2", "whole=3"])
    assert (loaded.params["whole"], loaded.names["whole"]) == (3, 3)
    assert loaded.recipe.params["whole"].default == 1
    with pytest.raises(UsageError) as caught:
        parse_recipe(PARAMS, "r.yaml", ["a=1", "b=2"])
    assert len(caught.value.problems) == 2
    with pytest.raises(UsageError, match="the recipe has no params"):
        parse_recipe("version: 1", "r.yaml", ["a=1"])


# --- files and schema -----------------------------------------------------------------------------------


def test_load_recipe(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(WHOLE)
    loaded = load_recipe(path, ["head_dim=64"])
    assert loaded.path == str(path)
    assert loaded.params == {"head_dim": 64}
    assert loaded.place(("rules", 0, "value")).file == str(path)
    with pytest.raises(UsageError, match="recipe not found:"):
        load_recipe(tmp_path / "none.yaml")


def test_schema() -> None:
    described = schema()
    json.dumps(described)
    assert described["title"] == "ckpt-surgery recipe"
    assert described["additionalProperties"] is False
    assert described["required"] == ["version"]
    assert set(described["properties"]) == {
        *("version", "description", "params", "tables", "sources", "target", "input", "output"),
        *("hooks", "unmatched", "mirror", "rules", "passes"),
    }
    rule = described["$defs"]["Rule"]
    assert {"match", "for", "from", "to", "let", "value", "mirror_value"} <= set(rule["properties"])
    assert not {"for_", "from_"} & set(rule["properties"])
    assert rule["properties"]["match"]["format"] == "regex"
    assert rule["properties"]["value"]["type"] == "string"
    assert {"type": "null"} not in json.loads(json.dumps(rule))["properties"]["to"].get("anyOf", [])


@pytest.mark.parametrize("model", [Recipe, Pass, Rule])
def test_every_field_is_described_in_the_schema(model: type) -> None:
    described = schema() if model is Recipe else schema()["$defs"][model.__name__]
    assert all(field.get("description") for field in described["properties"].values())
    assert described["description"]
