"""Finds entries of `let` that no value uses."""

from collections.abc import Iterator

from ckpt_surgery.language.checks.findings import Finding
from ckpt_surgery.language.schema.fields import Recipe
from ckpt_surgery.language.yaml.document import DocumentPath


def unused_lets(recipe: Recipe) -> Iterator[Finding]:
    """A finding for each entry that neither a value nor an entry used by one refers to."""
    for index, pass_ in enumerate(recipe.passes):
        path: DocumentPath = () if recipe.written_passes is None else ("passes", index)
        for number, rule in enumerate(pass_.rules):
            values = rule.values if rule.mirror_value is None else (*rule.values, rule.mirror_value)
            used = frozenset().union(*map(rule.names_in, values))
            for name in rule.let or ():
                if name not in used:
                    where = (*path, "rules", number, "let", name)
                    message = f"`{name}` is not used: no value of the rule depends on it"
                    yield Finding(where, message, at_key=True, hint="Remove it, or use it in `value`.")
