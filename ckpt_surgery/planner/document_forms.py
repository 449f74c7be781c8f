"""The forms of a saved plan: names, types and limits of everything that its JSON may have."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.protocols import LinkMode
from ckpt_surgery.language.params import Origin
from ckpt_surgery.planner.plan import Transfer

MOST_BYTES = 2**63 - 1
MOST_WORKERS = 4096
MOST_STEP = 10**18 - 1
"""Largest number of a step: Orbax's names of steps are read up to 18 digits."""
LONGEST_RECIPE = 2**20
"""Characters of a recipe at most, and so of a line or a column in it."""

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Bytes = Annotated[int, Meta(ge=1, le=MOST_BYTES)]
Size = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
Crc = Annotated[int, Meta(ge=0, lt=2**32)]
StepNumber = Annotated[int, Meta(ge=0, le=MOST_STEP)]
Position = Annotated[int, Meta(ge=1, le=LONGEST_RECIPE + 1)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Part of a saved plan: reading one checks the names and types of all members."""


class HooksForm(_Form, frozen=True):
    """The file of hooks."""

    file: str
    """Absolute path."""
    sha256: Sha256


class RecipeForm(_Form, frozen=True):
    """The recipe that the plan was made from, which is not read again."""

    path: str
    sha256: Sha256
    hooks: HooksForm | None = None


class FileForm(_Form, frozen=True):
    """A file of a source; `FileState` describes the fields. Its time does not count."""

    size: Size
    version: str = ""
    sample: Crc | None = None


class SeenForm(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A leaf of a source that is read or dropped, as the plan shows it where the source is not at hand."""

    key: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Components of the key; a list index is its decimal digits."""
    kind: LeafKind
    list_indices: tuple[Count, ...]
    """Which components of the key are list indices, by number."""
    shape: tuple[Count, ...] | None
    """Shape of the array; None for strings and empty nodes."""
    dtype: str | None
    about: str | None
    """Implementation of a PRNG key, or kind of an empty node."""


class ItemForm(_Form, frozen=True):
    """An item that the result does not get; `DroppedItem` describes the fields."""

    source: str
    item: str
    kind: str
    nbytes: Size
    why: str


class CostsForm(_Form, frozen=True):
    """What the plan costs where it was made; `Costs` describes the fields."""

    bytes_out: Size
    bytes_linked: Size
    bytes_copied: Size
    bytes_computed: Size
    bytes_read: Size
    peak_memory: Size
    bytes_dead: Size = 0
    bytes_linkable: Size = 0
    bytes_served: Size = 0


class InputForm(_Form, frozen=True):
    """A source, or the target where it is a checkpoint."""

    name: str
    path: str
    """Absolute path."""
    format: str
    files: dict[str, FileForm]
    """The checkpoint's files by their paths within it, wherever it lies."""
    step: StepNumber | None = None
    item: str | None = None
    leaves: Count = 0
    """Number of its leaves."""
    seen: tuple[SeenForm, ...] = ()
    """Its leaves that are read or dropped. They are shown, and never taken for the source."""


class DestinationForm(_Form, frozen=True):
    """The destination; `DestinationOptions` describes the fields."""

    format: str
    path: str | None = None
    """Absolute path; None if the plan was made without a destination."""
    step: StepNumber | None = None
    item: str | None = None
    zarr: Literal[2, 3] = 3
    structure_file: bool = False
    shard_size: Bytes | None = None
    link_mode: LinkMode = LinkMode.AUTO


class PlaceForm(_Form, frozen=True):
    """A position in the recipe; `Place` describes the fields."""

    file: str
    path: str
    line: Position | None
    column: Position
    text: str
    width: Position = 1
    name: str | None = None


class RuleForm(_Form, frozen=True):
    """A rule that decided about outputs."""

    path: str
    line: Position | None
    value: PlaceForm | None = None
    """Place of the rule's `value`, at which errors that depend on the values of arrays point."""
    name: str | None = None


class OutputForm(_Form, frozen=True):
    """One output leaf."""

    key: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Components of the key; a list index is its decimal digits."""
    kind: LeafKind
    transfer: Transfer
    value: Any
    """A VALUE in the notation of `node_json`."""
    list_indices: tuple[Count, ...] = ()
    """Which components of the key are list indices, by number."""
    shape: tuple[Count, ...] | None = None
    """Shape of the array; None for strings and empty nodes."""
    dtype: str | None = None
    served: bool = False
    """Whether the files that hold copied bytes are copied whole, by the store that they lie in."""
    chunks: tuple[Positive, ...] | None = None
    """Chunk shape of a computed array; linked and copied bytes keep theirs."""
    block: tuple[Positive, ...] | None = None
    """What one task computes: whole chunks."""
    pieces: tuple[tuple[Positive, ...], ...] = ()
    """For each value over whole arrays that it needs, what is read of its input at once."""
    sharding: str | None = None
    prng_impl: str | None = None
    string: str | None = None
    empty: str | None = None
    rule: Count | None = None
    """Number of the rule that did the work; None where a policy decided."""
    effects: tuple[tuple[Count, bool, bool], ...] = ()
    """If several rules claimed it, all of them, from the first pass to the last: number of the rule, whether
    it gave the leaf another key, and whether another value."""


class ParamForm(_Form, frozen=True):
    """A param; `ParamValue` describes the fields."""

    name: str
    value: Any
    origin: Origin
    entry: str | None = None
    note: str | None = None


class DroppedForm(_Form, frozen=True):
    """A source leaf that feeds no output."""

    source: str
    key: str
    why: str
    rule: Count | None = None
    earlier: tuple[Count, ...] = ()
    """Numbers of the rules of earlier passes that claimed it."""


class SavedPlan(_Form, frozen=True):
    """What `apply` does with a saved plan."""

    version: str
    """Version of the tool that made the plan; no other version carries it out."""
    recipe: RecipeForm
    inputs: Annotated[list[InputForm], Meta(min_length=1)]
    destination: DestinationForm
    memory: Bytes
    """Budget in bytes."""
    workers: Annotated[int, Meta(ge=1, le=MOST_WORKERS)]
    metadata: str
    """The custom metadata as JSON text: in files it may have values that strict JSON lacks, such as NaN."""
    params: list[ParamForm]
    rules: list[RuleForm]
    shared: list[Any]
    """Values that outputs have in common, by number."""
    outputs: list[OutputForm]
    dropped: list[DroppedForm]
    warnings: list[str]
    costs: CostsForm
    """What the plan costs; carrying it out works this out again."""
    restorable_by: dict[str, str]
    """The oldest version of each package that can restore the result."""
    dropped_items: tuple[ItemForm, ...]
    """Items of the sources that the result does not get."""
    sha256: str = ""
    """Digest of all else (`seal`), by which a file that was damaged or changed is recognized."""
