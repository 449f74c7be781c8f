"""Reading of configurations: YAML is parsed and checked, and every problem is reported with its place."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from ckpt_surgery.core.errors import Place, Problem, RecipeError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import abridged, did_you_mean
from ckpt_surgery.language.files import read_text, refuse_recipe
from ckpt_surgery.language.schema.field_types import WRONG_TYPE
from ckpt_surgery.language.yaml.document import Document, DocumentPath, path_text
from ckpt_surgery.language.yaml.parsing import parse_document, yaml_word
from ckpt_surgery.merging.checks import Finding, findings
from ckpt_surgery.merging.models import InputModel, InputSlice, MergeConfig, OutputSlice

_TOKENIZER = (
    "Leave it out: the tokenizer files of the base model, or else of the first model, are copied. "
    "All models must have the same vocabulary."
)
OUTSIDE: Mapping[str, str] = {
    "tokenizer": _TOKENIZER,
    "tokenizer_source": _TOKENIZER,
    "chat_template": "Leave it out, and change the template in the result's tokenizer files.",
    "modules": "Write one configuration for each module.",
    "residual_weight": "Leave it out.",
}
"""Fields of mergekit that are refused by name, and what to do."""


@dataclass(frozen=True)
class LoadedConfig:
    """A configuration that passed all checks that need no model."""

    path: str
    """Path of the file as the user gave it."""
    config: MergeConfig
    document: Document
    """The YAML document, for the places of fields."""

    def problem(self, finding: Finding) -> Problem:
        """What was found, with its place in the file."""
        return _problem(self.document, finding)


def read_config(path: str) -> LoadedConfig:
    """Read and check a configuration.

    Raises UsageError if the file cannot be read, RecipeError with all problems of the configuration.
    """
    return parse_config(read_text(path, "configuration"), path)


def parse_config(text: str, path: str) -> LoadedConfig:
    """Like `read_config`, for a text. Messages call it `path`."""
    document = parse_document(text, path)
    refuse_recipe(document.value, path)
    problems = list(document.problems)
    if not isinstance(document.value, dict):
        message = "a configuration is a mapping with `merge_method` and `models` or `slices`"
        raise RecipeError(*problems, Problem(message, document.place(()), code=Code.UNREADABLE))
    config, broken = _parsed(document.value)
    found = [*broken, *(() if config is None else findings(config))]
    problems += [_problem(document, finding) for finding in found]
    if problems or config is None:
        raise RecipeError(*in_order(problems))
    return LoadedConfig(path, config, document)


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """The problems by line and column, without repeats."""
    return sorted(dict.fromkeys(problems), key=lambda problem: _spot(problem.place))


def _spot(place: Place | None) -> tuple[int, int]:
    return (0, 0) if place is None else (place.line or 0, place.column)


def _problem(document: Document, finding: Finding) -> Problem:
    locate = document.key_place if finding.at_key else document.place
    return Problem(finding.message, locate(finding.path), finding.hint, finding.code)


def _parsed(value: Mapping[str | int, Any]) -> tuple[MergeConfig | None, list[Finding]]:
    """The configuration, None where too much of it is wrong for further checks, and what is wrong."""
    pruned = copy.deepcopy(dict(value))
    found: list[Finding] = []
    try:
        return MergeConfig.model_validate(pruned), found
    except ValidationError as error:
        errors = error.errors(include_url=False)
    found = [_finding(details, value) for details in errors]
    if not all(details["type"] == "extra_forbidden" for details in errors):
        return None, found
    for finding in found:  # what is left is whole without the fields that are not known
        holder: Any = pruned
        for part in finding.path[:-1]:
            holder = holder[part]
        holder.pop(finding.path[-1], None)
    return MergeConfig.model_validate(pruned), found


def _finding(details: Mapping[str, Any], value: Any) -> Finding:
    """What an error of pydantic says."""
    path: DocumentPath = tuple(details["loc"])
    if details["type"] == "extra_forbidden":
        return _unknown(path)
    if details["type"] == "missing":
        return Finding(path, f"`{path[-1]}` is missing", code=Code.MISSING_FIELD)
    name = path[-1] if path and isinstance(path[-1], str) else path_text(path)
    wanted = details["ctx"]["wanted"] if details["type"] == WRONG_TYPE else _TYPES.get(details["type"])
    message = details["msg"] if wanted is None else f"has to be {wanted}, not {_in_yaml(details['input'])}"
    return Finding(path, f"`{name}` {message}", code=Code.WRONG_VALUE)


_TYPES: Mapping[str, str] = {
    "string_type": "text",
    "mapping_type": "a mapping",
    "dict_type": "a mapping",
    "model_type": "a mapping of fields",
    "tuple_type": "a list",
}


def _unknown(path: DocumentPath) -> Finding:
    name = str(path[-1])
    if name in OUTSIDE:
        message = f"`{name}` is a field of mergekit that `merge` does not take"
        return Finding(path, message, at_key=True, hint=OUTSIDE[name], code=Code.UNKNOWN_FIELD)
    models: Mapping[str, type[BaseModel]] = {"models": InputModel, "sources": InputSlice}
    model = MergeConfig if len(path) == 1 else models.get(str(path[-3]), OutputSlice)
    known = list(model.model_fields)
    message = f"unknown field `{name}`{did_you_mean(name, known) or '; known are ' + ', '.join(known)}"
    return Finding(path, message, at_key=True, code=Code.UNKNOWN_FIELD)


def _in_yaml(value: Any) -> str:
    """A value of the document in the words of YAML; a list of plain values with these."""
    is_flat = isinstance(value, list) and not any(isinstance(item, dict | list) for item in value)
    return abridged(value) if is_flat else yaml_word(value)
