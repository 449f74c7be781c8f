"""A target that is only a listing: keys, shapes and dtypes, as `inspect --json` prints them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.documents import shape_and_dtype
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError, SourceError, access_error
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.files import load_document

SUFFIXES = (".json", ".yaml", ".yml")
INDEX_SUFFIX = ".index.json"
"""Ending of the names of indexes of sharded checkpoints, which are not listings."""
_KINDS = [kind for kind in LeafKind if kind is not LeafKind.OBJECT]


def is_listing(path: str) -> bool:
    """Whether the path of a target is that of a listing rather than a checkpoint. Raises StorageError."""
    try:
        return path.endswith(SUFFIXES) and not path.endswith(INDEX_SUFFIX) and Path(path).is_file()
    except OSError as error:
        raise access_error(path, error) or error from None


def read_listing(path: str) -> Mapping[str, Leaf]:
    """The leaves of a listing: a list of `{key, shape, dtype, kind}`, or a mapping with it under `leaves`.

    `kind` may be left out for arrays. Raises SourceError for the first entry that is not understood.
    """
    return listed_leaves(path, _parsed(path))


def listed_leaves(path: str, document: Any) -> Mapping[str, Leaf]:
    """The same for the document in a listing, which messages call `path`."""
    entries = document.get("leaves") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        hint = "`ckpt-surgery inspect PATH --json` writes one."
        raise SourceError(f"{shown(path)}: no list of leaves in it", hint=hint)
    leaves: dict[str, Leaf] = {}
    for i, entry in enumerate(entries):
        leaf = _leaf(path, i, entry)
        if leaves.setdefault(leaf.key.text, leaf) is not leaf:
            raise SourceError(f"{shown(path)}: `{shown(leaf.key.printed)}` is listed twice")
    return leaves


def listing_json(leaves: Mapping[str, Leaf]) -> list[dict[str, Any]]:
    """The listing of these leaves."""
    listed = []
    for leaf in leaves.values():
        shape, dtype = shape_and_dtype(leaf)
        entry = {"key": leaf.key.text, "components": list(leaf.key.names), "kind": leaf.kind.value}
        listed.append({**entry, "shape": None if shape is None else list(shape), "dtype": dtype})
    return listed


def _parsed(path: str) -> Any:
    if not path.endswith(".json"):
        return load_document(path, "listing").value
    try:
        return json.loads(Path(path).read_bytes())  # of any size: the listing of a large model is several MiB
    except OSError as error:
        raise access_error(path, error) or SourceError(f"{shown(path)}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{shown(path)}: not JSON: {error}") from None


def _leaf(path: str, index: int, entry: Any) -> Leaf:
    where = f"{shown(path)}: leaves[{index}]"
    if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
        raise SourceError(f"{where} has no `key`")
    names = entry.get("components")
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    key = Key.of(names or ()) if is_list else Key.parse(entry["key"])
    kind = entry.get("kind", "array")
    if kind not in _KINDS:
        raise SourceError(f"{where}: not a kind of leaf: {kind!r}", hint=f"Kinds: {', '.join(_KINDS)}.")
    if kind in (LeafKind.STRING, LeafKind.EMPTY):
        return Leaf(key, LeafKind(kind))
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        why = f"`shape` has to be a list of integers, not {shape!r}"
        raise SourceError(f"{where} (`{shown(key.printed)}`): {why}")
    try:
        dtype = dtype_named(str(entry.get("dtype")))
    except FunctionError as error:
        raise SourceError(f"{where} (`{shown(key.printed)}`): {error}") from None
    return Leaf(key, LeafKind(kind), ArraySpec(tuple(shape), dtype))
