"""One pass: rules claim entries, and what they say becomes new entries.

The first rule that matches a leaf, and whose `when` is true, claims it. An entry's value is a node, so
nothing is read. Problems are collected in the pass' ledger.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import Key, natural_order
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.notices import Notice, few_keys
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.graph.nodes import Apply, Array, Node, Series, reads
from ckpt_surgery.language.expressions import Expression, Groups, Scope, Unavailable
from ckpt_surgery.language.loading import LoadedRecipe, Pass, Rule
from ckpt_surgery.language.operations import truth
from ckpt_surgery.language.patterns import Watch, compile_pattern
from ckpt_surgery.language.prefilters import Literals, Texts, literals
from ckpt_surgery.language.scope import SOURCES, Scalar
from ckpt_surgery.language.templates import Template
from ckpt_surgery.planner.entries import (
    HAS_ARRAY,
    KINDS,
    Drop,
    Entry,
    Tree,
    array_of,
    computed,
    container_paths,
    key_of,
    under,
)
from ckpt_surgery.planner.problems import Field, Ledger

Names = Mapping[str, Any]
"""What an expression sees by name."""

Mirror = tuple[str, str]
"""(`params`, `opt_state/0/mu`): what lies under the second is matched as though it lay under the first."""

OPTIONAL = "Write `optional: true` if that is fine."


@frozen(eq=False)
class Claim:
    """A leaf that a rule claimed: the first rule that matched it and whose `when` was true."""

    entry: Entry
    match: regex.Match[str]
    mirror: Mirror | None
    """Where the leaf was matched as though it lay elsewhere."""


@frozen(eq=False)
class Member:
    """One leaf's part in an output: which key it goes to, and what the expression sees."""

    claim: Claim
    key: Key
    value: Expression | None
    names: Names


@dataclass(frozen=True, eq=False)
class Candidate:
    """A rule that may claim a leaf."""

    index: int
    rule: Rule
    pattern: regex.Pattern[str]
    literals: Literals


class Candidates:
    """The rules that leaves of one source are tried on. By a leaf's first characters most are ruled out."""

    def __init__(self, rules: Sequence[Candidate]):
        self._rules = rules
        lengths = [min(map(len, rule.literals.prefixes)) for rule in rules]
        self._length = min(filter(None, lengths), default=0)
        self._by_head: dict[str, list[tuple[Candidate, str, Texts, Texts, Texts]]] = {}

    def of(self, text: str, mirror: Mirror | None) -> list[tuple[Candidate, str, Mirror | None]]:
        """Those that have a chance to match a key, in order, each with the key and its mirror."""
        head = text[: self._length]
        near = self._by_head.get(head)
        if near is None:
            near = self._by_head[head] = self._near(head)
        return [
            (rule, text, mirror)
            for rule, inner, others, prefixes, suffixes in near
            if (inner in text or (others and any(other in text for other in others)))
            and text.endswith(suffixes)
            and text.startswith(prefixes)  # few have the inner text, so that comes first
        ]

    def _near(self, head: str) -> list[tuple[Candidate, str, Texts, Texts, Texts]]:
        """The rules that leaves with these first characters may fit, with the texts of their matches."""
        known = [(rule, rule.literals) for rule in self._rules]
        return [
            (rule, texts.inner[0], texts.inner[1:], texts.prefixes, texts.suffixes)
            for rule, texts in known
            if head.startswith(tuple([prefix[: self._length] for prefix in texts.prefixes]))
        ]


class SourceLeaves:
    """`source['a/b']` in expressions: the entries of one tree, by key."""

    def __init__(self, name: str, tree: Tree):
        self.name = name
        self.tree = tree
        self.seen: set[str] = set()
        """The keys that were looked up: a leaf counts as used also where only its shape was asked for."""

    def lookup(self, text: str) -> Array | None:
        entry = self.tree.get(text)
        self.seen.add(text)
        return None if entry is None else array_of(entry)

    def kind(self, text: str) -> str | None:
        entry = self.tree.get(text)
        return None if entry is None else str(entry.leaf.kind)

    def keys(self) -> Collection[str]:
        return self.tree.keys()


def count_of(pattern: str, tree: Tree) -> int:
    """`count('regex')`: how many keys of a tree it matches."""
    compiled, watch = compile_pattern(pattern), Watch()
    known = literals(compiled)
    return sum(known.fit(text) and watch.fullmatch(compiled, text) is not None for text in tree)


class PassRun:
    """One pass over the trees of the sources. The first tree is the one that passes transform."""

    def __init__(
        self,
        loaded: LoadedRecipe,
        pass_: Pass,
        trees: Mapping[str, Tree],
        target: "SourceLeaves | Unavailable",
        ledger: Ledger,
        settled: set[int],
        last: bool,
    ):
        """`settled`: entries of the other trees that a pass before has claimed or used; it is added to.
        `last`: what is left of them is not for a later pass.
        """
        self.pass_ = pass_
        self.trees = trees
        self.first = next(iter(trees))
        self.ledger = ledger
        self.lists = container_paths([trees[self.first]])
        self.settled = settled
        self.last = last
        self.policy = pass_.unmatched or loaded.recipe.unmatched
        self.mirrors = [(slot, params) for params, slots in pass_.mirror.items() for slot in slots]
        self.sources = {name: SourceLeaves(name, tree) for name, tree in trees.items()}
        self.names: Names = {
            **loaded.names,
            **self.sources,
            "target": target,
            SOURCES: tuple(trees),
        }
        self.claims: dict[int, list[Claim]] = defaultdict(list)
        self.claimed: set[int] = set()
        self.watches: dict[int, Watch] = defaultdict(Watch)
        self._counts: dict[str, int] = {}
        self._check_mirrors(loaded)
        self._claim_all()

    def _check_mirrors(self, loaded: LoadedRecipe) -> None:
        """A mirrored tree that nothing lies in is a mistake, and would leave what was meant as it is."""
        base = self.ledger.own("mirror")
        for params, slots in self.pass_.mirror.items():
            where = (*base, params)
            places = [(params, loaded.key_place(where))]
            places += [(slot, loaded.place((*where, i))) for i, slot in enumerate(slots)]
            for prefix, place in places:
                if not any(text.startswith(f"{prefix}/") for tree in self.trees.values() for text in tree):
                    self.ledger.general(
                        f"no leaf lies under `{prefix}`{did_you_mean(prefix, self._containers())}",
                        "Where only some checkpoints have these leaves, mirror them in a pass with `when`.",
                        place,
                    )

    def _containers(self) -> list[str]:
        keys = [entry.key for tree in self.trees.values() for entry in tree.values()]
        return list(dict.fromkeys("/".join(key.names[:i]) for key in keys for i in range(1, len(key.names))))

    # --- claiming -------------------------------------------------------------------------------------

    def _claim_all(self) -> None:
        for name, tree in self.trees.items():
            rules = [
                Candidate(i, rule, rule.match, literals(rule.match))
                for i, rule in enumerate(self.pass_.rules)
                if rule.match is not None and self.reads_from(rule, name)
            ]
            candidates = Candidates(rules)
            for entry in tree.values():
                self._claim(entry, candidates)

    def _claim(self, entry: Entry, candidates: Candidates) -> None:
        for candidate, text, mirror in self._possible(entry.key.text, candidates):
            match = self.match(candidate.index, ("match",), candidate.pattern, text)
            if match is None:
                continue
            claim = Claim(entry, match, mirror)
            if candidate.rule.when is None or self._wanted(candidate.index, candidate.rule.when, claim):
                self.claims[candidate.index].append(claim)
                self.claimed.add(id(entry))
                return

    def _possible(self, key: str, candidates: Candidates) -> list[tuple[Candidate, str, Mirror | None]]:
        """The rules that may match, in order, with the text that they are to match."""
        if not self.mirrors:
            return candidates.of(key, None)
        found = [one for text, mirror in self._views(key) for one in candidates.of(text, mirror)]
        # A rule that says what becomes of mirrored leaves sees them as such even where it fits both ways.
        return sorted(
            found, key=lambda one: (one[0].index, one[2] is None and one[0].rule.mirror_value is not None)
        )

    def reads_from(self, rule: Rule, source: str) -> bool:
        wanted = rule.source or self.first
        return wanted == "*" or source == wanted or (not isinstance(wanted, str) and source in wanted)

    def match(
        self, index: int, field: Field, pattern: regex.Pattern[str], text: str
    ) -> regex.Match[str] | None:
        """The match of a whole key. A pattern that takes too long ends the run: it would on every key."""
        try:
            return self.watches[index].fullmatch(pattern, text)
        except SurgeryError as error:
            self.ledger.problem(index, field, error)
            self.ledger.close()
            raise

    def _views(self, text: str) -> list[tuple[str, Mirror | None]]:
        """The key itself, then the keys that it stands for in mirrored trees."""
        views: list[tuple[str, Mirror | None]] = [(text, None)]
        for slot, params in self.mirrors:
            if text.startswith(slot + "/"):
                views.append((params + text[len(slot) :], (params, slot)))
        return views

    def _wanted(self, index: int, when: Expression, claim: Claim) -> bool:
        result = self.condition(index, when, self._names_of(claim), claim.entry.key.text)
        # A `when` that failed is a problem already: that nobody claims the leaf would be a misleading second.
        return result is not False

    # --- evaluating -----------------------------------------------------------------------------------

    def _names_of(self, claim: Claim) -> dict[str, Any]:
        return {
            **self.names,
            **match_names(claim.match),
            "key": claim.entry.key.text,
            "x": x_of(claim.entry),
        }

    def evaluate(
        self, rule: int, field: Field, expression: Expression, names: Names, key: str, leaf_key: str = ""
    ) -> Any:
        try:
            return expression.evaluate(Scope(names, leaf_key, self._count))
        except SurgeryError as error:
            self.ledger.problem(rule, field, error, key)
            return FAILED

    def condition(self, rule: int, when: Expression, names: Names, key: str) -> bool | None:
        """Whether a rule's `when` holds; None where that is a problem."""
        value = self.evaluate(rule, ("when",), when, names, key)
        try:
            return None if value is FAILED else truth(value)
        except SurgeryError as error:
            self.ledger.problem(rule, ("when",), error, key)
            return None

    def _count(self, pattern: str) -> int:
        """See `count_of`; each pattern is counted once, for a condition may ask for every leaf."""
        if pattern not in self._counts:
            self._counts[pattern] = count_of(pattern, self.trees[self.first])
        return self._counts[pattern]

    def spell(
        self,
        rule: int,
        field: Field,
        template: Template,
        match: regex.Match[str] | None,
        names: Names,
        key: str,
    ) -> Key | None:
        """The key that a template gives, new from the root; None where that is a problem."""
        try:
            return key_of(template.expand(match, Scope(names, "", self._count)), None, self.lists)
        except SurgeryError as error:
            self.ledger.problem(rule, field, error, key)
            return None

    def _destination(
        self, index: int, rule: Rule, template: Template | None, claim: Claim, names: Names
    ) -> Key | None:
        """The key that a claimed leaf goes to; None where that is a problem."""
        origin = claim.entry.key
        if template is None:
            return origin
        names_alone = None if self.lists or claim.mirror else template.names_of(claim.match)
        if names_alone is not None:
            return Key(names_alone, (False,) * len(names_alone))
        try:
            components = template.expand(claim.match, Scope(names, "", self._count))
            if claim.mirror is None:
                return key_of(components, origin, self.lists)
            return self._mirrored(key_of(components, None, self.lists), claim.mirror)
        except SurgeryError as error:
            several = isinstance(rule.to, Mapping)
            self.ledger.problem(
                index, ("to", template.text) if several else ("to",), error, origin.text, several
            )
            return None

    def _mirrored(self, key: Key, mirror: Mirror) -> Key:
        params, slot = mirror
        moved = under(key, params.split("/"), slot.split("/"), self.lists)
        if moved is None:
            raise SurgeryError(
                f"the rule takes `{key}` out of `{params}`: it cannot be mirrored into `{slot}`"
            )
        return moved

    def _combinations(self, index: int, rule: Rule, names: Names, key: str) -> list[dict[str, Any]] | None:
        """The values of the `for` variables, in every combination; None where that is a problem."""
        ranges = []
        for name, expression in (rule.for_ or {}).items():
            values = self.evaluate(index, ("for", name), expression, names, key)
            if values is FAILED:
                return None
            if not isinstance(values, Sequence) or isinstance(values, str):
                self.ledger.problem(index, ("for", name), "`for` needs a list or a `range(n)`", key)
                return None
            ranges.append([(name, value) for value in values])
        return [dict(combination) for combination in itertools.product(*ranges)]

    # --- producing ------------------------------------------------------------------------------------

    def produced(self) -> list[tuple[int, Entry]]:
        """What `match` and `add` rules make, in the order of the rules."""
        made: list[tuple[int, Entry]] = []
        for index, rule in enumerate(self.pass_.rules):
            if rule.match is not None:
                made += [(index, entry) for entry in self._matched(index, rule)]
            elif rule.add is not None:
                made += [(index, entry) for entry in self._added(index, rule)]
        return made

    def _matched(self, index: int, rule: Rule) -> Iterator[Entry]:
        assert rule.match is not None
        claims = self.claims[index]
        if not claims and not rule.optional:
            self.ledger.problem(index, ("match",), self._why_unused(index, rule))
        if rule.drop:
            self.ledger.drops += [Drop(c.entry, self.ledger.ref(index), "drop") for c in claims]
            return
        if claims:
            self._warn_of_braces(index, rule)
        if rule.values:
            self.ledger.unused += [Drop(c.entry, self.ledger.ref(index), "no output uses it") for c in claims]
        outcomes = rule.to.items() if isinstance(rule.to, Mapping) else [(rule.to, rule.value)]
        for template, expression in outcomes:
            field = ("to", template.text) if isinstance(rule.to, Mapping) and template else ("value",)
            spelled = template is not None and template.names_beyond(rule.match)
            if not (expression or rule.mirror_value or rule.for_ or spelled):
                yield from self._renamed(index, rule, template, claims)
                continue
            members = [m for claim in claims for m in self._members(index, rule, template, expression, claim)]
            if expression is not None and "xs" in expression.names:
                yield from self._gathered(index, rule, field, members)
            else:
                yield from self._single(index, rule, field, members)

    def _renamed(
        self, index: int, rule: Rule, template: Template | None, claims: Iterable[Claim]
    ) -> Iterator[Entry]:
        """Leaves that keep their values, by a template that sees groups only: what most rules do."""
        ref = self.ledger.ref(index)
        for claim in claims:
            key = self._destination(index, rule, template, claim, {})
            if key is not None:
                yield Entry(key, claim.entry.leaf, claim.entry.value, ref)

    def _members(
        self, index: int, rule: Rule, template: Template | None, expression: Expression | None, claim: Claim
    ) -> Iterator[Member]:
        if claim.mirror is not None:
            expression = rule.mirror_value or expression
        names = self._names_of(claim)
        combinations = self._combinations(index, rule, names, claim.entry.key.text)
        if combinations == [] and not rule.optional:
            nothing = SurgeryError("`for` has no values, so that nothing is made", hint=OPTIONAL)
            self.ledger.problem(index, ("for",), nothing, claim.entry.key.text)
        for variables in combinations or ():
            scope = {**names, **variables} if variables else names
            key = self._destination(index, rule, template, claim, scope)
            if key is not None:
                yield Member(claim, key, expression, scope)

    def _single(self, index: int, rule: Rule, field: Field, members: Iterable[Member]) -> Iterator[Entry]:
        """One leaf, one output."""
        ref = self.ledger.ref(index)
        for member in members:
            entry = member.claim.entry
            if member.value is None:
                yield Entry(member.key, entry.leaf, entry.value, ref)
                continue
            at = _field_of(rule, member, field)
            made = self.made(index, at, member.value, member.names, member.key, entry.leaf, entry.key.text)
            if made is not None and entry.leaf.kind not in HAS_ARRAY:
                error = SurgeryError(
                    f"`{entry.key}` is {KINDS[entry.leaf.kind]}: no value can take its place"
                )
                self.ledger.problem(index, at, error, entry.key.text)
            elif made is not None and self._mirrors_well(index, [member], made):
                yield made

    def made(
        self,
        index: int,
        field: Field,
        expression: Expression,
        names: Names,
        key: Key,
        model: Leaf | None,
        text: str,
    ) -> Entry | None:
        """The entry that an expression gives; None where that is a problem."""
        value = self.evaluate(index, field, expression, names, text, key.text)
        if value is FAILED:
            return None
        try:
            return computed(value, model, key, self.ledger.ref(index))
        except SurgeryError as error:
            self.ledger.problem(index, field, error, text)
            return None

    def _mirrors_well(self, index: int, members: Sequence[Member], made: Entry) -> bool:
        """A mirrored slot may be moved about as its parameter is; anything more has to be said."""
        head = members[0].claim
        if head.mirror is None or self.pass_.rules[index].mirror_value is not None:
            return True
        if is_layout(made.value, {id(m.claim.entry.value) for m in members}):
            return True
        error = SurgeryError(
            "the rule is mirrored, and its value changes more than layout",
            hint="Say with `mirror_value:` what becomes of the mirrored leaves.",
        )
        self.ledger.problem(index, ("value",), error, head.entry.key.text)
        return False

    def _gathered(self, index: int, rule: Rule, field: Field, members: Iterable[Member]) -> Iterator[Entry]:
        """Several leaves, one output: `xs`."""
        groups: dict[str, list[Member]] = defaultdict(list)
        for member in members:
            groups[member.key.text].append(member)
        for text, group in groups.items():
            if rule.by is None and len({id(m.claim) for m in group}) < len(group):
                self.ledger.problem(index, ("for",), _twice(group), text)
                continue
            ordered = self._ordered(index, rule, group)
            if ordered is None:
                continue
            in_order, places = ordered
            head = in_order[0]
            at = _field_of(rule, head, field)
            names = _shared_names([m.names for m in in_order])
            try:
                names["xs"] = Series(tuple(array_of(m.claim.entry) for m in in_order), places)
            except SurgeryError as error:
                self.ledger.problem(index, at, error, text)
                continue
            assert head.value is not None
            made = self.made(index, at, head.value, names, head.key, head.claim.entry.leaf, text)
            if made is not None and self._mirrors_well(index, in_order, made):
                yield made

    def _ordered(
        self, index: int, rule: Rule, group: Sequence[Member]
    ) -> tuple[list[Member], tuple[int, ...] | None] | None:
        """The members in the order of `by`, and their places where `by` gives integers."""
        if rule.by is None:
            return sorted(group, key=lambda m: natural_order(m.claim.entry.key.text)), None
        places = [self.evaluate(index, ("by",), rule.by, m.names, m.claim.entry.key.text) for m in group]
        if any(p is FAILED for p in places):
            return None
        problem = _order_problem(places, group)
        if problem is not None:
            self.ledger.problem(index, ("by",), problem)
            return None
        integers = all(isinstance(p, int) for p in places)
        pairs = sorted(
            zip(places, group, strict=True), key=lambda pair: pair[0] if integers else natural_order(pair[0])
        )
        return [m for _, m in pairs], tuple(p for p, _ in pairs) if integers else None

    def _added(self, index: int, rule: Rule) -> Iterator[Entry]:
        assert rule.add is not None
        self._warn_of_braces(index, rule)
        used = rule.when is None and not rule.for_
        for variables in self._combinations(index, rule, self.names, rule.add.text) or ():
            used = used or rule.when is None
            names = {**self.names, **variables}
            if rule.when is not None:
                wanted = self.condition(index, rule.when, names, rule.add.text)
                used = used or wanted is not False
                if not wanted:
                    continue
            key = self.spell(index, ("add",), rule.add, None, names, "")
            if key is None or rule.value is None:
                continue
            made = self.made(index, ("value",), rule.value, {**names, "key": key.text}, key, None, key.text)
            if made is not None:
                yield made
        if not used and not rule.optional:
            why = "`when` is false" if rule.when is not None else "`for` has no values"
            unused = SurgeryError(f"the rule makes nothing: {why}", hint=OPTIONAL)
            self.ledger.problem(index, ("add",), unused)

    def _warn_of_braces(self, index: int, rule: Rule) -> None:
        mistaken = braces_of(rule)
        if mistaken is not None:
            self.ledger.notices.append(Notice(f"{self.ledger.ref(index)}: {mistaken}"))

    def _why_unused(self, index: int, rule: Rule) -> SurgeryError:
        """Why a rule claimed nothing, from a second look at the keys."""
        pattern = rule.match
        assert pattern is not None
        known = literals(pattern)
        fits = [
            entry
            for name, tree in self.trees.items()
            if self.reads_from(rule, name)
            for entry in tree.values()
            if any(
                known.fit(view) and self.match(index, ("match",), pattern, view)
                for view, _ in self._views(entry.key.text)
            )
        ]
        if not fits:
            keys = [text for name, tree in self.trees.items() if self.reads_from(rule, name) for text in tree]
            return SurgeryError(
                f"the rule claims nothing: no key matches{did_you_mean(pattern.pattern, keys)}",
                hint=OPTIONAL,
            )
        refused = [entry.key.text for entry in fits if id(entry) not in self.claimed]
        if refused:
            return SurgeryError(
                f"the rule claims nothing: `when` is false for {few_keys(refused)}", hint=OPTIONAL
            )
        all_keys = "the one key" if len(fits) == 1 else f"all {len(fits)} keys"
        return SurgeryError(
            f"the rule claims nothing: earlier rules claimed {all_keys} that it matches",
            hint="The first rule that matches wins: put the narrower rule above the wider one.",
        )

    # --- merging: no target -----------------------------------------------------------------------------

    def merged(self) -> Tree:
        """The tree after the pass: what rules made, and what the policy keeps."""
        for index, rule in enumerate(self.pass_.rules):
            if rule.fill is not None:
                self.ledger.problem(index, ("fill",), "`fill` needs a target, and belongs to the last pass")
        made = self.produced()
        tree = self.distinct(
            [*made, *((None, entry) for entry in self.unclaimed(entry for _, entry in made))]
        )
        self._warn_of_slots(made, tree)
        return tree

    def _warn_of_slots(self, made: Iterable[tuple[int, Entry]], tree: Tree) -> None:
        """New leaves of a mirrored tree have slots only where a rule adds those too."""
        for index, entry in made if self.mirrors else ():
            text = entry.key.text
            missing = [
                f"`{slot}`"
                for slot, params in self.mirrors
                if text.startswith(f"{params}/") and slot + text[len(params) :] not in tree
            ]
            if missing and self.pass_.rules[index].add is not None:
                slots = f"its slot in {' and '.join(missing)}"
                after = f", and nothing adds {slots}: `add` is not mirrored"
                self.ledger.notices.append(Notice(f"{self.ledger.ref(index)} adds ", text, after))

    def distinct(self, made: Iterable[tuple[int | None, Entry]]) -> dict[str, Entry]:
        """The entries by key. Two of one name are a problem."""
        listed = list(made)
        tree = {entry.key.text: entry for _, entry in listed}
        if len(tree) == len(listed):
            return tree
        tree, owners = {}, dict[str, int | None]()
        for index, entry in listed:
            text = entry.key.text
            if text in tree:
                self._collision(text, owners[text], tree[text], index, entry)
            else:
                tree[text], owners[text] = entry, index
        return tree

    def lookup(self, rule: Rule, text: str) -> Entry | None:
        """The entry of that key in the first of the rule's sources that has it."""
        in_order = rule.source if isinstance(rule.source, tuple) else self.trees
        found = (self.trees[name].get(text) for name in in_order if self.reads_from(rule, name))
        return next((entry for entry in found if entry is not None), None)

    def unclaimed(self, used_by: Iterable[Entry]) -> list[Entry]:
        """What the policy keeps of the leaves that no rule claimed; the others are noted as dropped."""
        kept: list[Entry] = []
        loose: list[str] = []
        looked_up = {
            id(tree[text])
            for name, tree in self.trees.items()
            for text in self.sources[name].seen & tree.keys()
        }
        self.settled |= self.claimed | looked_up
        left = [
            (name, entry)
            for name, tree in self.trees.items()
            # What the other trees have may be for a later pass.
            if name == self.first or self.last
            for entry in tree.values()
            if id(entry) not in (self.claimed if name == self.first else self.settled)
        ]
        used = _used_values(used_by) if left and self.policy == "error" else ()
        for name, entry in left:
            if name == self.first and self.policy == "keep":
                kept.append(entry)
            elif self.policy == "error" and id(entry.value) not in used and id(entry) not in looked_up:
                loose.append(entry.key.text)
            else:
                why = "unmatched: drop" if self.policy == "drop" else "not claimed"
                self.ledger.drops.append(Drop(entry, None, why))
        if loose:
            hint = "Add a rule for them; `drop: true` if they shall go."
            self.ledger.general(
                f"`unmatched: error`, and no rule claims {few_keys(loose)} ({len(loose)} in all)",
                hint,
                self.ledger.unmatched_place(),
            )
        return kept

    def _collision(self, text: str, index: int | None, old: Entry, later: int | None, new: Entry) -> None:
        def told(i: int | None, e: Entry) -> str:
            several = len(self.trees) > 1
            made_of = few_keys(
                f"{r.source}:{r.leaf.key}" if several else r.leaf.key.text for r in reads(e.value)
            )
            if i is None:
                return f"{made_of} stays there (`unmatched: keep`)"
            return f"{self.ledger.ref(i)} makes it" + (f" from {made_of}" if made_of else "")

        hint = None
        if None in (index, later):
            hint = "Rename or drop the one that stays, by a rule of its own."
        elif index is not None and index == later and (mistaken := braces_of(self.pass_.rules[index])):
            hint = f"In the template {mistaken}."
        elif index == later and old.value is not new.value and list(reads(new.value)):
            hint = "Where several leaves shall become one, `value` says how: stack(xs), say."
        message = f"two leaves would be called `{text}`: {told(index, old)}; {told(later, new)}"
        blame = later if later is not None else index
        if blame is None:
            self.ledger.general(message, hint)
        else:
            rule = self.pass_.rules[blame]
            field = "add" if rule.add is not None else "match" if rule.to is None else "to"
            self.ledger.problem(blame, (field,), SurgeryError(message, hint=hint))


def braces_of(rule: Rule) -> str | None:
    """What to say of a template that has the name of a group or variable in mere braces; None: none has."""
    templates = rule.to if isinstance(rule.to, Mapping) else [rule.to or rule.add]
    numbers = [] if rule.match is None else [str(i) for i in range(1, rule.match.groups + 1)]
    names = [*(() if rule.match is None else rule.match.groupindex), *(rule.for_ or ())]
    spelled = {number: f"\\{number}" for number in numbers} | {name: f"${{{name}}}" for name in names}
    braced = [name for template in templates if template for name in template.braced if name in spelled]
    if not braced:
        return None
    return f"`{{{braced[0]}}}` stays as it is; `{spelled[braced[0]]}` inserts what it stands for"


class _Failed:
    """What an evaluation gives whose problem is in the ledger already."""


FAILED = _Failed()


def _field_of(rule: Rule, member: Member, field: Field) -> Field:
    """Where the expression of a member is written."""
    return ("mirror_value",) if member.claim.mirror and rule.mirror_value else field


def _twice(group: Sequence[Member]) -> SurgeryError:
    """What to say of a leaf that `for` sends to one key more than once."""
    counts = Counter(m.claim.entry.key.text for m in group)
    key, count = counts.most_common(1)[0]
    return SurgeryError(
        f"`xs` would have `{key}` {count} times: every value of `for` sends it to this key",
        hint="Insert the variable in `to`: `${i}`, say; where the leaf shall be repeated, give `by`.",
    )


def x_of(entry: Entry) -> Array | Unavailable:
    try:
        return array_of(entry)
    except SurgeryError as error:
        return Unavailable(error.problems[0].message, error.problems[0].hint)


def match_names(match: regex.Match[str]) -> dict[str, Any]:
    """The named groups, and `g` for the numbered ones. A group that did not take part is `''`."""
    return {**{name: text or "" for name, text in match.groupdict().items()}, "g": Groups(match)}


def _shared_names(several: Sequence[Names]) -> dict[str, Any]:
    """The names that mean the same to all members of a gathering; the others say so when they are used."""
    first, *others = several
    return {
        name: value
        if all(o[name] is value or (isinstance(value, Scalar | tuple) and o[name] == value) for o in others)
        else Unavailable(f"`{name}` differs between the {len(several)} leaves that share this key; use `xs`")
        for name, value in first.items()
    }


def _order_problem(places: Sequence[object], group: Sequence[Member]) -> str | None:
    kinds = {type(p) for p in places}
    if kinds not in ({int}, {str}):
        found = " and ".join(sorted(kind.__name__.lower() for kind in kinds))
        return f"`by` must give integers or strings throughout, not {found}"
    place, count = Counter(places).most_common(1)[0]
    if count > 1:
        keys = few_keys(m.claim.entry.key.text for p, m in zip(places, group, strict=True) if p == place)
        return f"`by` gives {place!r} for {count} leaves that go to `{group[0].key}`: {keys}"
    for negative, member in zip(places, group, strict=True):
        if isinstance(negative, int) and negative < 0:
            return f"`by` gives {negative} for `{member.claim.entry.key}`; places count from 0"
    return None


def is_layout(node: Node, bases: set[int]) -> bool:
    """Whether a node only moves the elements of certain nodes (given by identity) about."""
    if id(node) in bases:
        return True
    return (
        isinstance(node, Apply) and node.function.is_layout and all(is_layout(i, bases) for i in node.inputs)
    )


def _used_values(entries: Iterable[Entry]) -> set[int]:
    """The identities of all nodes that the entries' values are made of."""
    used: set[int] = set()
    stack = [entry.value for entry in entries]
    while stack:
        node = stack.pop()
        if id(node) not in used:
            used.add(id(node))
            stack.extend(node.inputs if isinstance(node, Apply) else ())
    return used
