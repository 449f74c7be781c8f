"""On which devices, and how divided, each array of a tree lies."""

from collections.abc import Container, Iterator, Mapping
from typing import Any

from ckpt_surgery.core.errors import PlanError, Problem, UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.notices import Notice, few_keys, merged
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.shardings import misfit
from ckpt_surgery.core.text import shown
from ckpt_surgery.live.boxes import Boxed, boxes
from ckpt_surgery.live.meshes import mesh_in_use, mesh_text, spec_as_text
from ckpt_surgery.live.sharding_prefixes import spread
from ckpt_surgery.live.sharding_rules import Rules, rules_of
from ckpt_surgery.live.tree import LiveTree


def resolved_shardings(tree: LiveTree, shardings: Any, on_host: Container[str] = ()) -> Mapping[str, Any]:
    """The `jax.sharding.Sharding` of each array of a tree by the text of its key, in the tree's order.

    None stands for an uncommitted array on the default device. Leaves that are neither a `jax.Array` nor a
    `jax.ShapeDtypeStruct` are left out: NumPy arrays, numbers, texts and empty nodes lie on no device.

    `shardings` is None for the leaves' own; or a sharding, or a prefix of the tree as in `jax.jit`, in which
    None stands for the leaves' own; or rules: a pair of a mesh and pairs, or a mapping, of regular
    expressions over whole keys and PartitionSpecs, of which the first that matches wins. What flax's boxes
    say counts where a leaf has no sharding, and where no rule matches. `on_host`: texts of the keys of arrays
    that stay in the host's memory if no rule matches them.

    Raises UsageError for what cannot be understood as shardings of this tree, PlanError for leaves that no
    rule matches, and for shapes that cannot be divided so.
    """
    arrays = {text: value for text, value in tree.values.items() if _can_have_one(value)}
    boxed = boxes(tree)
    rules = rules_of(shardings)
    if rules is not None:
        found = _by_rules(arrays, rules, boxed, on_host)
    else:
        given = {} if shardings is None else spread(shardings, tree)
        found = {
            text: _own(text, value, boxed.get(text)) if given.get(text) is None else given[text]
            for text, value in arrays.items()
        }
    _check(tree, found)
    return found


def sharding_flaws(leaf: Leaf, sharding: Any) -> str | None:
    """Why an array cannot be divided so, as in `has 6 along axis 0, which does not divide into 4 parts`.

    None if it can, if there is no sharding, and for leaves that are no arrays.
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


def _can_have_one(value: Any) -> bool:
    import jax

    return isinstance(value, jax.Array | jax.ShapeDtypeStruct)


def _by_rules(
    arrays: Mapping[str, Any], rules: Rules, boxed: Mapping[str, Boxed], on_host: Container[str]
) -> dict[str, Any]:
    """A rule's, or else that of the box over the mesh of the rules. Raises PlanError where neither is."""
    found: dict[str, Any] = {}
    unmatched: list[str] = []
    for text in arrays:
        sharding = rules.sharding(text)
        if sharding is None and text in boxed:
            sharding = boxed[text].over(rules.mesh, text)
        if sharding is None and text not in on_host:
            unmatched.append(text)
        found[text] = sharding
    if unmatched:
        what = f"{len(unmatched):,} arrays have" if len(unmatched) > 1 else "an array has"
        raise PlanError(
            f"no rule of `shardings` matches {few_keys(map(shown, unmatched))}: {what} no sharding",
            hint="Add rules for these. `('.*', PartitionSpec())` as the last rule puts all others whole on "
            "every device of the mesh.",
            code=Code.SHARDING,
        )
    return found


def _own(text: str, value: Any, box: Boxed | None) -> Any:
    """The sharding that a leaf of the tree has, or that its box gives."""
    sharding = value.sharding
    if sharding is None or not getattr(value, "committed", True):
        return None if box is None else box.over(None, text)
    return _on_devices(text, sharding)


def _on_devices(text: str, sharding: Any) -> Any:
    """The same sharding over devices: `jax.eval_shape` gives one of names, where a mesh's axes are explicit.

    Raises UsageError where the mesh in use is another.
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


def _check(tree: LiveTree, shardings: Mapping[str, Any]) -> None:
    """Raise PlanError with all leaves whose shape cannot be divided."""
    found = list(merged(_misfits(tree, shardings)))
    if found:
        raise PlanError(*(Problem(one.sentence, hint=_HINT) for one in found), code=Code.SHARDING)


_HINT = "Give these leaves another sharding: in rules, by one above that matches them first."


def _misfits(tree: LiveTree, shardings: Mapping[str, Any]) -> Iterator[Notice]:
    for text, sharding in shardings.items():
        why = sharding_flaws(tree.leaves[text], sharding)
        if why is not None:
            yield Notice("", shown(text), f" {why}{_with_mesh(sharding)}")


def _with_mesh(sharding: Any) -> str:
    mesh = getattr(sharding, "mesh", None)
    if mesh is None:
        return ""
    return f"; the sharding is {spec_as_text(sharding.spec)} on the mesh {mesh_text(mesh)}"
