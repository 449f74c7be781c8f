"""Configurations are checked as a whole, and every problem has its line and a caret."""

import textwrap

import pytest

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.merging.reading import parse_config

LINEAR = """
merge_method: linear
models:
  - model: a
    parameters: {weight: 1}
  - model: b
    parameters:
      weight: [0, 0.5, 1e-3]
"""


def problems(text: str) -> list[str]:
    """Line, column and message of every problem."""
    with pytest.raises(RecipeError) as caught:
        parse_config(textwrap.dedent(text), "merge.yaml")
    assert caught.value.exit_code == 2
    return [
        f"{p.place.line}:{p.place.column} {p.message}" if p.place else p.message
        for p in caught.value.problems
    ]


def test_a_configuration_is_read() -> None:
    config = parse_config(LINEAR + "parameters:\ndtype: torch.bfloat16\n", "merge.yaml").config
    assert [model.model for model in config.models or ()] == ["a", "b"]
    assert config.parameters == {}
    assert (config.dtype, config.out_dtype) == ("bfloat16", None)


WRONG = {
    "merge_method: liner\nmodels: []": [
        "1:15 not a method: `liner`; did you mean `linear`?",
        "2:9 `models` is empty",
    ],
    "models: [{model: a}]": ["1:1 `merge_method` is missing"],
    "merge_method: linear": ["1:1 `models` or `slices` is missing: what is merged"],
    "[1]": ["1:1 a configuration is a mapping with `merge_method` and `models` or `slices`"],
    "merge_method: linear\nmodel: [{model: a}]\ntokenizer_source: base": [
        "1:1 `models` or `slices` is missing: what is merged",
        "2:1 unknown field `model`; did you mean `models`?",
        "3:1 `tokenizer_source` is a field of mergekit that `merge` does not take",
    ],
    "merge_method: linear\nmodels:\n  - {model: a, weight: 1}": [
        "3:5 the parameter `weight` is missing for this model",
        "3:16 unknown field `weight`; known are model, parameters",
    ],
    "merge_method: linear\nmodels: a\ndtype: int64": [
        "2:9 `models` has to be a list, not 'a'",
        "3:8 `dtype` must be one of float32, bfloat16, float16 or float64, not 'int64'",
    ],
    "merge_method: linear\nmodels:\n  - model: a\n    parameters: {weigth: 1, weight: {filter: mlp}}": [
        "4:37 `weight` has to be a number, a list of numbers, or a list of {filter: TEXT, value: NUMBER}, "
        "not a mapping",
    ],
    "merge_method: linear\nmodels:\n  - model: a\n    parameters: {weigth: 1, weight: heavy}": [
        "4:18 unknown parameter `weigth`; did you mean `weight`?",
        "4:37 `weight` has to be a number, not 'heavy'",
    ],
    "merge_method: task_arithmetic\nmodels: [{model: a, parameters: {weight: 1}}]": [
        "1:15 `base_model` is missing, which `task_arithmetic` needs",
    ],
    "merge_method: nearswap\nbase_model: a\nmodels: [{model: a}, {model: b}, {model: c}]": [
        "1:1 the parameter `t` is missing",
        "3:9 `nearswap` takes 2 models, the base included; there are 3",
    ],
    "merge_method: passthrough\nmodels: [{model: a}, {model: a}]": [
        "2:9 the model `a` is there twice",
    ],
    "merge_method: passthrough\nmodels: [{model: a}, {model: b}]": [
        "2:9 `passthrough` takes 1 model; there are 2",
    ],
    "merge_method: passthrough\nslices:\n  - sources: [{model: a, layer_range: [4, 2]}]\n  - sources: []": [
        "3:39 `layer_range` has to be the first layer and the one after the last, such as [0, 16], "
        "not [4, 2]",
    ],
    "merge_method: linear\nslices:\n  - sources:\n    - {model: a, layer_range: [0, 4]}\n"
    "    - {model: b, layer_range: [0, 3]}\nparameters: {weight: 1}": [
        "5:31 3 layers, where the first source of the slice has 4",
    ],
    "merge_method: nearswap\nbase_model: c\nparameters: {t: 0.1}\nslices:\n  - sources:\n"
    "    - {model: a, layer_range: [0, 4]}\n    - {model: b, layer_range: [0, 4]}": [
        "6:5 the base model `c` is not among the sources of the slice",
    ],
    "merge_method: linear\nmodels: &all [{model: a, parameters: {weight: 1}}]": [
        "2:9 an anchor (`&name`) is not accepted; write the value itself"
    ],
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_with_its_place(text: str) -> None:
    assert problems(text) == WRONG[text]
