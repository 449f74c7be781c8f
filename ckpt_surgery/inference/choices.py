"""Rules that are alike but for a number of the key, as one rule: `layers_${int(n) % 2}`, or with a table."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.indices import condition
from ckpt_surgery.inference.key_patterns import NUMBER, Matched, Universe
from ckpt_surgery.inference.rule_drafts import Inserted, Output, RuleDraft, TemplatePiece, joined_text
from ckpt_surgery.inference.tables import Tables
from ckpt_surgery.inference.words import span_of

_MOST = 8
"""How many entries a table of choices has at most: more explain nothing."""


def chosen_by_number(rules: Sequence[RuleDraft], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """The rules, those that differ in their conditions and in one text of each new key as one."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for number, rule in enumerate(rules):
        if rule.pattern is not None and rule.when is not None and rule.outputs:
            alike[_frame(rule)].append(number)
    found: dict[int, RuleDraft | None] = dict(enumerate(rules))
    for numbers in alike.values():
        one = _one([rules[number] for number in numbers], universe, tables) if len(numbers) > 1 else None
        if one is not None:
            found |= {**dict.fromkeys(numbers), numbers[0]: one}
    return [rule for rule in found.values() if rule is not None]


def _frame(rule: RuleDraft) -> Hashable:
    """What two rules have in common that may become one."""
    outputs = tuple(
        (output.value, tuple("" if isinstance(piece, str) else piece for piece in output.to))
        for output in rule.outputs
    )
    return rule.kind, rule.pattern, rule.by, rule.loops, rule.looks_up, outputs


@frozen()
class _Choice:
    """An expression of a number of the key, and its value for the keys of each rule."""

    expression: str
    values: tuple[tuple[int, ...], ...]


def _one(rules: Sequence[RuleDraft], universe: Universe, tables: Tables) -> RuleDraft | None:
    """One rule that does what these do; None where there is none."""
    first = rules[0]
    assert first.pattern is not None
    matched = universe.matched(first.pattern)
    groups = [group.name for group in first.pattern.groups if group.inner == NUMBER]
    choice = next(_choices(rules, matched, groups), None)
    claims = tuple(key for rule in rules for key in rule.claims)
    others = [match for key, match in matched.items() if key not in set(claims)]
    when = _condition([matched[key] for key in claims], others, groups) if others else None
    if choice is None or (others and when is None):
        return None
    outputs = [_output(several, choice, tables) for several in zip(*(r.outputs for r in rules), strict=True)]
    if None in outputs:
        return None
    return replace(
        first,
        outputs=tuple(output for output in outputs if output is not None),
        claims=claims,
        makes=sum(rule.makes for rule in rules),
        when=when,
        reasons=tuple(reason for rule in rules for reason in rule.reasons),
    )


def _choices(
    rules: Sequence[RuleDraft], matched: Mapping[str, Matched], groups: Iterable[str]
) -> Iterator[_Choice]:
    """Expressions that tell the keys of the rules apart: a remainder with one value for each, or a number."""
    for name in groups:
        numbers = [{int(matched[key][name]) for key in rule.claims} for rule in rules]
        for divisor in (len(rules), 0):
            values = [{one % divisor for one in each} if divisor else each for each in numbers]
            count = sum(map(len, values))
            if count == len(set().union(*values)) <= _MOST:
                expression = f"int({name}) % {divisor}" if divisor else f"int({name})"
                yield _Choice(expression, tuple(tuple(sorted(each)) for each in values))


def _condition(wanted: Sequence[Matched], others: Sequence[Matched], groups: Iterable[str]) -> str | None:
    """What holds for the numbers of all wanted keys and of no other."""
    for name in groups:
        mine, theirs = ([int(match[name]) for match in each] for each in (wanted, others))
        found = condition(mine, theirs, f"int({name})")
        if found is not None:
            return found
    return None


def _output(outputs: Sequence[Output], choice: _Choice, tables: Tables) -> Output | None:
    """The output with the text that differs chosen by the number.

    None where keys have nothing in common, or differ in more.
    """
    differing = [
        at for at, pieces in enumerate(zip(*(one.to for one in outputs), strict=True)) if len({*pieces}) > 1
    ]
    if len(differing) != 1:
        return None
    at, to = differing[0], outputs[0].to
    span = span_of([str(one.to[at]) for one in outputs])
    if len(to) == 1 and not (span.before + span.after).strip("/."):
        return None  # the keys have nothing in common
    inserted = _inserted(span.words, choice, tables)
    return Output(
        joined_text((*to[:at], span.before, *inserted, span.after, *to[at + 1 :])), outputs[0].value
    )


def _inserted(words: Sequence[str], choice: _Choice, tables: Tables) -> Iterator[TemplatePiece]:
    pairs = [(value, word) for values, word in zip(choice.values, words, strict=True) for value in values]
    numbered = [re.fullmatch(r"(.*?)(\d+)", word) for word in words]
    heads = {match.group(1) for match in numbered if match}
    tails = [match.group(2) for match in numbered if match]
    single = [str(*values) for values in choice.values if len(values) == 1]
    if len(heads) == 1 and len(tails) == len(words) and tails == single:
        yield from (heads.pop(), Inserted(choice.expression))
        return
    table = tables.extended("choices", {str(value): word for value, word in sorted(pairs)})
    yield Inserted(f"{table}[str({choice.expression})]")
