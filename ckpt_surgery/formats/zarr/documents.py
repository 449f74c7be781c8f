"""The metadata of a zarr group that is written: which files there are, and what is in them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.shared.zarr.layout import ATTRIBUTES_2, FILE_NAMES, GROUP_2, NODE_3
from ckpt_surgery.formats.shared.zarr.writing import definition
from ckpt_surgery.storage.record_files import RECORD_NAME


def documents(zarr: int, attributes: Mapping[str, Any], outputs: Sequence[Output]) -> dict[str, bytes]:
    """The content of each file with metadata, by its relative name; those of the root are the first.

    `attributes` are the root's.
    """
    found = _group("", zarr, attributes)
    for group in {group: None for output in outputs for group in _groups(output.leaf.key.text)}:
        found |= _group(f"{group}/", zarr, {})
    for output in outputs:
        found[f"{output.leaf.key.text}/{FILE_NAMES[zarr]}"] = definition(output, zarr)
    return found


def with_record(zarr: int, attributes: Mapping[str, Any], text: str) -> tuple[str, str]:
    """Name and content of the root's file with its attributes, and the record among them.

    Readers would warn of a file that is no part of a group.
    """
    found = {**attributes, RECORD_NAME: json.loads(text)}
    return (NODE_3, json.dumps(_node(found))) if zarr == 3 else (ATTRIBUTES_2, json.dumps(found))


def _group(prefix: str, zarr: int, attributes: Mapping[str, Any]) -> dict[str, bytes]:
    if zarr == 3:
        return {f"{prefix}{NODE_3}": json.dumps(_node(attributes)).encode()}
    found = {f"{prefix}{GROUP_2}": b'{"zarr_format": 2}'}
    if attributes:
        found[f"{prefix}{ATTRIBUTES_2}"] = json.dumps(dict(attributes)).encode()
    return found


def _node(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a group, version 3."""
    return {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}


def _groups(text: str) -> Iterator[str]:
    """The keys of the groups that a leaf is in, except the root."""
    parts = text.split(SEPARATOR)
    return (SEPARATOR.join(parts[:i]) for i in range(1, len(parts)))
