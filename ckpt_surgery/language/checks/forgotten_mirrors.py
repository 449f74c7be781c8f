"""Finds, without a checkpoint, slots of optimizers that a recipe leaves behind where it renames parameters.

A recipe shows that the source has slots where a rule claims some and keeps them, or `mirror` names a tree of
them. What a checkpoint tells beyond that, `plan` tells.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence

import regex

from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.optimizer_states import COLLECTIONS, OPTIMIZER
from ckpt_surgery.language.checks.findings import Finding
from ckpt_surgery.language.expressions.regexes import TOKEN, safe_length
from ckpt_surgery.language.schema.fields import Pass, Recipe, Rule
from ckpt_surgery.language.yaml.document import DocumentPath, path_text

SIBLINGS = (("mu", "nu"), ("v_row", "v_col", "v"), ("exp_avg", "exp_avg_sq"))
"""Names of slots that an optimizer has together: Adam's in Optax, Adafactor's, Adam's in PyTorch."""
MODEL = frozenset({"params", "target"})
"""Components that training states of Flax and T5X have their parameters below."""
COUNTERS = ("count", "step")  # Endings of what an optimizer has beside its slots
TREES = ("", "/mu", "/0/mu", "/1/0/mu")  # Places below an optimizer's state where slots may be
ENDS = ("", "/m", "/v_row")  # Endings that may follow the name of the parameter in a slot's key
MOST_RULES, MOST_ROOTS = 10, 5
"""Limits on what is tried of each pass, so that recipes of thousands of rules take no time."""


def forgotten_mirrors(recipe: Recipe) -> Iterator[Finding]:
    """A finding for each pass that renames parameters and leaves their slots behind."""
    mirrored = [pair for pass_ in recipe.passes for pair in _mirrored(pass_)]
    roots = list(dict.fromkeys(_roots(recipe)))[:MOST_ROOTS]
    examples = [key for pass_ in recipe.passes for rule in pass_.rules if (key := _claimed(recipe, rule))]
    has_model = any(not MODEL.isdisjoint(key.split(SEPARATOR)) for key in examples)
    for path, pass_ in recipe.placed_passes:
        renamed = list(itertools.islice(_renamed(recipe, pass_, path, has_model), MOST_RULES))
        findings = list(_siblings(recipe, pass_, path, renamed))
        yield from findings or _of_rules(recipe, pass_, renamed, mirrored, roots)


def _siblings(
    recipe: Recipe, pass_: Pass, path: DocumentPath, renamed: Sequence[tuple[DocumentPath, str]]
) -> Iterator[Finding]:
    """A finding for each entry of `mirror` that names some slots of an optimizer without the others."""
    for params, slots in pass_.mirror.items():
        below = ((where, key) for where, key in renamed if _is_below(key, params))
        where, key = next(below, ((), None))
        others = dict.fromkeys(tree for slot in slots for tree in _beside(slot) if tree not in slots)
        left = [tree for tree in others if key and not _is_handled(recipe, tree + key[len(params) :])]
        if left:
            named, all_slots = ", ".join(f"`{slot}`" for slot in slots), ", ".join((*slots, *left))
            message = (
                f"`mirror` names {named} without {few_keys(left)}: where the source has these slots, they"
                f" keep the names of parameters that {path_text(where)} renames"
            )
            hint = f"Mirror them in passes for checkpoints that have them: `{params}: [{all_slots}]`."
            yield Finding((*path, "mirror", params), message, at_key=True, hint=hint)


def _of_rules(
    recipe: Recipe,
    pass_: Pass,
    renamed: Sequence[tuple[DocumentPath, str]],
    mirrored: Sequence[tuple[str, str]],
    roots: Sequence[str],
) -> Iterator[Finding]:
    """A finding for the first rule of a pass that renames parameters whose slots nothing renames.

    `mirrored` and `roots`: the pairs of all mirrors, and the trees of slots, of the whole recipe.
    """
    own = _mirrored(pass_)
    others = [pair for pair in mirrored if pair not in own]
    for where, key in renamed:
        slots = [(slot, slot + key[len(params) :]) for params, slot in others if _is_below(key, params)]
        left = [slot for slot, of_parameter in slots if not _is_handled(recipe, of_parameter)]
        if not any(_is_below(key, params) for params, _ in own):
            names = key.split(SEPARATOR)
            ends = [SEPARATOR.join(names[start:]) for start in range(len(names))]
            slots_of = [f"{tree}/{below}{end}" for tree, below, end in itertools.product(TREES, ends, ENDS)]
            left += [root for root in roots if not any(_is_handled(recipe, root + s) for s in slots_of)]
        if left:
            below = few_keys(dict.fromkeys(left))
            message = f"slots below {below} keep the names of parameters that are renamed here"
            hint = (
                "`mirror` of the pass renames them too; `plan` with a checkpoint says what to write there. "
                "Slots that are not needed are dropped by a rule with `drop: true`."
            )
            yield Finding((*where, "to"), message, at_key=True, hint=hint)
            return


def _mirrored(pass_: Pass) -> list[tuple[str, str]]:
    """Each mirrored tree: the parameters, and the slots."""
    return [(params, slot) for params, slots in pass_.mirror.items() for slot in slots]


def _roots(recipe: Recipe) -> Iterator[str]:
    """Trees of slots, or of an optimizer's state, that rules claim leaves of and keep."""
    known = set(itertools.chain.from_iterable(SIBLINGS))
    for rule in (rule for pass_ in recipe.passes for rule in pass_.rules if not rule.drop):
        key = _claimed(recipe, rule) or ""
        names = key.split(SEPARATOR)
        index = next((i for i, name in enumerate(names) if name in OPTIMIZER), None)
        if index is not None and (key.endswith(COUNTERS) or not _renames(rule, key)):
            slot = next((i for i in range(index, len(names)) if names[i] in known), index)
            if slot < len(names) - 1:
                yield SEPARATOR.join(names[: slot + 1])


def _renamed(
    recipe: Recipe, pass_: Pass, path: DocumentPath, has_model: bool
) -> Iterator[tuple[DocumentPath, str]]:
    """The rules of a pass that rename parameters, with an example of a key that each claims.

    Parameters are below `params` where any rule claims such.
    """
    for number, rule in enumerate(pass_.rules):
        key = _claimed(recipe, rule) or ""
        names = set(key.split(SEPARATOR))
        is_parameter = names.isdisjoint(OPTIMIZER | COLLECTIONS) and len(names) > 1
        if is_parameter and (not has_model or names & MODEL) and _renames(rule, key):
            yield (*path, "rules", number), key


def _claimed(recipe: Recipe, rule: Rule) -> str | None:
    """Example of a key of the first source that a rule claims; None for rules that claim others."""
    of_first = rule.match is not None and rule.source in (None, "*", *recipe.named_sources[:1])
    return example(rule.match) if of_first else None


def _claims(rule: Rule, key: str) -> bool:
    """Whether a rule claims this key; also true where matching could take long."""
    pattern = rule.match
    return pattern is not None and (len(key) > safe_length(pattern) or bool(pattern.fullmatch(key)))


def _renames(rule: Rule, key: str) -> bool:
    """Whether a rule claims this key and gives its leaf another one; also where matching could take long."""
    if rule.match is None or rule.to is None or len(key) > safe_length(rule.match):
        return rule.match is not None and rule.to is not None
    match, names = rule.match.fullmatch(key), tuple(key.split(SEPARATOR))
    return match is not None and all(template.names_of(match) != names for template in rule.templates)


def _is_handled(recipe: Recipe, key: str) -> bool:
    """Whether some pass gives the leaf of this key another one, or does not keep it."""
    for pass_ in recipe.passes:
        rule = next((candidate for candidate in pass_.rules if _claims(candidate, key)), None)
        is_kept = (pass_.unmatched or recipe.unmatched) == "keep" if rule is None else not rule.drop
        if not is_kept or (rule is not None and _renames(rule, key)):
            return True
    return False


def _beside(slot: str) -> Iterator[str]:
    """The trees of slots that an optimizer has beside this one."""
    above, _, name = slot.rpartition(SEPARATOR)
    for group in SIBLINGS:
        if name in group:
            yield from (f"{above}/{other}" if above else other for other in group if other != name)


def _is_below(key: str, tree: str) -> bool:
    return key.startswith(f"{tree}{SEPARATOR}")


LONGEST = 64  # Limit on the characters of a repeated part; a pattern that needs more of them has no example
_CATEGORIES = {r"\d": "0", r"\s": " ", r"\W": "-"}


@functools.lru_cache(maxsize=1024)
def example(pattern: regex.Pattern[str]) -> str | None:
    """A short text that the pattern fully matches.

    It has the first of several alternatives, and as few repeats as there can be, but one at least. None where
    conditions in the pattern rule out this guess, or matching could take long.
    """
    text, last, depth = "", "", 0
    left_out: int | None = None  # Depth of the group whose further alternatives are left out
    for match in TOKEN.finditer(pattern.pattern):
        token = match[0]
        depth += token.startswith("(") - (token == ")")
        if left_out is not None:
            left_out = left_out if depth >= left_out else None
        elif token == "|":
            left_out = depth
        elif match["brace"]:
            text += last * (min(int(match["low"] or 1), LONGEST) - 1)
        elif token[0] not in "()*+?^$":
            last = _character(token)
            text += last
    return text if len(text) <= safe_length(pattern) and pattern.fullmatch(text) else None


def _character(token: str) -> str:
    """A character that a token of a pattern matches, as a rule."""
    if token.startswith("[^"):
        return next((letter for letter in "xyz" if letter not in token), "0")
    if token[0] == "[" and token[1] != "\\":
        return token[1]
    if token[0] in "[\\":
        escape = token.lstrip("[")[:2]
        return _CATEGORIES.get(escape, "x" if escape[1].isalpha() else escape[1])
    return "x" if token == "." else token
