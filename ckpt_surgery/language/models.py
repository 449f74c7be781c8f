"""The recipe language as models: what a recipe may say, field by field.

The models hold parsed expressions, templates and regular expressions. What fields mean together is
checked in `checks`.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
)

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.language.expressions import Expression
from ckpt_surgery.language.field_types import (
    ConstantField,
    ExpressionField,
    MeshField,
    Names,
    PathsField,
    PatternField,
    SpecField,
    TemplateField,
    Unmatched,
    one_of,
)
from ckpt_surgery.language.templates import Template

ANY_MORE = "*"
"""At the end of `sources`: any number of further ones."""


def _kind(value: Any) -> str:
    return "<several>" if isinstance(value, dict | list | tuple) else "<one>"


def _param_kind(value: Any) -> str:
    return "<several>" if isinstance(value, dict) else "<one>"


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        arbitrary_types_allowed=True,
        defer_build=True,  # only whole recipes are validated: their parts need no validators of their own
    )


class Param(_Model):
    """A name for a value, and where the value comes from if the caller does not give one."""

    default: ConstantField = Field(description="The value where nothing else gives one. It gives the type.")
    config: PathsField = Field(
        default=(),
        description="Paths in the config of the first source, such as text_config/num_hidden_layers: one, or "
        "a list, of which the first that is there decides.",
    )


class Rule(_Model):
    """One claim (`match`, `fill` or `add`) and one outcome."""

    match: PatternField | None = Field(
        default=None, description="Regex over source keys; claims every leaf it fully matches."
    )
    source: (
        Annotated[
            Annotated[str, Tag("<one>")] | Annotated[Names, Tag("<several>")],
            Discriminator(_kind),
        ]
        | None
    ) = Field(
        default=None,
        description="Which source: its name, a list of names, or '*' for all of them. Default: the first.",
    )
    to: (
        Annotated[
            Annotated[TemplateField, Tag("<one>")]
            | Annotated[Mapping[TemplateField, ExpressionField], Tag("<several>")],
            Discriminator(_kind),
        ]
        | None
    ) = Field(
        default=None,
        description="Key template, or a mapping of key templates to expressions for one-to-many.",
    )
    drop: bool = Field(default=False, description="The leaf goes, on purpose.")
    by: ExpressionField | None = Field(
        default=None, description="Several leaves share one `to`: order them by this expression."
    )
    for_: Mapping[str, ExpressionField] | None = Field(
        default=None, alias="for", description="Repeat the rule for each value of each of these variables."
    )
    fill: PatternField | None = Field(
        default=None, description="Regex over target keys; claims every target leaf it fully matches."
    )
    from_: TemplateField | None = Field(
        default=None, alias="from", description="Key template of the source leaf that becomes `x`."
    )
    fallback: bool = Field(default=False, description="Take the target's own value.")
    add: TemplateField | None = Field(
        default=None, description="Key template of a leaf that comes from no single source leaf."
    )
    value: ExpressionField | None = Field(
        default=None, description="What the leaf's value becomes. Default: `x`."
    )
    mirror_value: ExpressionField | None = Field(
        default=None,
        description="What the value of a mirrored leaf becomes, where `value` changes more than layout.",
    )
    when: ExpressionField | None = Field(
        default=None, description="The rule claims a leaf only where this is true."
    )
    optional: bool = Field(default=False, description="A rule that claims nothing is fine.")

    @property
    def values(self) -> tuple[Expression, ...]:
        """The expressions of all outputs."""
        several = tuple(self.to.values()) if isinstance(self.to, Mapping) else ()
        return several if self.value is None else (self.value, *several)

    @property
    def templates(self) -> tuple[Template, ...]:
        """The key templates of all outputs."""
        if isinstance(self.to, Mapping):
            return tuple(self.to)
        return tuple(template for template in (self.to, self.add) if template is not None)


ParamField = Annotated[
    Annotated[ConstantField, Tag("<one>")] | Annotated[Param, Tag("<several>")],
    Discriminator(_param_kind),
]


class Pass(_Model):
    """Rules that apply at once to the tree that the pass before produced."""

    name: str | None = Field(default=None, description="For messages and reports.")
    when: ExpressionField | None = Field(default=None, description="The pass runs only where this is true.")
    unmatched: Unmatched | None = Field(
        default=None,
        description="Leaves that no rule claims: keep, drop or error. Default: what the recipe says.",
    )
    mirror: Mapping[str, Names] = Field(
        default_factory=dict,
        description="Subtrees that look like another one: every rule for the first applies to them too.",
    )
    rules: Annotated[tuple[Rule, ...], Strict(False)] = Field(
        default=(), description="The first rule that claims a leaf wins."
    )


class TargetPolicy(_Model):
    """How the result and the target's structure are brought together."""

    prefer: Literal["source", "target"] = Field(
        default="source", description="Who wins where both have a key and no rule speaks."
    )
    dtype: Literal["source", "target"] = Field(
        default="source", description="Keep the source's dtype, or cast to the target's."
    )
    on_shape_mismatch: Literal["error", "fallback"] = Field(
        default="error", description="What to do where shapes differ: stop, or take the target's own value."
    )
    missing: Literal["error", "fallback"] = Field(
        default="error",
        description="What to do about a leaf that no rule gives and no source has: stop, or take the "
        "target's own value. With `prefer: target` nothing is missing.",
    )


class ShardingPolicy(_Model):
    """Which sharding Orbax is to record of each array."""

    mesh: MeshField = Field(
        default_factory=dict, description="The axes of the mesh of devices, in order, and how long each is."
    )
    specs: Mapping[PatternField, SpecField] = Field(
        default_factory=dict,
        description="Regex over keys → for each axis of the array a mesh axis, a list of them, or null; "
        "axes that are left out at the end are not cut. The first that matches wins.",
    )


class OutputPolicy(_Model):
    """How the result is written; the command line wins."""

    format: str | None = Field(
        default=None,
        description="orbax, safetensors, flax, npz or zarr. Default: by the destination's name, else orbax.",
    )
    zarr: Annotated[Literal[3, 2], one_of("3 or 2")] = Field(
        default=3, description="Version of newly written arrays in Orbax and zarr: 3 (checksummed) or 2."
    )
    structure_file: bool = Field(
        default=False,
        description="Also write the file `checkpoint` that Orbax before 0.5.21 looks for; with `zarr: 2`.",
    )
    sharding: (
        Annotated[
            Annotated[Literal["target"], Tag("<one>")] | Annotated[ShardingPolicy, Tag("<several>")],
            Discriminator(_kind),
        ]
        | None
    ) = Field(
        default=None,
        description="Which shardings Orbax is to record: the target's, or those of `specs` over `mesh`. "
        "A leaf without one keeps its own, where that still fits.",
    )


class Recipe(_Model):
    """What becomes of every leaf of a checkpoint."""

    version: Annotated[Literal[1], one_of("1")] = Field(description="Of the recipe language.")
    description: str | None = Field(default=None, description="For people.")
    written_params: Mapping[str, ParamField] = Field(
        default_factory=dict,
        alias="params",
        description="Names for values that `--set NAME=VALUE` can override; typed by the default. "
        "`{default: …, config: PATH}` takes the value from the config beside the source.",
    )
    tables: Mapping[str, Mapping[str | int, ConstantField]] = Field(
        default_factory=dict,
        description="Lookups for expressions; the entry `_` stands for all that are missing.",
    )
    sources: Names = Field(
        default=("source",),
        description="Names for the checkpoints that are read, in the order of the command line. "
        "A `'*'` at the end: and any number more, which rules take together, `source: '*'`. Reports call "
        "them source_2, source_3, … by their place; a rule that speaks of one needs a name for it here.",
    )
    target: TargetPolicy | None = Field(
        default=None, description="How to meet the structure that the result must have."
    )
    output: OutputPolicy | None = Field(default=None, description="How the result is written.")
    hooks: str | None = Field(
        default=None,
        description="A Python file beside the recipe, with functions of the user's own; "
        "needs `--allow-hooks`.",
    )
    unmatched: Unmatched = Field(
        default="keep",
        description="Leaves that no rule claims: keep, drop or error. A pass may say otherwise.",
    )
    mirror: Mapping[str, Names] | None = Field(
        default=None, description="Of the one pass that `rules` is short for."
    )
    rules: Annotated[tuple[Rule, ...], Strict(False)] | None = Field(
        default=None, description="Short for one pass."
    )
    written_passes: Annotated[tuple[Pass, ...], Strict(False)] | None = Field(
        default=None, alias="passes", description="Passes, one after the other; instead of `rules`."
    )

    @property
    def named_sources(self) -> tuple[str, ...]:
        """The sources that there have to be."""
        return tuple(name for name in self.sources if name != ANY_MORE)

    @property
    def takes_more(self) -> bool:
        """Whether any number of further sources may follow the named ones."""
        return ANY_MORE in self.sources

    def source_names(self, count: int) -> tuple[str, ...]:
        """What `count` sources are called. Raises UsageError where the recipe takes fewer or more."""
        named = self.named_sources
        if count < len(named) or (count > len(named) and not self.takes_more):
            more = " or more" if self.takes_more else ""
            wanted = f"{len(named)}{more} source{'s' if more or len(named) > 1 else ''} ({', '.join(named)})"
            raise UsageError(f"the recipe takes {wanted}; {count} {'was' if count == 1 else 'were'} given")
        return (*named, *(f"source_{i}" for i in range(len(named) + 1, count + 1)))

    @cached_property
    def params(self) -> Mapping[str, Param]:
        """The params by name; a mere value is short for one with this default."""
        return {
            name: value if isinstance(value, Param) else Param.model_construct(default=value, config=())
            for name, value in self.written_params.items()
        }

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """What consumers look at: the passes, or the one that `rules` is short for."""
        if self.written_passes is not None:
            return self.written_passes
        return (Pass.model_construct(mirror=self.mirror or {}, rules=self.rules or ()),)
