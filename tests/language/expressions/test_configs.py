"""`config` in expressions, and params that come from it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ckpt_surgery.core.errors import PlanError, SourceError
from ckpt_surgery.language.expressions.lookups import Config, Configs, Layer
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.language.expressions.scope import ExpressionError, Scope
from ckpt_surgery.language.loading import LoadedRecipe, ParamSource, ParamValue, parse_recipe, unsaid

MODEL: Mapping[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 26,
    "rope_theta": 10000,
    "tie_word_embeddings": False,
    "head_dim": None,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "layer_types": ["full", "sliding"],
    "towers": [{"depth": 3}, None],
    "text_config": {"hidden_size": 64, "num_hidden_layers": 12},
}
ABSENT = "there is no config.json beside m"


def config_of(*layers: Layer, name: str = "config") -> Config:
    return Config(name, ABSENT, lambda: layers)


CONFIG = config_of(Layer("config.json", MODEL))
ADAPTER = config_of(Layer("adapter_config.json", {"r": 8}), name="configs['lora']")
NONE = config_of()
CONFIGS = Configs({"source": CONFIG, "lora": ADAPTER, "bare": NONE})


def value(text: str, config: Config = CONFIG) -> Any:
    return parse(text).evaluate(Scope({"config": config, "configs": CONFIGS}))


def refusal(text: str, config: Config = CONFIG) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        value(text, config)
    return caught.value


VALUES: Sequence[tuple[str, Any]] = (
    ("config['num_hidden_layers'] + 1", 27),
    ("config['layer_types']", ["full", "sliding"]),
    ("config['layer_types'][-1]", "sliding"),
    ("'full' in config['layer_types']", True),
    ("config['towers'][0]['depth']", 3),
    ("f\"{config['model_type']}-{config['num_hidden_layers']}\"", "llama-26"),
    ("config['head_dim']", None),
    ("configs['lora']['r']", 8),
    # has: the last entry, and all on the way
    ("has(config['model_type'])", True),
    ("has(config['nothing'])", False),
    ("has(config['head_dim'])", False),
    ("has(config['model_type']['factor'])", False),
    ("has(config['towers'][1]['depth'])", False),
    ("has(config['towers'][2])", False),
    ("has(configs['lora']['r'])", True),
    ("has(configs['lora'])", True),
    ("has(configs['bare'])", False),
    ("has(configs['other']['r'])", False),
    ("'factor' in config['rope_scaling']", True),
    ("'head_dim' in config", False),
    # get
    ("get(config['tie_word_embeddings'], True)", False),
    ("get(config['head_dim'], 128)", 128),
    ("get(config['rope_scaling']['nothing'], 'default')", "default"),
)


@pytest.mark.parametrize(("text", "wanted"), VALUES, ids=[text for text, _ in VALUES])
def test_values(text: str, wanted: Any) -> None:
    found = value(text)
    assert found == wanted
    assert type(found) is type(wanted)


REFUSALS = (
    ("config['num_layers']", "config.json has no entry 'num_layers'; did you mean `num_hidden_layers`?"),
    ("config['rope_scaling']['type']", "has no entry 'type'; did you mean `rope_type`?"),
    ("config['towers'][2]", "index 2 is out of bounds for a list of 2 values"),
    ("config[0]", "the entries of `config` have names; look them up by text"),
    ("config['rope_scaling'] * 2", "`*` does not take the entries of `config['rope_scaling']` and the n"),
    ("config['model_type']['a']", "the text 'llama' is indexed with an integer, not the text 'a'"),
    ("not config['rope_scaling']", "the entries of `config['rope_scaling']` is neither true nor false"),
    ("configs['loar']['r']", "no source is called 'loar', so it has no config; did you mean `lora`?"),
    ("kind(config['a'])", "`kind` looks into a source or the target, not the entries of `config`"),
)


@pytest.mark.parametrize(("text", "told"), REFUSALS, ids=[text for text, _ in REFUSALS])
def test_refusals(text: str, told: str) -> None:
    assert told in refusal(text).message


def test_where_there_is_no_file() -> None:
    assert refusal("config['a']", NONE).message == f"{ABSENT}, and so `config` has no entry 'a'"
    assert value("has(config['a']['b'])", NONE) is False
    assert value("get(config['a'], 3)", NONE) == 3


def test_metadata_that_say_nothing_of_a_model_are_no_config() -> None:
    config = config_of(Layer("the custom metadata", {"format": "pt"}, of_model=False))
    assert value("config['format']", config) == "pt"
    assert refusal("config['a']", config).message == f"{ABSENT}, and so `config` has no entry 'a'"
    assert config.without(["a"]) == ABSENT


def test_it_is_read_once_and_only_if_it_is_asked_for() -> None:
    reads = []

    def load() -> Sequence[Layer]:
        reads.append(1)
        return [Layer("config.json", MODEL)]

    config = Config("config", ABSENT, load)
    value("1 + 1", config)
    assert reads == []
    value("config['model_type'] if has(config['model_type']) else config['x']", config)
    assert reads == [1]


def test_a_damaged_file_is_an_error_of_whatever_asks() -> None:
    def load() -> Sequence[Layer]:
        raise SourceError("m/config.json is not valid JSON")

    found = refusal("has(config['a'])", Config("config", ABSENT, load))
    assert found.message == "m/config.json is not valid JSON"


RECIPE = """version: 1
params:
  layers: {default: 32, config: [num_hidden_layers, text_config/num_hidden_layers]}
  width: {default: 1, config: [hidden_size, text_config/hidden_size]}
  theta: {default: 1.5, config: rope_theta}
  first: {default: none, config: layer_types/0}
  head_dim: {default: 128, config: head_dim}
  num_layer: {default: 7, config: num_hidden_layer}
  scan: true
"""


def loaded(config: Config, *overrides: str, recipe: str = RECIPE) -> LoadedRecipe:
    return replace(parse_recipe(recipe, "r.yaml", overrides), configs=Configs({"source": config}))


def test_params_come_from_the_config() -> None:
    recipe = loaded(CONFIG, "layers=4", "scan=false")
    file = "config.json"
    assert recipe.param_values == (
        ParamValue("layers", 4, ParamSource.SET),
        ParamValue("width", 64, ParamSource.CONFIG, "text_config/hidden_size", file),
        ParamValue("theta", 10000.0, ParamSource.CONFIG, "rope_theta", file),
        ParamValue("first", "full", ParamSource.CONFIG, "layer_types/0", file),
        ParamValue("head_dim", 128, ParamSource.DEFAULT, None, "config.json has no `head_dim`"),
        ParamValue(
            "num_layer",
            7,
            ParamSource.DEFAULT,
            None,
            "config.json has no `num_hidden_layer`; did you mean `num_hidden_layers`?",
        ),
        ParamValue("scan", False, ParamSource.SET),
    )
    assert type(recipe.params["theta"]) is float
    assert recipe.names["layers"] == 4


def test_without_a_file_the_defaults_hold_with_a_note() -> None:
    recipe = loaded(NONE, "layers=4")
    assert (recipe.params["layers"], recipe.params["theta"]) == (4, 1.5)
    assert unsaid(recipe.param_values) == [
        f"by default width=1, theta=1.5, first=none, head_dim=128, num_layer=7 ({ABSENT})"
    ]


def test_a_value_of_another_type_is_refused_where_the_param_is() -> None:
    for given, told in (
        ("12", "`n` in config.json is the text '12', not an integer"),
        (True, "`n` in config.json is True, not an integer"),
        (2.0, "`n` in config.json is the number 2.0, not an integer"),
        ({"a": 1}, "`n` in config.json is the entries of `config['n']`, not an integer"),
        (1 << 200, "the integer is too large: 201 bits, the limit is 128"),
    ):
        text = "version: 1\nparams:\n  n: {default: 1, config: n}\n  m: 2\n"
        with pytest.raises(PlanError) as caught:
            loaded(config_of(Layer("config.json", {"n": given})), recipe=text).params
        (problem,) = caught.value.problems
        assert problem.message == told
        assert problem.place is not None
        assert (problem.place.line, problem.place.column) == (3, 6)
