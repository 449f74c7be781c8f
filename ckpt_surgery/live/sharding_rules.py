"""Shardings by rules: a mesh, and PartitionSpecs for the keys that regular expressions match."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import regex

from ckpt_surgery.core.errors import RecipeError, UsageError
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.language.expressions.regexes import MatchBudget, compile_pattern
from ckpt_surgery.language.expressions.scope import ExpressionError
from ckpt_surgery.live.meshes import mesh_of_devices, sharding_over

WANTED = "Rules are `(mesh, [(regex, PartitionSpec), …])` or `(mesh, {regex: PartitionSpec, …})`."


class Rules:
    """A mesh, and shardings over it for the whole keys that regular expressions match, in order."""

    def __init__(self, mesh: Any, shardings: Sequence[tuple[regex.Pattern[str], Any]]):
        """`mesh`: a `jax.sharding.Mesh`; `shardings`: NamedShardings over it."""
        self.mesh = mesh
        self._shardings = shardings
        self._budget = MatchBudget()

    def sharding(self, text: str) -> Any:
        """NamedSharding of the first rule that matches a whole key; None if no rule does.

        Raises UsageError if matching all keys so far has taken too long.
        """
        for pattern, sharding in self._shardings:
            try:
                if self._budget.fullmatch(pattern, text):
                    return sharding
            except RecipeError as error:
                problem = error.problems[0]
                raise UsageError(
                    f"{_rule_text(pattern.pattern)}: {problem.message}", hint=problem.hint
                ) from None
        return None


def parse_rules(shardings: Any) -> Rules | None:
    """Rules in `shardings`; None if it is not a pair with a mesh.

    Raises UsageError for rules that are wrong for any tree.
    """
    from jax.sharding import AbstractMesh, Mesh

    if isinstance(shardings, Mesh | AbstractMesh):
        raise UsageError("`shardings` is a mesh: it does not say how arrays are divided over it", hint=WANTED)
    if not isinstance(shardings, tuple | list) or not shardings:
        return None
    mesh, *rest = shardings
    if not isinstance(mesh, Mesh | AbstractMesh):
        return None
    mesh_of_devices(mesh, "the mesh of the rules in `shardings`")
    if len(rest) != 1:
        raise UsageError(f"after the mesh of `shardings` come {len(rest)} values instead of one", hint=WANTED)
    return Rules(mesh, [_rule(rule, mesh) for rule in _rule_list(rest[0])])


def _rule_list(rules: Any) -> list[Any]:
    if isinstance(rules, Mapping):
        return list(rules.items())
    if isinstance(rules, str) or not isinstance(rules, Iterable):
        message = f"after the mesh of `shardings` comes {shown(abridged(rules))} instead of rules"
        raise UsageError(message, hint=WANTED)
    return list(rules)


def _rule(rule: Any, mesh: Any) -> tuple[regex.Pattern[str], Any]:
    from jax.sharding import PartitionSpec

    match rule:
        case (str(text), PartitionSpec() as spec):
            pass
        case _:
            message = (
                f"`shardings` has the rule {shown(abridged(rule))}: it is not a regex with a PartitionSpec"
            )
            raise UsageError(message, hint=WANTED)
    sharding = sharding_over(mesh, spec, _rule_text(text))
    try:
        return compile_pattern(text), sharding
    except ExpressionError as error:
        raise UsageError(f"{_rule_text(text)}: {error.message}", hint=error.hint) from None


def _rule_text(pattern: str) -> str:
    return f"the rule `{shown(pattern)}` of `shardings`"
