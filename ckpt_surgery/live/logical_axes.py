"""Shardings by the names of parameters' axes, as Flax and T5X have them, and rules from names to a mesh."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import Code, PlanError, Problem, UsageError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.keys import SEPARATOR, Key, nested
from ckpt_surgery.core.optimizer_states import COLLECTIONS, OPTIMIZER, PARAMS
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.live.meshes import Boxes, mesh_of_devices, mesh_text, sharding_over
from ckpt_surgery.live.tree import key_of

Names = tuple[str, ...]
"""Components of a key."""
Axes = tuple[Any, ...] | None
"""Names of a parameter's axes; None for an axis that is not divided, and for a parameter that is not."""

ROOTS = frozenset({PARAMS, "target"})
"""Names of the parameters' subtree in Flax and T5X."""
SUFFIX = "_axes"
"""Suffix in names of collections and leaves that hold names of axes, beside those with the arrays."""
_WANTED = "Give `LogicalAxes(mesh, [(name, mesh_axis), …], params_axes)`."
_UNNAMED = "no names of axes are given"


class LogicalAxes:
    """Shardings from the names of parameters' axes, for `shardings=` of `restore`.

    `mesh` is a `jax.sharding.Mesh`. `rules` are pairs of a name and the axis of the mesh that it is divided
    over, a tuple of them, or None. As in Flax (`logical_to_mesh_axes`), a rule whose mesh axis already
    divides the array is passed over, and a name without a rule is not divided.

    `axes` is a tree with the parameters' structure, such as the collection `params_axes` of Flax and T5X. Its
    leaves are AxisMetadata, tuples of names or PartitionSpecs, called `kernel` or `kernel_axes`.

    Arrays with the path and the shape of a parameter, such as its slots `param_states/PATH/m` and
    `opt_state/0/mu/PATH`, take its axes. Everything else lies whole on every device of the mesh.

    Raises UsageError for what are not a mesh, rules and names; `restore` raises PlanError for parameters
    without names, with more or fewer names than axes, or with a name twice.
    """

    def __init__(self, mesh: Any, rules: Any, axes: Any):
        self.mesh = mesh_of_devices(mesh, "the mesh of `LogicalAxes`")
        """The mesh of devices."""
        self.rules = tuple(_parsed_rules(rules))
        """The rules, each the name of an axis and the axes of the mesh that divide it."""
        self.axes: Mapping[Names, Axes] = _parsed_axes(axes)
        """Names of the axes of each parameter, by the path of the parameter."""

    def __repr__(self) -> str:
        counts = f"{len(self.axes):,} parameters, {len(self.rules):,} rules"
        return f"<LogicalAxes: {counts}, mesh {mesh_text(self.mesh)}>"


def mesh_axes(axes: Axes, rules: Iterable[tuple[Any, Any]]) -> tuple[Any, ...]:
    """Mesh axes that each axis of an array is divided over. Entries that are no names, as None, stay."""
    names = axes or ()
    assigned = {i: name for i, name in enumerate(names) if not isinstance(name, str)}
    for name, over in rules:
        free = name in names and names.index(name) not in assigned
        if free and set(_each(over)).isdisjoint(itertools.chain(*map(_each, assigned.values()))):
            assigned[names.index(name)] = over
    return tuple(assigned.get(i) for i in range(len(names)))


def _each(over: Any) -> list[Any]:
    """Mesh axes in the value of a rule."""
    return [axis for axis in (over if isinstance(over, tuple | list) else (over,)) if axis is not None]


def _parsed_rules(rules: Any) -> Iterator[tuple[Any, Any]]:
    listed = rules.items() if isinstance(rules, Mapping) else rules
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise UsageError(f"the rules of `LogicalAxes` are {shown(abridged(rules))}", hint=_WANTED)
    for rule in listed:
        match rule:
            case (str(name), None | str() as over):
                yield name, over
            case (str(name), [*over]) if all(isinstance(axis, str) for axis in over):
                yield name, tuple(over)
            case _:
                raise UsageError(
                    f"`LogicalAxes` has the rule {shown(abridged(rule))}: it is not a name of an axis with "
                    "an axis of the mesh, several, or None",
                    hint=_WANTED,
                )


def _parsed_axes(axes: Any) -> Mapping[Names, Axes]:
    """Names of axes by path, whose last part loses its suffix unless a parameter is really called so."""
    import jax

    exact, stripped = dict[Names, Axes](), dict[Names, Axes]()
    for path, value in jax.tree_util.tree_flatten_with_path(axes, is_leaf=_names_axes)[0]:
        text, names = key_of(path).text, getattr(value, "names", value)
        if not _names_axes(names):
            raise UsageError(
                f"`LogicalAxes` has {shown(abridged(value))} at `{shown(text)}`, which does not name axes",
                hint="It takes AxisMetadata of Flax, tuples of names, and PartitionSpecs of names.",
            )
        exact[tuple(text.split(SEPARATOR))] = named = None if names is None else tuple(names)
        stripped[tuple(text.removesuffix(SUFFIX).split(SEPARATOR))] = named
    return {**exact, **stripped, **exact}


def _names_axes(node: Any) -> bool:
    if node is None or hasattr(node, "names"):
        return True
    from jax.sharding import PartitionSpec

    is_names = isinstance(node, tuple) and all(isinstance(axis, str | None) for axis in node)
    return isinstance(node, PartitionSpec) or is_names


class _Layout:
    """Places of the parameters in a tree."""

    def __init__(self, axes: Mapping[Names, Axes], root: Names):
        """`root`: key of the subtree that the paths of `axes` are relative to."""
        self.axes = axes
        self.root = root
        tops = frozenset(path[0] for path in axes)
        self.collections = tops if PARAMS in tops else frozenset[str]()
        """First components of the axes, if these are collections of variables; else none."""
        of_params = {path[1:]: path for path in axes if path[0] == PARAMS}
        self.by_own_path = of_params or {path: path for path in axes}
        """Paths of the parameters by the form that optimizer slots have: without the collection."""

    def parameter(self, names: Names) -> Names | None:
        """Path of a parameter relative to the root; None for other leaves of the tree."""
        path = names[len(self.root) :]
        if names[: len(self.root)] != self.root or not path:
            return None
        if path in self.axes:
            return path
        beside = OPTIMIZER | COLLECTIONS if not self.root else frozenset()
        is_other = path[0] not in self.collections if self.collections else path[0] in beside
        return None if is_other else path

    def mirrored(self, names: Names) -> Names | None:
        """Path of the parameter that a key ends with, not counting at most one more name."""
        spans = [
            (names[:start], names[start:end])
            for end in (len(names), len(names) - 1)
            for start in range(end)
            if names[start:end] in self.by_own_path
        ]
        if not spans:
            return None
        # In `param_states/kernel/m` both `kernel` and `m` may be parameters.
        before, path = max(spans, key=lambda span: (len(span[1]), not OPTIMIZER.isdisjoint(span[0][-1:])))
        return self.by_own_path[path] if COLLECTIONS.isdisjoint(before) else None


def _layout(axes: Mapping[Names, Axes], keys: Iterable[Names]) -> _Layout | None:
    """Locate the parameters in a tree; None if none of them is there."""
    counts = Counter(names[:start] for names in keys for start in range(len(names)) if names[start:] in axes)
    if not counts:
        return None

    def likelihood(root: Names) -> tuple[Any, ...]:
        return OPTIMIZER.isdisjoint(root), counts[root], root[-1:] in {(name,) for name in ROOTS}, -len(root)

    return _Layout(axes, max(counts, key=likelihood))


def shardings_by_names(
    arrays: Mapping[str, Any], given: LogicalAxes, boxes: Boxes, on_host: Container[str]
) -> dict[str, Any]:
    """Sharding of each array, by the text of its key.

    A parameter without names takes the sharding of its box of flax. None for arrays in the host's memory
    (`on_host`) that are neither a parameter nor like one. Raises PlanError with all parameters whose names do
    not fit them, UsageError for a rule with an axis that the mesh lacks.
    """
    from jax.sharding import PartitionSpec

    keys = {text: tuple(text.split(SEPARATOR)) for text in arrays}
    layout = _layout(given.axes, keys.values())
    if layout is None:
        if not arrays:
            return {}
        named = few_keys(shown(SEPARATOR.join(path)) for path in given.axes) or "none"
        raise PlanError(
            f"none of the parameters that `LogicalAxes` names ({named}) is in the tree: its arrays are "
            f"{few_keys(map(shown, arrays))}",
            hint="Give the axes of the tree's own parameters, as in the collection `params_axes`.",
            code=Code.SHARDING,
        )
    parameters = {text: path for text, key in keys.items() if (path := layout.parameter(key)) is not None}
    _check(parameters, arrays, given.axes, boxes)
    shapes = {path: arrays[text].shape for text, path in parameters.items() if path in given.axes}

    def sharding(text: str) -> Any:
        path = parameters.get(text) or layout.mirrored(keys[text])
        if text in parameters and path not in given.axes:
            return boxes[text](given.mesh)
        axes: Axes = ()
        if path is not None and shapes.get(path) == arrays[text].shape:
            axes = given.axes[path]
        elif text in on_host:
            return None
        spec = PartitionSpec(*mesh_axes(axes, given.rules))  # type: ignore[no-untyped-call]
        return sharding_over(given.mesh, spec, f"the rules of `LogicalAxes` for `{shown(text)}`", _WANTED)

    return {text: sharding(text) for text in arrays}


def _check(
    parameters: Mapping[str, Names], arrays: Mapping[str, Any], axes_of: Mapping[Names, Axes], boxes: Boxes
) -> None:
    """Raise PlanError with all parameters whose axes have no names, too few or many, or a name twice."""
    flaws = defaultdict[str, list[str]](list)
    for text, path in parameters.items():
        rank, axes = len(arrays[text].shape), axes_of.get(path)
        names = [name for name in axes or () if isinstance(name, str)]
        if path not in axes_of:
            if text not in boxes:
                flaws[_UNNAMED].append(text)
        elif axes is not None and len(axes) != rank:
            flaws[f"{rank} axes have the names {_listed(axes)}"].append(text)
        elif len(set(names)) < len(names):
            flaws[f"a name is twice in {_listed(axes or ())}"].append(text)
    if flaws:
        hint = "Give each of these as many names as it has axes; None for an axis that is not divided."
        problems = [Problem(f"{_keys(texts)}: {what}", hint=hint) for what, texts in flaws.items()]
        raise PlanError(*problems, code=Code.SHARDING)


def _listed(axes: tuple[Any, ...]) -> str:
    return shown(f"({', '.join(map(str, axes))})")


def _keys(texts: Sequence[str]) -> str:
    return few_keys(map(shown, texts), most=len(texts))


def split_axes(variables: Mapping[str, Any]) -> tuple[Any, Any]:
    """Split the variables of a Flax model into those with arrays and those that name their axes.

    A collection `NAME_axes` beside a collection NAME belongs to it. The first result is `variables` without
    such collections. The second has their trees, by NAME, with leaves that are called as those of NAME:
    `kernel` for `kernel_axes`. Both are of the type of `variables`, a dict or a FrozenDict; nothing is
    copied but containers.

    Raises PlanError, with all keys, for leaves of NAME that `NAME_axes` has no entry for.
    """
    named = {name.removesuffix(SUFFIX): name for name in variables if name.endswith(SUFFIX)}
    named = {name: axes for name, axes in named.items() if name in variables}
    container: Any = type(variables) if hasattr(variables, "unfreeze") else dict
    kept = {name: value for name, value in variables.items() if name not in named.values()}
    unnamed: list[str] = []
    split: dict[str, Any] = {}
    for name, axes in named.items():
        known, renamed = dict(_flat(variables[name])), dict[Names, Any]()
        for path, value in _flat(variables[axes]):
            stem = (*path[:-1], path[-1].removesuffix(SUFFIX)) if path else path
            renamed[path if path in known else stem] = value
        empty = [path for path, value in known.items() if isinstance(value, Mapping)]
        lacking = known.keys() - renamed.keys() - {*empty}
        unnamed += [SEPARATOR.join((name, *path)) for path in known if path in lacking]
        split[name] = nested((Key.of(path), value) for path, value in renamed.items())
    if unnamed:
        raise PlanError(f"{_keys(unnamed)}: {_UNNAMED}", code=Code.SHARDING)
    return container(kept), container(split)


def _flat(tree: Any, path: Names = ()) -> Iterator[tuple[Names, Any]]:
    """Leaves of nested dicts, with their paths."""
    if not isinstance(tree, Mapping) or not tree:
        yield path, tree
        return
    for name, value in tree.items():
        yield from _flat(value, (*path, name))
