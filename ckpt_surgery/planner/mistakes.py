"""Warns of mistakes in keys: dots for slashes, braces without a dollar sign, slots that are left behind."""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.notices import FEW, Notice, few_keys
from ckpt_surgery.core.optimizer_states import OPTIMIZER
from ckpt_surgery.language.schema.fields import Rule
from ckpt_surgery.planner.entries import Entry, RuleRef, naming_rule
from ckpt_surgery.planner.plan import Fate, Step

Names = tuple[str, ...]
PARAMS = "params"
_DOT = re.compile(r"(?<=\w)\.(?=[^\W\d])|(?<=[^\W\d])\.(?=\w)")
"""A dot between words; not the dot of a number or a version."""


def slashed(text: str) -> str:
    """The key with slashes in place of dots between levels."""
    return _DOT.sub(SEPARATOR, text)


def mistaken_dots(outputs: Sequence[Entry], known: Iterable[str]) -> Iterator[Notice]:
    """One warning for each rule that makes keys with dots in them.

    There is none if dots are on purpose, as in Hugging Face's names: if a `known` key, of the sources or the
    target, has dots, or if all outputs have dots and none begins with the first name of a known key.
    """
    suspects = [entry for entry in outputs if entry.effects and _DOT.search(entry.key.text)]
    names = list(known) if suspects else []
    if not suspects or any(map(_DOT.search, names)):
        return
    roots = {text.partition(SEPARATOR)[0] for text in names}
    mixed = any(SEPARATOR in entry.key.text and not _DOT.search(entry.key.text) for entry in outputs)
    keys_of: dict[RuleRef | None, list[str]] = defaultdict(list)
    for entry in suspects:
        if mixed or slashed(entry.key.text).partition(SEPARATOR)[0] in roots:
            keys_of[naming_rule(entry.effects)].append(entry.key.text)
    for rule, keys in keys_of.items():
        meant = few_keys(map(slashed, keys))
        end = f"names with dots in them; levels are separated by `/`. Probably meant: {meant}"
        yield Notice(f"{rule} makes {few_keys(keys)}: {end}")


def braces_of(rule: Rule) -> str | None:
    """The warning about a template with the name of a group or variable in mere braces, if there is one."""
    templates = rule.to if isinstance(rule.to, Mapping) else [rule.to or rule.add]
    spelled = {name: f"${{{name}}}" for name in rule.for_ or ()}
    if rule.match is not None:
        spelled |= {name: f"${{{name}}}" for name in rule.match.groupindex}
        spelled |= {str(number): f"\\{number}" for number in range(1, rule.match.groups + 1)}
    braced = (name for template in templates if template for name in template.braced if name in spelled)
    name = next(braced, None)
    return name and f"`{{{name}}}` stays as it is; `{spelled[name]}` inserts what it stands for"


def left_slots(steps: Sequence[Step]) -> Iterator[Notice]:
    """A warning that counts slots that keep the names of renamed parameters, with the `mirror` to write."""
    kept = [step.leaf.key for step in steps if step.fate is Fate.KEPT]
    slots = [(key, root) for key in kept if (root := _optimizer(key.names)) is not None]
    parameters = _parameters(steps, {root for _, root in slots})
    left: list[str] = []
    mirrors: dict[Names, dict[Names, None]] = {}
    for key, root in slots:
        pair = _mirrored(key.names, root, parameters)
        if pair is not None:
            left.append(key.text)
            mirrors.setdefault(pair[0], {})[pair[1]] = None
    if not left:
        return
    keep = "1 leaf keeps" if len(left) == 1 else f"{len(left):,} leaves keep"
    trees = {SEPARATOR.join(names): map(SEPARATOR.join, [*found][:FEW]) for names, found in mirrors.items()}
    written = ", ".join(f"{params}: [{', '.join(slots)}]" for params, slots in trees.items() if params)
    way_out = f"; `mirror: {{{written}}}` renames them too" if written else ""
    yield Notice(f"{keep} the names of parameters that are renamed: {few_keys(left)}{way_out}")


def _parameters(steps: Sequence[Step], roots: Set[int]) -> Mapping[Names, Mapping[Names, bool]]:
    """Keys of parameters below each tree that may hold the parameters, with the keys of those trees, and
    whether the parameter is renamed.

    Such a tree ends with `params`, is the whole checkpoint or one of its first level, or lies beside the
    optimizer's: `state/model` beside `state/opt_state`. `roots`: indices of the optimizer's component.
    """
    below: dict[Names, dict[Names, bool]] = defaultdict(lambda: defaultdict(bool))
    depths = {0, 1, *(root + 1 for root in roots)}
    for step in steps if roots else ():
        moved = step.fate is Fate.RENAMED or step.fate is Fate.TRANSFORMED
        for _, text in step.sources:
            names = tuple(text.split(SEPARATOR))
            if _optimizer(names) is not None:
                continue
            renamed = moved and text != step.leaf.key.text
            for depth in range(len(names)):
                if depth in depths or names[depth - 1] == PARAMS:
                    below[names[depth:]][names[:depth]] |= renamed
    return below


def _mirrored(
    names: Names, root: int, parameters: Mapping[Names, Mapping[Names, bool]]
) -> tuple[Names, Names] | None:
    """The tree of parameters that a slot mirrors, and the tree of its slots; None if the parameter stays.

    `root`: index of the optimizer's component. Of several trees of parameters the nearest one counts.
    """
    for start in range(root + 1, len(names)):
        renamed_in = parameters.get(names[start:], {})
        trees = [tree for tree in renamed_in if len(tree) <= root + 1 or tree[-1] == PARAMS]
        if trees:
            nearest = max(trees, key=lambda t: (_in_common(t, names), t[-1:] == (PARAMS,), renamed_in[t]))
            return (nearest, names[:start]) if renamed_in[nearest] else None
    return None


def _in_common(one: Names, other: Names) -> int:
    """Number of components that both begin with."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _optimizer(names: Names) -> int | None:
    """The index of the component that the state of an optimizer is below; None for other leaves."""
    return next((i for i, name in enumerate(names) if name in OPTIMIZER), None)
