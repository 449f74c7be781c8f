"""The plan, made from metadata alone: what every output leaf is, where it comes from, and what it costs."""

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.documents import Document
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.file_states import FileState
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, leaf_repr
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.summary import Represented, Summary, from_above
from ckpt_surgery.core.text import brief
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first, reads
from ckpt_surgery.functions.create import InPlaceOf
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.reductions import ListReduction
from ckpt_surgery.language.loading import ParamValue
from ckpt_surgery.planner.cutting import Cut
from ckpt_surgery.planner.entries import RuleEffect, RuleRef, changing_rules

if TYPE_CHECKING:
    from ckpt_surgery.planner.prepared import DestinationOptions


class Fate(enum.StrEnum):
    """Fate of a leaf between the first source and the output."""

    KEPT = "kept"
    """Its key and its value are those of a source leaf."""
    RENAMED = "renamed"
    """Its value is that of a source leaf with another key."""
    TRANSFORMED = "transformed"
    """Its value is computed from source leaves, or cast, or replaced by one that follows from none."""
    DEFAULTED = "defaulted"
    """Its value is the target's own."""
    ADDED = "added"
    """Its value comes from no source leaf of its own: an `add` rule makes it."""


class Transfer(enum.StrEnum):
    """Way in which the bytes of an output come into the destination."""

    LINK = "link"
    """Its file becomes a link to, or shares its blocks with, the file of the source."""
    COPY = "copy"
    """Its stored bytes are copied, and not decoded."""
    COMPUTE = "compute"
    """Its elements are read, computed, and stored anew."""


@frozen()
class Step:
    """One output leaf."""

    leaf: Leaf
    """Key, kind, spec, sharding and other metadata as they will be written. It has no manifest."""
    value: Node
    """Value, as a function of leaves of the inputs."""
    fate: Fate
    rule: RuleRef | None
    """The rule that did the work; None if a policy decided (`unmatched: keep`, `target.prefer`)."""
    sources: tuple[tuple[str, str], ...]
    """Source name and key of every leaf that is read, in order, without repeats."""
    transfer: Transfer = Transfer.COMPUTE
    cut: Cut | None = None
    """How the output is divided into chunks and tasks; None if nothing is computed."""
    stored: Manifest | None = None
    """The stored bytes that become the output unchanged; None if it is computed or has no array."""
    served: bool = False
    """Whether bytes that are copied come with whole files, which the store itself copies."""
    effects: tuple[RuleEffect, ...] = ()
    """Changes by the rules of all passes."""

    @property
    def rules(self) -> tuple[RuleRef, ...]:
        """The rules that changed the leaf, from the first pass to the last; `rule` is one of them."""
        return changing_rules(self.effects) or (() if self.rule is None else (self.rule,))

    @property
    def claimed_by(self) -> tuple[RuleRef, ...]:
        """The rules that claimed the leaf, those that changed nothing as well."""
        return tuple([effect.rule for effect in self.effects]) or self.rules

    @property
    def replaces(self) -> bool:
        """Whether its value takes the place of that of its sources, and does not follow from it."""
        return isinstance(self.value, Apply) and isinstance(self.value.function, InPlaceOf)

    @property
    def takes_files(self) -> bool:
        """Whether the files that hold its stored bytes are taken whole: linked, or copied by their store."""
        return self.transfer is Transfer.LINK or self.served

    def __repr__(self) -> str:
        what = f"{self.fate}, {self.transfer}, {self.leaf.spec or self.leaf.kind}"
        return leaf_repr("Step", self.leaf.key.text, what)


@frozen()
class Dropped:
    """A source leaf that feeds no output."""

    source: str
    """Name of the source."""
    leaf: Leaf
    rule: RuleRef | None
    """The rule that dropped it; None if a policy did."""
    why: str
    """The reason: `drop`, `unmatched: drop`, `not in target`, …"""
    earlier: tuple[RuleRef, ...] = ()
    """The rules of earlier passes that claimed it."""

    @property
    def rules(self) -> tuple[RuleRef, ...]:
        """All rules that claimed it, the one that dropped it last."""
        return self.earlier if self.rule is None else (*self.earlier, self.rule)

    def __repr__(self) -> str:
        return leaf_repr("Dropped", self.leaf.key.text, f"from {self.source}: {self.why}")


@dataclass(frozen=True)
class Input:
    """A source, or the target, as it was when the plan was made."""

    name: str
    """Name of the source in the recipe; `target` for the target."""
    path: str
    """Path as the caller gave it."""
    format: str
    """Name of the format."""
    leaves: int
    """Number of leaves."""
    fingerprint: str
    """Result of `Source.fingerprint`."""
    step: int | None = None
    """The step that was chosen from a directory of steps; None for any other checkpoint."""
    item: str | None = None
    """The item that was chosen from a composite checkpoint; None for any other checkpoint."""
    files: Mapping[str, FileState] = field(default_factory=dict)
    """Its files with samples, by their paths within it; empty where the plan was only looked at."""

    __repr__ = brief


@frozen()
class DroppedItem(Document):
    """An item beside the one that is read, which the result does not get."""

    source: str
    """Name of the source."""
    item: str
    """Name of the item."""
    kind: Literal["arrays", "json", "other"]
    """Its content."""
    bytes: int
    """Size of its files."""
    why: str
    """The reason, such as `DST has no items`."""


@frozen()
class Replacement:
    """Content of the destination, and what a run replaces of it."""

    path: str
    """Path or URL: of a checkpoint, or of a step where one item of it is written."""
    state: str
    """A text that changes with anything there."""
    one_item: bool = False
    """Whether one item is written into a step; all its other items stay."""
    items: tuple[str, ...] = ()
    """Names of the items that are replaced; empty where there are none."""
    stays: tuple[str, ...] = ()
    """Names of the items that stay."""
    leaves: int | None = None
    """Number of leaves that are replaced; None where nobody has counted them."""
    nbytes: int = 0
    """Size of the files that are replaced."""

    @property
    def overwrites(self) -> bool:
        """Whether anything goes: not where an item is added."""
        return not self.one_item or bool(self.items)


@dataclass(frozen=True)
class Costs:
    """Costs of carrying out a plan, in bytes."""

    bytes_out: int
    """Size of all arrays of the result: shape × itemsize. The sum of the next three."""
    bytes_linked: int
    """Of these, what is linked."""
    bytes_copied: int
    """Of these, what is copied as it is stored."""
    bytes_computed: int
    """Of these, what is computed."""
    bytes_read: int
    """Decoded bytes that are read from the inputs to compute, and stored bytes that are copied."""
    peak_memory: int
    """Predicted working set, without the interpreter and libraries."""
    bytes_dead: int = 0
    """Bytes in linked files that no leaf uses."""
    bytes_linkable: int = 0
    """Of what is copied, the part that is copied only because programs may rewrite its files in place."""
    bytes_served: int = 0
    """Of what is copied, the part that an object store copies itself, from object to object."""

    @property
    def bytes_written(self) -> int:
        """Bytes of output arrays that a run writes itself: links, and copies by a store, cost it nothing."""
        return self.bytes_computed + self.bytes_copied - self.bytes_served

    @property
    def bytes_through(self) -> int:
        """Bytes that pass the machines which carry out the plan: what they read, and what they write."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, repr=False)
class Plan(Represented):
    """Everything that `apply` will do."""

    recipe: str
    """Path of the recipe."""
    recipe_sha256: str
    """Hexadecimal digest of the recipe's text."""
    inputs: tuple[Input, ...]
    """The sources in order, then the target if it is a checkpoint."""
    steps: tuple[Step, ...]
    """The leaves of the result, in its order."""
    dropped: tuple[Dropped, ...]
    """The leaves of the sources that no leaf of the result uses."""
    warnings: tuple[str, ...]
    """Sentences about what may not be meant."""
    costs: Costs
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Custom metadata of the result: that of the first source, and the record of the conversion."""
    params: tuple[ParamValue, ...] = ()
    """The recipe's params, their values, and where these come from."""
    hooks_sha256: str | None = None
    """Hexadecimal digest of the file of hooks; None if the recipe has no hooks."""
    dropped_items: tuple[DroppedItem, ...] = ()
    """The items beside those that are read, which the result does not get."""
    replaces: Replacement | None = None
    """Content of the destination; None where nothing is, or no destination was looked at."""
    destination: "DestinationOptions | None" = None
    """Where the result goes; None where that is in memory, or was not said."""
    restorable_by: Mapping[str, str] = field(default_factory=dict)
    """The oldest version of each package that can restore the result; of packages for which it is known."""

    _origin: object = field(default=None, init=False, compare=False)
    """What it was made of, which is neither copied nor pickled: see `with_origin`."""

    def html(self) -> str:
        """The page that the command line writes as a report: HTML with every leaf, which needs no network.

        The recipe is in it if it has a file that has not changed since the plan was made.
        """
        page: str = from_above("api.report_page", "report_page")(self, None)
        return page

    def _summary(self) -> Summary:
        summary: Summary = from_above("report.plan_texts", "plan_summary")(self)
        return summary

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_origin"}


def with_origin(plan: Plan, origin: object) -> Plan:
    """An equal plan that remembers what it was made of, by which it can be carried out."""
    remembering = replace(plan)
    vars(remembering)["_origin"] = origin
    return remembering


def origin_of(plan: Plan) -> object:
    """Inputs of a plan; None if it does not remember them."""
    return plan._origin


@contextmanager
def at_step(step: Step) -> Iterator[None]:
    """Context in which errors get the key and the rule of the output that is made."""
    try:
        yield
    except SurgeryError as error:
        key, place = step.leaf.key, None if step.rule is None else step.rule.value
        told = (replace(p, message=f"`{key}`: {p.message}", place=p.place or place) for p in error.problems)
        raise type(error)(*told) from error


def lineage(step: Step) -> dict[tuple[str, str], Leaf]:
    """The leaves that a value is computed from, by source and key: those of `step.sources`."""
    return {(read.source, read.leaf.key.text): read.leaf for read in reads(step.value)}


def printed_origin(source: str, key: str, leaves: Mapping[tuple[str, str], Leaf]) -> str:
    """Printed key of a leaf of a source. `leaves`: what `lineage` gives."""
    return leaves[source, key].key.printed if (source, key) in leaves else key


def functions(step: Step) -> list[tuple[str, ArraySpec, int]]:
    """Name and result of the functions of a value, each after its inputs, and how many of them there are.

    Those with the same number of functions below them, of one name and result, are counted together.
    """
    applied = Counter((node.height, node.function.called(), node.spec) for node in inputs_first([step.value]))
    return [(*form[1:], count) for form, count in sorted(applied.items(), key=lambda item: item[0][0])]


def is_mean(value: Node) -> bool:
    """Whether a value is the mean of several leaves, perhaps in another dtype."""
    while isinstance(value, Apply) and isinstance(value.function, Cast):
        (value,) = value.inputs
    inputs = value.inputs if isinstance(value, Apply) and value.function == ListReduction("mean") else ()
    return len(inputs) > 1 and all(isinstance(node, Read) for node in inputs)
