"""Decide on which devices, and how divided, each array of a tree lies."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import regex

from ckpt_surgery.core.errors import Code, PlanError, Problem, RecipeError, UsageError
from ckpt_surgery.core.folding import Notice, few_keys, merged
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.shardings import misfit
from ckpt_surgery.core.text import abridged, few, shown
from ckpt_surgery.language.expressions.regexes import MatchBudget, compile_pattern
from ckpt_surgery.language.expressions.scope import ExpressionError
from ckpt_surgery.live import meshes
from ckpt_surgery.live.logical_axes import LogicalAxes, shardings_by_names
from ckpt_surgery.live.meshes import Boxes, mesh_text, spec_as_text
from ckpt_surgery.live.tree import LiveTree, key_of, with_states

Rules = Sequence[tuple[regex.Pattern[str], Any]]
"""Regular expressions for whole keys, and NamedShardings: the first that matches wins."""


def resolved_shardings(tree: LiveTree, shardings: Any, on_host: Container[str] = ()) -> Mapping[str, Any]:
    """Sharding (`jax.sharding.Sharding`) of each array of a tree by the text of its key, in the tree's order.

    None stands for an uncommitted array on the default device. Leaves that are neither a `jax.Array` nor a
    `jax.ShapeDtypeStruct` are left out: NumPy arrays, numbers, texts and empty nodes lie on no device.

    `shardings` is None for the leaves' own; or a sharding, or a prefix of the tree as in `jax.jit`, in which
    None stands for the leaves' own; or rules: a pair of a mesh and pairs, or a mapping, of regular
    expressions over whole keys and PartitionSpecs, of which the first that matches wins; or LogicalAxes. The
    boxes of flax count where a leaf has no sharding, and where no rule matches. `on_host`: texts of the keys
    of arrays that stay in the host's memory if no rule matches them.

    Raises UsageError if `shardings` cannot be understood as shardings of this tree, PlanError for leaves that
    no rule matches or no name of an axis fits, and for shapes that cannot be divided so.
    """
    import jax

    on_devices = jax.Array | jax.ShapeDtypeStruct
    arrays = {text: value for text, value in tree.values.items() if isinstance(value, on_devices)}
    boxes = meshes.boxes_in(tree)
    if isinstance(shardings, LogicalAxes):
        resolved = shardings_by_names(arrays, shardings, boxes, on_host)
    elif (rules := _parse_rules(shardings)) is not None:
        resolved = _by_rules(arrays, *rules, boxes, on_host)
    else:
        has_modules = with_states(shardings)[0] is not shardings
        whole = tree.rebuilt({}) if has_modules else tree.listed({})
        given = {} if shardings is None else dict(_spread(shardings, whole, ()))
        resolved = {
            text: _own_sharding(text, value, boxes) if given.get(text) is None else given[text]
            for text, value in arrays.items()
        }
    misfits = []
    for text, sharding in resolved.items():
        if (flaw := sharding_flaw(tree.leaves[text], sharding)) is not None:
            if (mesh := getattr(sharding, "mesh", None)) is not None:
                flaw += f"; the sharding is {spec_as_text(sharding.spec)} on the mesh {mesh_text(mesh)}"
            misfits.append(Notice("", shown(text), f" {flaw}"))
    if misfits:
        problems = (Problem(misfit.sentence, hint=_HINT) for misfit in merged(misfits))
        raise PlanError(*problems, code=Code.SHARDING)
    return resolved


def sharding_flaw(leaf: Leaf, sharding: Any) -> str | None:
    """Reason why an array cannot be divided so: `has 6 along axis 0, which does not divide into 4 parts`.

    None if it can, if there is no sharding, and for leaves that are not arrays.
    """
    from jax.sharding import NamedSharding

    if sharding is None or leaf.spec is None:
        return None
    shape = leaf.spec.shape[:-1] if leaf.kind is LeafKind.PRNG_KEY else leaf.spec.shape
    if isinstance(sharding, NamedSharding):
        return misfit(sharding.mesh.shape, tuple(sharding.spec), shape)
    try:
        sharding.shard_shape(shape)
    except (ValueError, IndexError) as error:
        return f"has the shape {list(shape)}, which {shown(str(sharding))} cannot divide: {shown(str(error))}"
    return None


def _by_rules(
    arrays: Mapping[str, Any], mesh: Any, rules: Rules, boxes: Boxes, on_host: Container[str]
) -> dict[str, Any]:
    """Sharding of the first rule that matches the whole key, or else of the box over the mesh, by key.

    Raises PlanError for keys that have neither, UsageError if matching takes too long.
    """
    budget = MatchBudget()

    def sharding(text: str) -> Any:
        for pattern, sharding in rules:
            try:
                if budget.fullmatch(pattern, text):
                    return sharding
            except RecipeError as error:
                message = f"{_rule_text(pattern.pattern)}: {error.problems[0].message}"
                raise UsageError(message, hint=error.problems[0].hint) from None
        return boxes[text](mesh) if text in boxes else None

    matched = {text: sharding(text) for text in arrays}
    unmatched = [text for text, sharding in matched.items() if sharding is None and text not in on_host]
    if unmatched:
        raise PlanError(
            f"no rule of `shardings` matches {few_keys(map(shown, unmatched))}",
            hint="Add rules for these. `('.*', PartitionSpec())` as the last rule puts all others whole on "
            "every device of the mesh.",
            code=Code.SHARDING,
        )
    return matched


def _own_sharding(text: str, value: Any, boxes: Boxes) -> Any:
    """Sharding over devices that a leaf of the tree has, or that its box gives.

    That of `jax.eval_shape` names only axes, if a mesh's axes are explicit. Raises UsageError if the mesh in
    use is another one.
    """
    from jax.sharding import AbstractMesh, NamedSharding

    sharding = value.sharding
    if sharding is None or not getattr(value, "committed", True):
        return boxes[text](None) if text in boxes else None
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, AbstractMesh):
        return sharding
    if sharding.mesh.empty:
        return None
    mesh = meshes.mesh_in_use()
    if mesh is None or mesh.shape_tuple != sharding.mesh.shape_tuple:
        raise UsageError(
            f"the sharding of `{shown(text)}` is over an AbstractMesh {mesh_text(sharding.mesh)}: it names "
            "no devices",
            hint="Call it inside `with jax.set_mesh(mesh):`, or give `shardings=` over a Mesh.",
        )
    return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)


_HINT = "Give these leaves another sharding: in rules, by one above that matches them first."


WANTED = "Rules are `(mesh, [(regex, PartitionSpec), …])` or `(mesh, {regex: PartitionSpec, …})`."


def _parse_rules(shardings: Any) -> tuple[Any, Rules] | None:
    """Mesh and rules in `shardings`; None if it is no pair with a mesh. Raises UsageError for wrong rules."""
    from jax.sharding import AbstractMesh, Mesh

    rest: list[Any]
    match shardings:
        case Mesh() | AbstractMesh() as mesh:
            rest = []
        case (Mesh() | AbstractMesh() as mesh, *rest):
            pass
        case _:
            return None
    meshes.mesh_of_devices(mesh, "the mesh of the rules in `shardings`")
    rules = rest[0] if len(rest) == 1 else None
    if isinstance(rules, str) or not isinstance(rules, Iterable):
        instead = shown(abridged(rest)) if rest else "nothing"
        raise UsageError(f"after the mesh of `shardings` comes {instead} instead of rules", hint=WANTED)
    return mesh, [_rule(rule, mesh) for rule in (rules.items() if isinstance(rules, Mapping) else rules)]


def _rule(rule: Any, mesh: Any) -> tuple[regex.Pattern[str], Any]:
    from jax.sharding import PartitionSpec

    match rule:
        case (str(text), PartitionSpec() as spec):
            sharding = meshes.sharding_over(mesh, spec, _rule_text(text))
        case _:
            what = f"{shown(abridged(rule))}: it is not a regex with a PartitionSpec"
            raise UsageError(f"`shardings` has the rule {what}", hint=WANTED)
    try:
        return compile_pattern(text), sharding
    except ExpressionError as error:
        raise UsageError(f"{_rule_text(text)}: {error.message}", hint=error.hint) from None


def _rule_text(pattern: str) -> str:
    return f"the rule `{shown(pattern)}` of `shardings`"


Path = tuple[Any, ...]
"""Entries of a path of `jax.tree_util`."""

TAKEN = "It takes a sharding, a prefix of the tree with shardings and None, or rules with a mesh."


def _spread(prefix: Any, node: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the sharding that a prefix gives each leaf, with the text of its key; None for the leaf's own.

    A PartitionSpec in a prefix is one over the mesh of `jax.set_mesh`. Modules of NNX in the tree may be
    modules or states in the prefix. Raises UsageError if the prefix does not have the tree's structure, or
    holds something that is not a sharding.
    """
    # Not `jax.tree.broadcast`: if a prefix does not fit and has None anywhere, its error names the place of
    # the None; for modules it names none, as making the message fails.
    import jax

    if prefix is None or jax.tree_util.all_leaves([prefix]):
        sharding = None if prefix is None else _sharding(prefix, path)
        for rest, _ in jax.tree_util.tree_flatten_with_path(node)[0]:
            yield key_of((*path, *rest)).text, sharding
        return
    (given_parts, given_structure), (parts, structure) = _level(prefix), _level(node)
    if given_structure != structure:
        given, wanted = _container(prefix), _container(node)
        wanted = "one with other static fields" if given == wanted else wanted
        raise UsageError(
            f"`shardings` does not fit the tree{_at(path)}: it has {given}, the tree {wanted}",
            hint="A prefix has the tree's containers down to its shardings; None stands for the leaves' own.",
        )
    for (entry, value), (_, part) in zip(given_parts, parts, strict=True):
        yield from _spread(value, part, (*path, *entry))


def _level(node: Any) -> tuple[Sequence[tuple[Path, Any]], Any]:
    """Parts of a container with their entries; its type, keys and static fields. A leaf has no parts."""
    import jax

    is_part: Callable[[Any], bool] = lambda part: part is not node  # noqa: E731
    parts, structure = jax.tree_util.tree_flatten_with_path(node, is_leaf=is_part)
    return [] if len(parts) == 1 and parts[0][1] is node else parts, structure


def _sharding(value: Any, path: Path) -> Any:
    """Check that a value is a sharding over devices. Raises UsageError, with its place, if it is not."""
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec, Sharding

    if isinstance(value, PartitionSpec):
        if (mesh := meshes.mesh_in_use()) is None:
            raise UsageError(
                f"`shardings` has {spec_as_text(value)}{_at(path)}, and no mesh is known for it",
                hint="Give `NamedSharding(mesh, spec)`, or call it inside `with jax.set_mesh(mesh):`.",
            )
        return meshes.sharding_over(mesh, value, f"`shardings`{_at(path)}")
    if not isinstance(value, Sharding):
        raise UsageError(f"`shardings` has {_type_of(value)}{_at(path)}, which is not a sharding", hint=TAKEN)
    if isinstance(value, NamedSharding) and isinstance(value.mesh, AbstractMesh):
        raise UsageError(
            f"`shardings` has a sharding{_at(path)} over an AbstractMesh, which names no devices",
            hint="Give one over a `jax.sharding.Mesh`, as `jax.make_mesh` makes.",
        )
    return value


def _container(node: Any) -> str:
    """Type of a container with its keys, as `a dict with a, b`; of a leaf, its type alone."""
    names = [key_of(entry).text for entry, _ in _level(node)[0]]
    return f"{_type_of(node)} with {few(names, 5)}" if names else _type_of(node)


def _type_of(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {shown(name)}"


def _at(path: Path) -> str:
    return f" at `{shown(key_of(path).text)}`" if path else ""
