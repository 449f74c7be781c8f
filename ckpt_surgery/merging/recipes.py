"""A merge as a recipe, whose rules each make a family of tensors with equal inputs; and its `config.json`.

So a recipe has tens of rules where a model has tens of thousands of tensors.
"""

import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.errors import FunctionError, PlanError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.language.checks.findings import Finding
from ckpt_surgery.merging.formula_inputs import FormulaInputs, Listings, ModelInputs, inputs_by_formula
from ckpt_surgery.merging.formulas import BASE, RESULT, Formula, formula
from ckpt_surgery.merging.models import MergeConfig, models_of
from ckpt_surgery.merging.reading import LoadedConfig

VARIABLES = "ijklmn"
"""Names of the variables for numbers in names; a name with more numbers is written out."""
TAIL = "tail"
"""Name of the variable for the ends of names."""
_NUMBER = re.compile(r"(?<=\.)(0|[1-9]\d*)(?=\.)")
_PLAIN = re.compile(r"[\w.\-]*")
"""Text that means itself in templates and in f-strings."""


@dataclass(frozen=True)
class Family:
    """The names of the form `START NUMBER TEXT NUMBER … TAIL`, for all numbers and all tails.

    `model.layers.{i}.mlp.{…}.weight` for all layers, say.
    """

    texts: tuple[str, ...]
    """The text before each number."""
    ranges: tuple[range, ...]
    """The numbers, one range after each text."""
    tails: tuple[str, ...]

    @property
    def template(self) -> str:
        """The names, as the template of a key."""
        numbers = (f"${{{name}}}" if len(one) > 1 else str(one.start) for name, one in self._numbers())
        return f"{self._joined(numbers)}${{{TAIL}}}"

    def expression(self, offset: int) -> str:
        """The names of a model, as an expression. `offset` is added to the first number: the layer's."""
        numbers = []
        for name, one in self._numbers():
            sign = f" {'+' if offset > 0 else '-'} {abs(offset)}" if offset else ""
            numbers.append(f"{{{name}{sign}}}" if len(one) > 1 else str(one.start + offset))
            offset = 0
        return f"f'{self._joined(numbers)}{{{TAIL}}}'" if self.texts else TAIL

    def variables(self, tails: str) -> dict[str, str]:
        """The expressions of the variables of a rule's `for`. `tails` is the expression for the tails."""
        several = ((name, one) for name, one in self._numbers() if len(one) > 1)
        return {**{name: f"range({one.start}, {one.stop})" for name, one in several}, TAIL: tails}

    def _numbers(self) -> Iterator[tuple[str, range]]:
        """The ranges, each with the name of its variable."""
        return zip(VARIABLES, self.ranges, strict=False)

    def _joined(self, numbers: Iterable[str]) -> str:
        return "".join(itertools.chain.from_iterable(zip(self.texts, numbers, strict=True)))


def families(names: Iterable[str]) -> Iterator[Family]:
    """Families that have all of these names, each once, and no others."""
    tails: dict[tuple[tuple[str, ...], str], list[tuple[int, ...]]] = {}
    for name in names:
        *parts, tail = _NUMBER.split(name)
        texts, numbers = tuple(parts[::2]), tuple(map(int, parts[1::2]))
        if len(numbers) > len(VARIABLES) or not all(map(_PLAIN.fullmatch, texts)):
            texts, numbers, tail = (), (), name
        tails.setdefault((texts, tail), []).append(numbers)
    alike: dict[tuple[tuple[str, ...], tuple[range, ...]], list[str]] = {}
    for (texts, tail), indices in tails.items():
        for ranges in _boxes(sorted(indices)):
            alike.setdefault((texts, ranges), []).append(tail)
    for (texts, ranges), members in alike.items():
        yield Family(texts, ranges, tuple(members))


def _boxes(indices: Sequence[Sequence[int]]) -> Iterator[tuple[range, ...]]:
    """Products of ranges that have all of these tuples, which are sorted, each once, and no others."""
    if not indices[0]:
        yield ()
        return
    inner = {
        first: tuple(_boxes([rest for _, *rest in group]))
        for first, group in itertools.groupby(indices, key=operator.itemgetter(0))
    }
    # Numbers that follow one another, and have the same boxes inside, are one range.
    for (_, boxes), run in itertools.groupby(enumerate(inner), key=lambda at: (at[1] - at[0], inner[at[1]])):
        numbers = [number for _, number in run]
        yield from ((range(numbers[0], numbers[-1] + 1), *box) for box in boxes)


TAILS = "tails"
"""Name of the table of the ends of names."""
_NAME = re.compile(r"[a-z]\w*")
WIDE, NARROW = "float64", "float32"


def merge_recipe(loaded: LoadedConfig, listings: Listings, seed: int = 0) -> dict[str, Any]:
    """The recipe that merges models as a configuration says; its sources are those of `models_of`, in order.

    `listings`: the leaves of each model. `seed`: for methods that draw at random. Raises PlanError where the
    models do not fit the configuration or one another, with every problem and its place.
    """
    names = source_names(loaded)
    groups = inputs_by_formula(loaded, listings, names)
    formulas: dict[FormulaInputs, Formula] = {}
    findings: list[Finding] = []
    for inputs, keys in groups.items():
        try:
            formulas[inputs] = formula(inputs, seed)
        except FunctionError as error:
            texts = ((f"{few_keys(keys)}: {problem.message}", problem.hint) for problem in error.problems)
            findings += [Finding(("merge_method",), message, hint=hint) for message, hint in texts]
    if findings:
        raise PlanError(*loaded.problems(findings))
    tails: dict[tuple[str, ...], str] = {}
    rules = [
        _rule(inputs, formulas[inputs], family, tails.setdefault(family.tails, f"t{len(tails)}"))
        for inputs, keys in groups.items()
        for family in families(keys)
    ]
    return {
        "version": 1,
        "description": f"A merge by the method {loaded.config.merge_method}.",
        "sources": list(names.values()),
        "tables": {TAILS: {entry: list(ends) for ends, entry in tails.items()}},
        "unmatched": "drop",
        "rules": rules,
    }


def source_names(loaded: LoadedConfig) -> Mapping[str, str]:
    """The name of the recipe's source for each model: `base`, if there is one, and `model_1`, `model_2`, …"""
    has_base = loaded.config.base_model is not None
    return {
        model: "base" if has_base and i == 0 else f"model_{i + (not has_base)}"
        for i, model in enumerate(models_of(loaded.config))
    }


def _rule(inputs: FormulaInputs, formula: Formula, family: Family, tails: str) -> dict[str, Any]:
    """The rule that makes the tensors of a family. `tails`: the table's entry for the ends of their names."""
    tensors = {f"m{i}": model for i, model in enumerate(inputs.models, 1)}
    if inputs.base is not None:
        tensors[BASE] = inputs.base
    head = {"add": family.template, "for": family.variables(f"{TAILS}[{tails!r}]")}
    if (copied := tensors.get(formula[RESULT])) is not None:
        return {**head, "value": _cast(_read(copied, family), copied.dtype, inputs.dtype)}
    used = {name for text in formula.values() for name in _NAME.findall(text)}
    work = WIDE if any(model.dtype == WIDE for model in tensors.values()) else NARROW
    let = {
        name: _shaped(_cast(_read(model, family), model.dtype, work), inputs, "[1]")
        for name, model in tensors.items()
        if name in used
    }
    let |= {name: text for name, text in formula.items() if name != RESULT}
    return {**head, "let": let, "value": _cast(_shaped(formula[RESULT], inputs, "[]"), work, inputs.dtype)}


def _read(model: ModelInputs, family: Family) -> str:
    """The tensor of a model that has the same name as the result's, or that of another layer."""
    return f"{model.source}[{family.expression(model.offset) if model.offset else 'key'}]"


def _shaped(text: str, inputs: FormulaInputs, shape: str) -> str:
    """A tensor without axes in another shape; others as they are."""
    return f"reshape({text}, {shape})" if inputs.scalar else text


def _cast(text: str, dtype: str, wanted: str) -> str:
    return text if dtype == wanted else f"cast({text}, '{wanted}')"


LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
"""Names under which configs have the number of layers."""
DTYPES = ("torch_dtype", "dtype")
"""Names under which configs have the dtype: the second since version 5 of transformers."""
INNER = "text_config"
"""Places of the language model's entries in configs of models with several towers."""
PER_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")
"""Lists with an entry for each layer."""


def config_changes(config: MergeConfig, base: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """New values of entries by their path. `base`: the config of the base, or else of the first model."""
    changes: dict[tuple[str, ...], Any] = {}
    dtype = config.out_dtype or config.dtype
    if dtype is not None:
        places = [(*path, name) for path, holder in _holders(base) for name in DTYPES if name in holder]
        changes |= dict.fromkeys(places or [DTYPES[:1]], dtype)
    if config.slices is not None:
        # For each layer of the result, the layer of the slice's first source.
        layers = [layer for slice in config.slices for layer in range(*slice.sources[0].layer_range)]
        for path, holder in _holders(base):
            name = next((name for name in LAYERS if isinstance(holder.get(name), int)), None)
            if name is None:
                continue
            changes[*path, name] = len(layers)
            for entry in PER_LAYER:
                values = holder.get(entry)
                if isinstance(values, list) and len(values) == holder[name] and max(layers) < len(values):
                    changes[*path, entry] = [values[layer] for layer in layers]
    return changes


def _holders(base: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The mappings that describe the language model, with their paths."""
    yield (), base
    if isinstance(base.get(INNER), dict):
        yield (INNER,), base[INNER]
