"""Reading of configurations: YAML is parsed and checked, and every problem is reported with its place."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from typing import Any

from pydantic import ValidationError

from ckpt_surgery.core.errors import Problem, RecipeError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.language.checks.fields import field_finding
from ckpt_surgery.language.checks.findings import Finding
from ckpt_surgery.language.files import read_text, refuse_recipe
from ckpt_surgery.language.loading import in_order, located
from ckpt_surgery.language.yaml.document import YamlDocument
from ckpt_surgery.language.yaml.parsing import parse_document
from ckpt_surgery.merging.checks import findings
from ckpt_surgery.merging.models import MergeConfig

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
    document: YamlDocument
    """The YAML document, for the places of fields."""

    def problems(self, found: Iterable[Finding]) -> list[Problem]:
        """What was found, with its place in the file, in the order of the places."""
        return in_order(located(self.document, finding) for finding in found)


def read_config(path: str) -> LoadedConfig:
    """Read and check a configuration.

    Raises UsageError if the file cannot be read, RecipeError with all problems of the configuration.
    """
    return parse_config(read_text(path, "configuration"), path)


def parse_config(text: str, path: str) -> LoadedConfig:
    """Like `read_config`, for a text. Messages call it `path`."""
    document = parse_document(text, path)
    refuse_recipe(document.value, path)
    if not isinstance(document.value, dict):
        message = "a configuration is a mapping with `merge_method` and `models` or `slices`"
        problem = Problem(message, document.place(()), code=Code.UNREADABLE)
        raise RecipeError(*document.problems, problem)
    config, broken = _parsed(document.value)
    found = [*broken, *(() if config is None else findings(config))]
    problems = [*document.problems, *(located(document, finding) for finding in found)]
    if problems or config is None:
        raise RecipeError(*in_order(problems))
    return LoadedConfig(path, config, document)


def _parsed(value: Mapping[str | int, Any]) -> tuple[MergeConfig | None, list[Finding]]:
    """The configuration, None where too much of it is wrong for further checks, and what is wrong."""
    try:
        return MergeConfig.model_validate(value), []
    except ValidationError as error:
        found = [field_finding(details, value, MergeConfig) for details in error.errors(include_url=False)]
    if any(finding.code is not Code.UNKNOWN_FIELD for finding in found):
        return None, [_named(finding) for finding in found]
    known = copy.deepcopy(dict(value))
    for finding in found:
        reduce(getitem, finding.path[:-1], known).pop(finding.path[-1])
    return MergeConfig.model_validate(known), [_named(finding) for finding in found]


def _named(finding: Finding) -> Finding:
    """The finding, which says of a field of mergekit what to do instead."""
    name = str(finding.path[-1]) if finding.path else ""
    if finding.code is not Code.UNKNOWN_FIELD or name not in OUTSIDE:
        return finding
    message = f"`{name}` is a field of mergekit that `merge` does not take"
    return replace(finding, message=message, hint=OUTSIDE[name])
