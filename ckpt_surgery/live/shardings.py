"""Decide on which devices, and how divided, each array of a tree lies."""

from collections.abc import Container, Iterator, Mapping
from typing import Any

from ckpt_surgery.core.errors import PlanError, Problem, UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.notices import Notice, few_keys, merged
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.shardings import misfit
from ckpt_surgery.core.text import shown
from ckpt_surgery.live.boxes import BoxSpec, box_specs
from ckpt_surgery.live.logical_axes import LogicalAxes, shardings_by_names
from ckpt_surgery.live.meshes import mesh_in_use, mesh_text, spec_as_text
from ckpt_surgery.live.sharding_prefixes import spread_prefix
from ckpt_surgery.live.sharding_rules import Rules, parse_rules
from ckpt_surgery.live.tree import LiveTree


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
    arrays = {text: value for text, value in tree.values.items() if _lies_on_devices(value)}
    boxes = box_specs(tree)
    if isinstance(shardings, LogicalAxes):
        resolved = shardings_by_names(arrays, shardings, boxes, on_host)
    elif (rules := parse_rules(shardings)) is not None:
        resolved = _by_rules(arrays, rules, boxes, on_host)
    else:
        given = {} if shardings is None else spread_prefix(shardings, tree)
        resolved = {
            text: _own_sharding(text, value, boxes.get(text)) if given.get(text) is None else given[text]
            for text, value in arrays.items()
        }
    _check_shapes(tree, resolved)
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


def _lies_on_devices(value: Any) -> bool:
    import jax

    return isinstance(value, jax.Array | jax.ShapeDtypeStruct)


def _by_rules(
    arrays: Mapping[str, Any], rules: Rules, boxes: Mapping[str, BoxSpec], on_host: Container[str]
) -> dict[str, Any]:
    """Sharding of the first rule, or else of the box over the mesh of the rules, by key.

    Raises PlanError for keys that have neither.
    """
    matched: dict[str, Any] = {}
    unmatched: list[str] = []
    for text in arrays:
        sharding = rules.sharding(text)
        if sharding is None and text in boxes:
            sharding = boxes[text].sharding(rules.mesh, text)
        if sharding is None and text not in on_host:
            unmatched.append(text)
        matched[text] = sharding
    if unmatched:
        what = f"{len(unmatched):,} arrays have" if len(unmatched) > 1 else "an array has"
        raise PlanError(
            f"no rule of `shardings` matches {few_keys(map(shown, unmatched))}: {what} no sharding",
            hint="Add rules for these. `('.*', PartitionSpec())` as the last rule puts all others whole on "
            "every device of the mesh.",
            code=Code.SHARDING,
        )
    return matched


def _own_sharding(text: str, value: Any, box: BoxSpec | None) -> Any:
    """Sharding that a leaf of the tree has, or that its box gives."""
    sharding = value.sharding
    if sharding is None or not getattr(value, "committed", True):
        return None if box is None else box.sharding(None, text)
    return _on_devices(text, sharding)


def _on_devices(text: str, sharding: Any) -> Any:
    """Sharding over devices: that of `jax.eval_shape` names only axes, if a mesh's axes are explicit.

    Raises UsageError if the mesh in use is another one.
    """
    from jax.sharding import AbstractMesh, NamedSharding

    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, AbstractMesh):
        return sharding
    if sharding.mesh.empty:
        return None
    mesh = mesh_in_use()
    if mesh is None or mesh.shape_tuple != sharding.mesh.shape_tuple:
        over = f"over an AbstractMesh {mesh_text(sharding.mesh)}"
        raise UsageError(
            f"the sharding of `{shown(text)}` is {over}: it names no devices",
            hint="Call it inside `with jax.set_mesh(mesh):`, or give `shardings=` over a Mesh.",
        )
    return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)


def _check_shapes(tree: LiveTree, shardings: Mapping[str, Any]) -> None:
    """Raise PlanError with all leaves whose shape cannot be divided."""
    misfits = list(merged(_misfits(tree, shardings)))
    if misfits:
        raise PlanError(*(Problem(misfit.sentence, hint=_HINT) for misfit in misfits), code=Code.SHARDING)


_HINT = "Give these leaves another sharding: in rules, by one above that matches them first."


def _misfits(tree: LiveTree, shardings: Mapping[str, Any]) -> Iterator[Notice]:
    for text, sharding in shardings.items():
        flaw = sharding_flaw(tree.leaves[text], sharding)
        if flaw is not None:
            yield Notice("", shown(text), f" {flaw}{_mesh_clause(sharding)}")


def _mesh_clause(sharding: Any) -> str:
    mesh = getattr(sharding, "mesh", None)
    if mesh is None:
        return ""
    return f"; the sharding is {spec_as_text(sharding.spec)} on the mesh {mesh_text(mesh)}"
