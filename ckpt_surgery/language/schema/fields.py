"""The recipe language as models: the fields of a recipe, with their types, defaults and descriptions.

The models hold parsed expressions, templates and regular expressions. Which fields go together is checked in
`checks.recipe`.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, Strict, Tag

from ckpt_surgery.core.errors import Code, UsageError
from ckpt_surgery.core.text import number_of
from ckpt_surgery.language.expressions.parsing import Expression
from ckpt_surgery.language.patterns.templates import Template
from ckpt_surgery.language.schema.field_types import (
    ClaimField,
    ConstantField,
    ExpressionField,
    MeshField,
    Names,
    PathsField,
    PatternField,
    SpecField,
    StrictModel,
    TemplateField,
    Unmatched,
    one_of,
)

ANY_MORE = "*"  # Stands at the end of `sources` for any number of further ones


One = TypeVar("One")
Several = TypeVar("Several")
_OneOr = Annotated[
    Annotated[One, Tag("<one>")] | Annotated[Several, Tag("<several>")],
    Discriminator(lambda value: "<several>" if isinstance(value, dict | list | tuple) else "<one>"),
]
"""One type for texts and the like, another one for lists and mappings, so that errors are about one."""


def _field(description: str, default: Any = None, alias: str | None = None) -> Any:
    """A field that can be left out. `description`: its text in the reference and in the schema."""
    return Field(default=default, alias=alias, description=description)


class Param(StrictModel):
    """A named value that the caller can override."""

    default: ConstantField = Field(
        description="The value if neither `--set` nor the config gives one. It also gives the type."
    )
    config: PathsField = _field(
        "A path in the config of the first source, such as text_config/num_hidden_layers, or a list of "
        "paths, of which the first that exists gives the value.",
        (),
    )


class Rule(StrictModel):
    """One claim (`match`, `fill` or `add`) and one outcome."""

    match: ClaimField | None = _field(
        "Regex over source keys; claims every leaf it fully matches. `${param}` in it stands for the "
        "param's value, taken literally; for any one of the values of a list."
    )
    source: _OneOr[str, Names] | None = _field(
        "Which source: its name, a list of names, or '*' for all of them. Default: the first."
    )
    to: _OneOr[TemplateField, Mapping[TemplateField, ExpressionField]] | None = _field(
        "Key template, or a mapping of key templates to expressions for one-to-many."
    )
    drop: bool = _field("The leaf is removed, and the report says so.", False)
    by: ExpressionField | None = _field(
        "The order of the leaves that share one `to`: they are sorted by this expression."
    )
    for_: Mapping[str, ExpressionField] | None = _field(
        "Repeat the rule for each value of each of these variables.", alias="for"
    )
    fill: ClaimField | None = _field(
        "Regex over target keys; claims every target leaf it fully matches. Takes params as `match` does."
    )
    from_: TemplateField | None = _field("Key template of the source leaf that becomes `x`.", alias="from")
    fallback: bool | Literal["missing"] = _field(
        "true: use the target's own value, always; with `prefer: target`, the source's own value under that "
        "key. missing: use it only where no other `fill`, no output of a `match` and no source leaf (of "
        "that key, or `from`) gives one; `value` applies to source leaves.",
        False,
    )
    add: TemplateField | None = _field("Key template of a leaf that comes from no single source leaf.")
    let: Mapping[str, ExpressionField] | None = _field(
        "Names for parts of the value. Each sees what `value` sees, and the names before it; `value`, the "
        "expressions of a mapping in `to` and `mirror_value` use them."
    )
    value: ExpressionField | None = _field("The new value of the leaf. Default: `x`.")
    mirror_value: ExpressionField | None = _field(
        "The new value of a mirrored leaf. Required where `value` changes more than layout."
    )
    when: ExpressionField | None = _field("Condition: the rule claims a leaf only where this is true.")
    optional: bool = _field(
        "The rule may claim nothing; otherwise a rule that claims nothing is an error.", False
    )

    @property
    def values(self) -> tuple[Expression, ...]:
        """The expressions that give the values of the outputs."""
        several = tuple(self.to.values()) if isinstance(self.to, Mapping) else ()
        return several if self.value is None else (self.value, *several)

    def names_in(self, expression: Expression) -> frozenset[str]:
        """The names that a value uses, itself and through `let`."""
        names = set(expression.names)
        for name, entry in reversed([*(self.let or {}).items()]):
            if name in names:
                names |= entry.names
        return frozenset(names)

    @property
    def templates(self) -> tuple[Template, ...]:
        """The key templates that give the keys of the outputs."""
        several = self.to if isinstance(self.to, Mapping) else (self.to, self.add)
        return tuple(template for template in several if template is not None)


ParamField = Annotated[
    Annotated[ConstantField, Tag("<one>")] | Annotated[Param, Tag("<several>")],
    Discriminator(lambda value: "<several>" if isinstance(value, dict) else "<one>"),
]


class Pass(StrictModel):
    """Rules that are applied together to the tree that the previous pass produced."""

    name: str | None = _field("Name of the pass in messages and reports.")
    when: ExpressionField | None = _field("Condition: the pass is skipped where this is false.")
    unmatched: Unmatched | None = _field(
        "What happens to leaves that no rule claims: keep, drop or error. Default: `unmatched` of the recipe."
    )
    mirror: Mapping[str, Names] = Field(
        default_factory=dict,
        description="Subtrees of the same structure, such as optimizer slots: `{params: "
        "[opt_state/0/mu]}` applies every rule for `params/…` to those subtrees too.",
    )
    rules: Annotated[tuple[Rule, ...], Strict(False)] = _field(
        "Rules in order: the first rule that claims a leaf wins.", ()
    )


class TargetPolicy(StrictModel):
    """Options for bringing the result to the structure of the target."""

    prefer: Literal["source", "target"] = _field(
        "Which value is used where source and target both have a key and no rule applies to it.", "source"
    )
    dtype: Literal["source", "target"] = _field("Keep the source's dtype, or cast to the target's.", "source")
    on_shape_mismatch: Literal["error", "fallback"] = _field(
        "What happens where the shape differs from the target's: an error, or the target's own value is "
        "used.",
        "error",
    )
    missing: Literal["error", "fallback"] = _field(
        "What happens to a leaf of the target that no rule produces and no source has: an error, or the "
        "target's own value is used. With `prefer: target` no leaf is missing.",
        "error",
    )
    extra: Literal["drop", "error"] = _field(
        "What happens to a leaf that feeds no output because the target lacks its key, outputs of `match` "
        "rules included: it is dropped and reported, or an error.",
        "drop",
    )


class InputPolicy(StrictModel):
    """Options for reading the sources. Those of the command line take precedence."""

    uint16: Literal["keep", "bfloat16"] = _field(
        "Arrays of uint16: what they are, or bfloat16 with the same bits, as old versions of T5X stored it.",
        "keep",
    )


class ShardingPolicy(StrictModel):
    """The shardings that Orbax records for the arrays."""

    mesh: MeshField = Field(
        default_factory=dict, description="Axes of the device mesh in order, with their lengths."
    )
    specs: Mapping[PatternField, SpecField] = Field(
        default_factory=dict,
        description="Regex over keys → for each axis of the array a mesh axis, a list of mesh axes, or null; "
        "axes that are left out at the end are not sharded. The first regex that matches wins.",
    )


class OutputPolicy(StrictModel):
    """Options for writing the result. Those of the command line take precedence."""

    format: str | None = _field(
        "orbax, safetensors, flax, npz, zarr or hdf5. Default: the format that the destination's name "
        "implies, otherwise orbax."
    )
    zarr: Annotated[Literal[3, 2], one_of("3 or 2")] = _field(
        "Zarr version of newly written arrays in Orbax and zarr: 3 (with checksums) or 2.", 3
    )
    structure_file: bool = _field(
        "Also write the file `checkpoint` that Orbax before 0.5.21 looks for; with `zarr: 2`.", False
    )
    dicts: Literal["keep", "flat", "nested"] = _field(
        "Whether keys are whole paths in one flat dict, or components in nested ones. keep: flat dicts of "
        "the source stay flat. A target decides by itself.",
        "keep",
    )
    sharding: _OneOr[Literal["target", "none"], ShardingPolicy] | None = _field(
        "Shardings that Orbax records: the target's, those of `specs` over `mesh`, or `none`. A leaf "
        "without one keeps its own sharding if it still fits the shape."
    )


class Recipe(StrictModel):
    """A recipe: what each leaf of a checkpoint is called afterwards, and what its value becomes."""

    version: Annotated[Literal[1], one_of("1")] = Field(description="Version of the recipe language.")
    description: str | None = _field("What the recipe is for; free text.")
    written_params: Mapping[str, ParamField] = Field(
        default_factory=dict,
        alias="params",
        description="Names for values that `--set NAME=VALUE` can override; typed by the default. "
        "`{default: …, config: PATH}` takes the value from the config beside the source.",
    )
    tables: Mapping[str, Mapping[str | int, ConstantField]] = Field(
        default_factory=dict,
        description="Lookup tables for expressions. An entry `_` stands for all keys that are missing.",
    )
    sources: Names = _field(
        "Names for the checkpoints that are read, in the order of the command line. A `'*'` at the end "
        "allows any number of further checkpoints, which rules read together with `source: '*'`. Reports "
        "call them source_2, source_3, … by position; only sources with a name here can be used alone.",
        ("source",),
    )
    target: TargetPolicy | None = _field("How the result is brought to the structure of the target.")
    input: InputPolicy | None = _field("How the sources are read.")
    output: OutputPolicy | None = _field("How the result is written.")
    hooks: str | None = _field(
        "A Python file beside the recipe with your own functions. It runs only with `--allow-hooks`."
    )
    unmatched: Unmatched = _field(
        "What happens to leaves that no rule claims: keep, drop or error. A pass can override it.", "keep"
    )
    mirror: Mapping[str, Names] | None = _field(
        "Mirrored subtrees of the single pass; see `mirror` of a pass."
    )
    rules: Annotated[tuple[Rule, ...], Strict(False)] | None = _field("Rules of a recipe with a single pass.")
    written_passes: Annotated[tuple[Pass, ...], Strict(False)] | None = _field(
        "Passes, which are applied one after the other; used instead of `rules`.", alias="passes"
    )

    @property
    def named_sources(self) -> tuple[str, ...]:
        """The names of the sources that the recipe requires."""
        return tuple(name for name in self.sources if name != ANY_MORE)

    @property
    def takes_more(self) -> bool:
        """Whether further sources may follow the named ones."""
        return ANY_MORE in self.sources

    def source_names(self, count: int) -> tuple[str, ...]:
        """The names of `count` sources. Raises UsageError if the recipe takes fewer or more."""
        named = self.named_sources
        if count < len(named) or (count > len(named) and not self.takes_more):
            wanted = f"{number_of(len(named), 'source')}{' or more' if self.takes_more else ''}"
            message = f"the recipe takes {wanted} ({', '.join(named)}), not {count}"
            raise UsageError(message, code=Code.UNKNOWN_SOURCE)
        return (*named, *(f"source_{i}" for i in range(len(named) + 1, count + 1)))

    @cached_property
    def params(self) -> Mapping[str, Param]:
        """The params by name. A plain value is short for a param with that default."""
        return {
            name: value if isinstance(value, Param) else Param.model_construct(default=value, config=())
            for name, value in self.written_params.items()
        }

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """All passes in order; a recipe with `rules` has one."""
        if self.written_passes is not None:
            return self.written_passes
        return (Pass.model_construct(mirror=self.mirror or {}, rules=self.rules or ()),)

    @cached_property
    def placed_passes(self) -> Sequence[tuple[tuple[str | int, ...], Pass]]:
        """All passes with their paths in the document; a recipe with `rules` has its pass at the root."""
        at_root = self.written_passes is None
        return [(() if at_root else ("passes", i), pass_) for i, pass_ in enumerate(self.passes)]


def reads_uint16_as_bfloat16(recipe: Recipe) -> bool:
    """True if arrays of uint16 are taken for bfloat16 with the same bits."""
    return recipe.input is not None and recipe.input.uint16 == "bfloat16"


def schema() -> dict[str, Any]:
    """The JSON Schema of the recipe language, for editors."""
    described = _without_null(Recipe.model_json_schema(by_alias=True))
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **described, "title": "ckpt-surgery recipe"}


def _without_null(value: Any) -> Any:
    """The schema without the alternative null, which pydantic adds: a field is left out, not null."""
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {k: _without_null(v) for k, v in value.items() if not (k == "default" and v is None)}
    options = [option for option in kept.pop("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        return {**options[0], **kept}
    return {**kept, "anyOf": options} if options else kept
