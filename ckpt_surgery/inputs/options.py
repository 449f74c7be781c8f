"""Options of `plan`, `apply` and `convert`, in Python and at the command line: each is described here alone.

Importing this takes no NumPy, because `--help` prints the texts.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from ckpt_surgery.core.arguments import Assignments, LinkMode, PathLike, RecipeLike, Size, SortBy

Step = Annotated[int | None, "Step to read from a source that holds several; default: the latest."]
Item = Annotated[str | None, "Item to read from a composite source; default: the only one with arrays."]
SrcFormat = Annotated[str | None, "Format of the sources; default: what the content of each says."]
Uint16 = Annotated[
    Literal["keep", "bfloat16"] | None,
    "How arrays of uint16 are read: `bfloat16` takes their bits as bfloat16, which old versions of T5X "
    "stored so; default: the recipe's `input`, else `keep`.",
]
Memory = Annotated[
    Size | None,
    "Memory budget in bytes, or a text such as `2GiB`; default: 2 GiB, or a quarter of what is free.",
]
Workers = Annotated[int | None, "Number of threads; default: one per core, and one more."]
Params = Annotated[
    Assignments | None, "Values of the recipe's params: texts `NAME=VALUE`, in Python also a mapping."
]
AllowHooks = Annotated[bool | None, "Let the recipe's hooks run, Python code of its author; default: no."]
Match = Annotated[str | None, "Only keys that match as a whole: `.*/kernel`, not `kernel`."]
Under = Annotated[str | None, "Only keys below these first components, such as `params/decoder`."]
ReadFormat = Annotated[str | None, "Format of what is read; default: what its content says."]
Levels = Annotated[int | None, "Levels of keys; what is deeper is one line with its totals; default: all."]
Sort = Annotated[SortBy | None, "The largest first, or by key; default: the checkpoint's order."]
Stats = Annotated[bool, "Read all values: min, max, mean, std and histogram; what is unusual."]
Values = Annotated[bool, "The values too; of numbers: max abs and relative difference, cosine."]
Rtol = Annotated[float, "With `values=True`: the same is |A - B| <= atol + rtol * |B|; default: 0."]
Atol = Annotated[float, "What is allowed besides; default: 0."]
Sample = Annotated[float | None, "Compare a random share of what has digests, such as 0.05."]
Seed = Annotated[int, "Number that chooses what is drawn at random; default: 0."]
HintRecipe = Annotated[RecipeLike | None, "Recipe with `match` rules that are taken as true, and come first."]
HintRules = Annotated[
    Sequence[str],
    "A rule that is taken as true, also several: `s|REGEX|TEMPLATE|`, also with ` = EXPRESSION` behind "
    "it, `drop:REGEX`, `KEY = EXPRESSION`.",
]
CompareBy = Literal["auto", "ignore"]
Compared = Annotated[CompareBy, "`auto`: values decide where both have some; `ignore`: names; default: auto."]
Out = Annotated[PathLike | None, "File for the recipe."]
ReplaceOut = Annotated[bool, "Replace a file that is there already."]


class SourceOptions(TypedDict, total=False):
    """Options that choose the checkpoint to read at a path. None stands for the default, here and below."""

    step: Step
    item: Item
    src_format: SrcFormat


class ReadOptions(SourceOptions, total=False):
    """Options of all functions that read arrays of a checkpoint."""

    uint16: Uint16
    memory: Memory


class FormatOptions(ReadOptions, total=False):
    """Options about the bytes of the destination."""

    format: Annotated[
        str | None, "Format of the destination; default: the recipe's, else what its name says, else orbax."
    ]
    shard_size: Annotated[
        Size | None, "Bytes of arrays per file at most, or a text such as `5GB`; default: one file."
    ]
    unshard: Annotated[
        bool | None,
        "Record no sharding of any array, so that Orbax restores the result on any devices; default: no.",
    ]
    link_mode: Annotated[
        LinkMode | str | None,
        "How stored bytes that need no change get into the destination. `auto`: reflinks where the file "
        "system can, else hard links to files that nothing rewrites in place (of formats whose writers "
        "replace files, in a Hugging Face cache, without write permission), else copies. `reflink`: reflinks "
        "or an error. `hardlink`: hard links to all files, if nothing will rewrite the sources. `copy`: no "
        "links; default: `auto`.",
    ]


class ConvertOptions(FormatOptions, total=False):
    """Options of `convert`, which `plan` and `apply` take too."""

    dst_step: Annotated[
        int | None, "Number of the step that the destination, a CheckpointManager directory, gets."
    ]
    dst_item: Annotated[
        str | None,
        "Name of the item inside that step. A step that exists keeps its other items; default: that of the "
        "source's item, else `default`.",
    ]
    workers: Workers


class RecipeOptions(TypedDict, total=False):
    """Options that only recipes use."""

    target: Annotated[
        PathLike | Any | None,
        "Checkpoint or listing, in Python also a pytree, whose structure the result must have.",
    ]
    set: Params
    config: Annotated[
        PathLike | None,
        "JSON file that describes the model of the first source; default: the config.json beside it, else "
        "what the conversion before recorded.",
    ]
    allow_hooks: AllowHooks


class RestoreOptions(ReadOptions, total=False):
    """Options that `restore` and `plan_restore` share with `apply`."""

    set: Params
    workers: Workers
    allow_hooks: AllowHooks


class InvertOptions(ReadOptions, RecipeOptions, total=False):
    """Options of `invert`."""


class ExplainOptions(FormatOptions, RecipeOptions, total=False):
    """Options of `explain` on the command line."""

    last: Annotated[
        int | None,
        "Number of the latest finished steps of the one source that are read, each as a source of its own, "
        "in ascending order; default: one step, as `step` says.",
    ]


class PlanOptions(ConvertOptions, ExplainOptions, total=False):
    """Options of `plan` and `apply`: those of `convert`, and those that only recipes use."""


class DiffOptions(TypedDict):
    """Options of the function `diff`."""

    step: Step
    item: Item
    uint16: Uint16
    match: Match
    values: Values
    rtol: Rtol
    atol: Atol
    memory: Memory


class InspectOptions(TypedDict):
    """Options of the function `inspect`, and `format`."""

    step: Step
    item: Item
    match: Match
    under: Under
    depth: Levels
    sort: Sort
    stats: Stats


ARGUMENTS = frozenset(
    {
        *PlanOptions.__annotations__,
        *("overwrite", "resume", "verify", "values", "copy_config", "under", "out", "engine"),
    }
)
"""Arguments that hints name, as in `step=10`; at the command line they are options."""
