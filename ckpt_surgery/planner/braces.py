"""Warns of templates with `{n}` where `${n}` was meant."""

from collections.abc import Mapping

from ckpt_surgery.language.models import Rule


def braces_of(rule: Rule) -> str | None:
    """The warning about a template with the name of a group or variable in mere braces, if there is one."""
    templates = rule.to if isinstance(rule.to, Mapping) else [rule.to or rule.add]
    numbers = [] if rule.match is None else [str(i) for i in range(1, rule.match.groups + 1)]
    names = [*(() if rule.match is None else rule.match.groupindex), *(rule.for_ or ())]
    spelled = {number: f"\\{number}" for number in numbers} | {name: f"${{{name}}}" for name in names}
    braced = [name for template in templates if template for name in template.braced if name in spelled]
    if not braced:
        return None
    return f"`{{{braced[0]}}}` stays as it is; `{spelled[braced[0]]}` inserts what it stands for"
