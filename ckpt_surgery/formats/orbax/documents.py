"""The JSON documents of an Orbax item that is to be written, and of its step.

Source: what orbax-checkpoint 0.12.8 writes and reads.
"""

import json
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.keys import Key, nested
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.orbax.tree import ARRAY_METADATA, SHARDINGS, STRINGS, array_name
from ckpt_surgery.formats.shared.orbax_layout import CHECKPOINT_METADATA, TREE_METADATA, is_item
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.listing import directory_names, exists
from ckpt_surgery.storage.record_files import RECORD_NAME

ONE_DEVICE = '{"sharding_type": "SingleDeviceSharding", "device_str": "cpu:0"}'
"""Sharding of PRNG keys that come without one: Orbax cannot restore a jax.Array that has none."""

COMMITTED = b"Checkpoint commit was successful"
"""Content of Orbax's commit files."""
HANDLER = "orbax.checkpoint._src.handlers.standard_checkpoint_handler.StandardCheckpointHandler"
"""Handler with which a CheckpointManager restores the item if it is asked for a step without arguments."""
JSON_HANDLER = "orbax.checkpoint._src.handlers.json_checkpoint_handler.JsonCheckpointHandler"
REWRITTEN = frozenset({CHECKPOINT_METADATA, RECORD_NAME})
"""Files of a step that are written anew with each item."""


def about_checkpoint(item: str | None, started: int, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of a step as Orbax writes it: its items, and when its save began and ended, which is now.

    `item`: name of the item in the step's directory; None where they are one. `started`: nanoseconds since
    the epoch. `metadata`: the user's.
    """
    return {
        "item_handlers": HANDLER if item is None else {item: HANDLER},
        "metrics": {},
        "performance_metrics": {},
        "init_timestamp_nsecs": started,
        "commit_timestamp_nsecs": time.time_ns(),
        "custom_metadata": dict(metadata),
    }


def documents(outputs: Sequence[Output], zarr: int, metadata: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The documents of an item by their paths within it. The last is `_METADATA`, which completes it."""
    texts: dict[str, dict[str, Any]] = {}
    arrays = {array_name(o.leaf.key): o for o in outputs if _is_jax_array(o.leaf)}
    if arrays:
        texts[SHARDINGS] = {
            urlsafe_b64encode(name.encode()).decode(): o.leaf.sharding or ONE_DEVICE
            for name, o in arrays.items()
        }
        listed = []
        for name, o in arrays.items():
            shapes = {"write_shape": list(o.chunks), "chunk_shape": list(o.chunks)}
            extra = {"random_key_impl": o.leaf.prng_impl} if o.leaf.prng_impl else None
            listed.append({"array_metadata": {"param_name": name, **shapes, "ext_metadata": extra}})
        texts[f"{ARRAY_METADATA}0"] = {"array_metadatas": listed}
    strings = [output.leaf for output in outputs if output.leaf.kind is LeafKind.STRING]
    if strings:
        # A `/` in a name nests, because Orbax looks names up as JSON pointers.
        paths = ((Key.of(array_name(leaf.key).split("/")), leaf.string) for leaf in strings)
        texts[STRINGS] = nested(paths)
    texts[TREE_METADATA] = {
        "tree_metadata": {str(output.leaf.key.names): _tree_entry(output) for output in outputs},
        "use_ocdbt": True,
        "use_zarr3": zarr == 3,
        "store_array_data_equal_to_fill_value": True,
        "custom_metadata": dict(metadata) or None,
    }
    return texts


def _is_jax_array(leaf: Leaf) -> bool:
    """Whether Orbax restores a leaf as a jax.Array, which needs a sharding."""
    return leaf.kind is LeafKind.PRNG_KEY or (leaf.kind is LeafKind.ARRAY and leaf.sharding is not None)


def _tree_entry(output: Output) -> dict[str, Any]:
    leaf = output.leaf
    parts = [
        {"key": name, "key_type": 1 if in_sequence else 2}
        for name, in_sequence in zip(leaf.key.names, leaf.key.sequences, strict=True)
    ]
    value: dict[str, Any] = {"value_type": "np.ndarray", "skip_deserialize": leaf.kind is LeafKind.EMPTY}
    if _is_jax_array(leaf):
        value |= {"value_type": "jax.Array", "write_shape": list(output.chunks)}
    elif leaf.spec is None:
        value["value_type"] = leaf.empty or "string"
    elif leaf.kind is LeafKind.SCALAR and leaf.spec.ndim == 0:
        value["value_type"] = "scalar"
    return {"key_metadata": parts, "value_metadata": value}


def documents_of_step(step: str, item: str, started: int) -> dict[str, bytes]:
    """The files of a step that change with an item: its document, and the record with that one's checksum.

    All that the document says of other things stays. `step`: path or URL of the step that exists. `started`:
    when the run began, in nanoseconds since the epoch.
    """
    path, new = os.path.join(step, CHECKPOINT_METADATA), about_checkpoint(item, started, {})
    old = read_json(path) if exists(path) else {}
    listed = old.get("item_handlers")
    handlers = {**_handlers_of(step, item), **(listed if isinstance(listed, dict) else {}), item: HANDLER}
    kept = {**new, **old, "item_handlers": handlers}
    about = json.dumps(kept | {"commit_timestamp_nsecs": new["commit_timestamp_nsecs"]}).encode()
    record = {"documents": {CHECKPOINT_METADATA: [len(about), bytes_crc(about)]}}
    return {CHECKPOINT_METADATA: about, RECORD_NAME: json.dumps(record).encode()}


def _handlers_of(step: str, item: str) -> dict[str, str]:
    """Handlers of the other items by what they hold: without one, Orbax restores no item of the step."""
    handlers = {}
    for name in directory_names(step).directories:
        path = os.path.join(step, name)
        if name in (item, OWN.rstrip("/")):
            continue
        if is_item(path):
            handlers[name] = HANDLER
        elif exists(os.path.join(path, "metadata")) or exists(os.path.join(path, "metrics")):
            handlers[name] = JSON_HANDLER
    return handlers
