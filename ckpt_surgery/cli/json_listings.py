"""The JSON documents of `inspect`, `diff`, `env` and `clean` as models."""

from typing import Any, Literal

from ckpt_surgery.cli.json_documents import Document, Keyed, Versioned
from ckpt_surgery.core.documents import Number

Kind = Literal["array", "scalar", "string", "prng_key", "empty", "object"]


class Histogram(Document):
    """Bin i holds the values from start + i·width to start + (i + 1)·width."""

    start: Number
    """Where the first bin begins."""
    width: Number
    """Width of each bin."""
    counts: list[int]
    """Number of elements in each bin."""


class ListedLeaf(Keyed):
    """A leaf of a checkpoint."""

    shape: list[int] | None
    """Lengths of its axes; null where it is no array."""
    dtype: str | None
    """Type of its elements."""
    bytes: int
    """Size of the array."""
    kind: Kind
    """What it is."""
    type: str | None = None
    """Type of an object of a tree in memory that no checkpoint holds."""
    chunks: list[int] | None
    """Shape of the chunks that it is stored in."""
    stored_as: str | None = None
    """Type of the format's own that it is stored in, such as Q4_K of GGUF, where that is not `dtype`."""
    sharding: dict[str, Any] | None
    """How it was spread over devices."""
    value: Any = None
    """Value of a string or of a number."""
    unread: str | None = None
    """Why its value could not be read."""
    min: Number | None = None
    """With `--stats`: the smallest finite element."""
    max: Number | None = None
    """With `--stats`: the largest."""
    mean: Number | None = None
    """With `--stats`: the mean of the finite elements."""
    std: Number | None = None
    """With `--stats`: their standard deviation."""
    nan: int | None = None
    """With `--stats`: how many elements are NaN."""
    inf: int | None = None
    """With `--stats`: how many are infinite."""
    histogram: Histogram | None = None
    """With `--stats`: how the finite elements are distributed."""


class DtypeTotal(Document):
    """Totals of the leaves of one type, or of a subtree."""

    leaves: int
    """Number of leaves."""
    elements: int
    """Number of their elements."""
    bytes: int
    """Their size."""


class SubtreeTotal(DtypeTotal):
    """Totals of a subtree."""

    key: str
    """Its key."""


class UnusualLeaves(Document):
    """Leaves that have something unusual in common."""

    what: Literal["nan", "inf", "zeros", "mixed dtypes"]
    """What it is."""
    keys: list[str]
    """Their keys."""


class PastRecipe(Document):
    """A recipe that the checkpoint went through."""

    name: str
    """Its path or name; `(recipe)` where it was given as data."""
    sha256: str
    """Hexadecimal digest of its text."""
    params: dict[str, Any]
    """Values of its params."""


class Origin(Document):
    """What the checkpoint was made from."""

    name: str
    """Name of the source in the recipe."""
    path: str
    """As it was given."""
    format: str
    """Name of its format."""
    step: int | None
    """Step inside a CheckpointManager's directory."""
    item: str | None
    """Item of that step."""


class History(Document):
    """How the checkpoint was made by ckpt-surgery."""

    recipes: list[PastRecipe]
    """The recipes that it went through, the latest last."""
    sources: list[Origin]
    """What the last run made it from."""
    version: str | None
    """Version of ckpt-surgery that made it."""
    written: str | None
    """When, by the time of the file that records it, in UTC; null in a bucket."""
    config: list[str]
    """Names of the entries of the config that is recorded in it."""


class InspectDocument(Versioned):
    """`inspect`."""

    path: str
    """As it was given."""
    format: str
    """Name of its format."""
    step: int | None
    """Step inside a CheckpointManager's directory."""
    item: str | None
    """Item of that step."""
    steps: list[int]
    """All steps of that directory."""
    unfinished_steps: list[int]
    """Steps whose writing was not completed."""
    items: list[str]
    """All items of the step."""
    bytes: int
    """Size of all listed arrays."""
    parameters: int
    """Number of parameters."""
    others: int
    """Number of leaves that `--match` and `--under` leave out."""
    metadata: dict[str, Any]
    """What else the checkpoint holds."""
    dtypes: dict[str, DtypeTotal]
    """Totals by type of elements."""
    subtrees: list[SubtreeTotal]
    """Totals by subtree."""
    leaves: list[ListedLeaf]
    """Every leaf."""
    unusual: list[UnusualLeaves] | None
    """With `--stats`: what is unusual; else null."""
    warnings: list[str]
    """What may be a mistake in the checkpoint, or around it."""
    history: History | None = None
    """How it was made, where ckpt-surgery made it."""


class Side(Document):
    """A leaf in one of two checkpoints."""

    kind: Kind
    """What it is."""
    shape: list[int] | None
    """Lengths of its axes."""
    dtype: str | None
    """Type of its elements."""
    string: str | None = None
    """Value of a string."""
    type: str | None = None
    """Type of an object of a tree in memory that no checkpoint holds."""
    containers: list[Literal["list", "dict"]] | None = None
    """Kinds of the containers around it, where these differ."""


class OnlyLeaf(Side):
    """A leaf that only one of the two has."""

    key: str
    """Its key."""
    components: list[str]
    """The components of the key, of which one may have a `/` in it."""
    why: str | None = None
    """Why the format of the other cannot hold it."""


class ChangedLeaf(Keyed):
    """A leaf that differs in more than values."""

    what: list[Literal["kind", "shape", "dtype", "value", "container"]]
    """What differs."""
    a: Side
    """The leaf in A."""
    b: Side
    """The leaf in B."""


class RenamedLeaf(Document):
    """A leaf of A and one of B that are most likely the same under two names."""

    a: Keyed
    """The leaf in A."""
    b: Keyed
    """The leaf in B."""
    proof: Literal["stored", "values", "names"]
    """What shows it: that both have the same stored bytes, that all values are equal, or only that
    names, shape and dtype suggest it."""


class ComparedLeaf(Keyed):
    """How far the values of a leaf are apart."""

    equal: bool
    """Whether all elements are equal, within the tolerances."""
    max_abs: Number
    """max |a - b|."""
    max_rel: Number
    """max |a - b| / |b|."""
    cosine: Number | None
    """Cosine of the angle between the two, without NaN and infinity that are the same in both; null where a
    norm is zero, or where NaN or infinity stand against something else."""


class NotCompared(Keyed):
    """A leaf whose values could not be compared."""

    why: str
    """The reason."""


class DiffDocument(Versioned):
    """`diff`."""

    different: bool
    """Whether the two may differ."""
    common: int
    """Number of keys that both have."""
    only_a: list[OnlyLeaf]
    """Leaves that B lacks."""
    only_b: list[OnlyLeaf]
    """Leaves that A lacks."""
    changed: list[ChangedLeaf]
    """Leaves that differ in more than values."""
    renamed: list[RenamedLeaf]
    """Those of `only_a` and `only_b` that are most likely the same under two names."""
    rtol: Number
    """Relative tolerance."""
    atol: Number
    """Absolute tolerance."""
    values: list[ComparedLeaf] | None
    """With `--values`: every array that both have in one shape; else null."""
    not_compared: list[NotCompared] | None
    """With `--values`: leaves that could not be compared."""
    warnings: list[str]
    """What may be wrong with A or B, such as bfloat16 that is kept as uint16."""
