"""Writing an Orbax item that every stock reader restores: one OCDBT database of zarr arrays.

Workers write data files, and note what lies where. `finish` writes the item's database over all of them and
over the files that were linked: an index, for which no data moves.

Source of the layout: what orbax-checkpoint 0.12.8 writes and reads.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import container_flaws, index_flaws
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import EncoderDetails, Output
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.orbax.documents import (
    COMMITTED,
    REWRITTEN,
    about_checkpoint,
    documents,
    documents_of_step,
)
from ckpt_surgery.formats.orbax.tree import EMPTY_KINDS, STRUCTURE, array_name, array_prefix, structure_bytes
from ckpt_surgery.formats.orbax.writer import NOTES, Entries, OrbaxWriter, read_notes, worker_directory
from ckpt_surgery.formats.plain_files import NOT_UNICODE, LimitedEncoder, metadata_json, quoted
from ckpt_surgery.formats.registry import Limits, SinkOptions
from ckpt_surgery.formats.shared import orbax_layout
from ckpt_surgery.formats.shared.ocdbt.writer import make_index
from ckpt_surgery.formats.shared.steps import STEP_NAME
from ckpt_surgery.formats.shared.zarr.decoding import adopted_metadata
from ckpt_surgery.formats.shared.zarr.encoding import definition
from ckpt_surgery.formats.shared.zarr.files import check_reachable
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS, FILE_NAMES
from ckpt_surgery.formats.shared.zarr.metadata import HELD
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.linking import link_rest
from ckpt_surgery.storage.listing import is_directory, real_path
from ckpt_surgery.storage.places import open_places
from ckpt_surgery.storage.record_files import RECORD_NAME, put_record

DEFAULT_ITEM = "default"


def encoder(options: SinkOptions) -> LimitedEncoder:
    """The encoder. Raises UsageError for options that contradict each other or have invalid values."""
    if options.zarr not in DRIVERS:
        raise UsageError(f"Not a version of zarr: {options.zarr}", hint="Use 2 or 3.")
    if options.structure_file and options.zarr != 2:
        raise UsageError("A structure file is for arrays of zarr 2", hint="Say `zarr: 2`, or leave it out.")
    if options.step is not None and options.step < 0:
        raise UsageError(f"A step cannot be negative: {options.step}")
    item = options.item
    if item is not None and (not item or item in (".", "..") or "/" in item or "\0" in item):
        raise UsageError(f"`{shown(item)}` cannot be the name of an item", hint="Use a plain name.")
    metadata_json(options.metadata)
    limits = Limits(
        ("an Orbax checkpoint is a tree of arrays, strings, PRNG keys and empty nodes", "Orbax cannot store"),
        frozenset(map(dtype_named, HELD)),
        (LeafKind.STRING, LeafKind.PRNG_KEY),
        (unsupported,),
        lambda leaf, manifest: adopted_metadata(manifest, options.zarr) is not None,
    )
    restorable = partial(restorable_by, structure_file=options.structure_file)
    details = EncoderDetails(
        links=True, holds_shardings=True, shards_in_stores=True, restorable_by=restorable
    )
    return LimitedEncoder(limits, details)


def check_destination(path: PathLike, options: SinkOptions) -> None:
    """Raises UsageError where a path cannot take a step, or TensorStore takes it for another path.

    Checkpoints, and directories of steps themselves, hold no steps. The path need not exist.
    """
    directory, step = os.fspath(path), options.step
    above, name = os.path.split(urls.absolute(directory))
    problem = None
    if step is not None and name:  # the root of the file system stands for any destination
        if is_directory(directory) and orbax_layout.is_checkpoint(directory):
            problem = "is a checkpoint itself, not a directory of steps"
        elif name == str(step):
            problem = f"names the step {step} already"
        elif STEP_NAME.fullmatch(name) and is_directory(above) and orbax_layout.steps_in(above):
            problem = f"would be a step of {shown(above)} itself"
    if problem is not None:
        hint = f"Name the directory above it, or leave out `dst_step={step}`."
        raise UsageError(f"{shown(directory)} {problem}", hint=hint)
    if not urls.is_url(directory):
        check_reachable(real_path(step_and_item(directory, options)[1]))


def step_and_item(directory: str, options: SinkOptions) -> tuple[str, str]:
    """Paths, or URLs, of the step's and of the item's directory; equal if neither is named."""
    step = directory if options.step is None else f"{directory}/{options.step}"
    if options.step is None and options.item is None:
        return step, step
    return step, f"{step}/{options.item or DEFAULT_ITEM}"


# --- leaves that it cannot hold ---------------------------------------------------------------------------


def unsupported(leaves: Sequence[Leaf]) -> Iterator[str]:
    """One sentence for each thing, besides dtypes, that Orbax would refuse, lose or mix up."""
    if not leaves:
        yield "No leaf is left, and Orbax cannot hold an empty tree; keep one at least."
    for leaf in leaves:
        key, spec, name = leaf.key, leaf.spec, array_name(leaf.key)
        if "" in key.names:
            yield f"{quoted(leaf)} has an empty component in {list(key.names)}; rename it."
        if name.startswith("/") or (".." in name and ".." in name.split("/")):
            yield f"{quoted(leaf)} would be stored as a path that leaves the checkpoint; rename it."
        if not is_unicode(name):
            yield f"{quoted(leaf)} {NOT_UNICODE}; rename it."
        if spec is not None and spec.size == 0:
            shape = f"has the shape {list(spec.shape)}"
            yield f"{quoted(leaf)} {shape}: Orbax refuses arrays without elements; drop it."
        if spec is not None and leaf.kind is LeafKind.SCALAR and spec.dtype.kind == "c":
            what = "is a complex scalar, which Orbax refuses"
            yield f"{quoted(leaf)} {what}; reshape it to an array of one element."
        if True in key.sequences:
            yield from index_flaws(key)
        if leaf.kind is LeafKind.EMPTY and leaf.empty not in EMPTY_KINDS:
            yield f"{quoted(leaf)} is an empty node of the kind {leaf.empty}, unknown to Orbax; drop it."
    yield from _of_names([leaf for leaf in leaves if leaf.spec is not None])
    yield from _of_strings(leaves)
    yield from container_flaws([leaf.key for leaf in leaves])


def _of_names(arrays: Sequence[Leaf]) -> Iterator[str]:
    """Keys that would share a stored array: its name joins components with `.`, so `a.b` and `a/b` do."""
    names = [array_prefix(array_name(leaf.key)) for leaf in arrays]
    if len(set(names)) == len(names):
        return
    holders: dict[str, list[Leaf]] = defaultdict(list)
    for name, leaf in zip(names, arrays, strict=True):
        holders[name].append(leaf)
    for name, several in holders.items():
        if len(several) > 1:
            listed = " and ".join(map(quoted, several))
            yield f"{listed} would share the stored array `{shown(name.rstrip('/'))}`; rename one of them."


def _of_strings(leaves: Iterable[Leaf]) -> Iterator[str]:
    """Strings that Orbax would not find by their JSON pointers, in which `/` nests and `~` escapes."""
    names = {array_name(leaf.key): leaf for leaf in leaves if leaf.kind is LeafKind.STRING}
    for name, leaf in names.items():
        if "~" in name:
            yield f"{quoted(leaf)} is a string with `~` in its key, which Orbax cannot look up; rename it."
        parts = name.split("/")
        for outer in ("/".join(parts[:i]) for i in range(1, len(parts))):
            if outer in names:
                both = f"{quoted(names[outer])} and {quoted(leaf)}"
                yield f"The strings {both} would overwrite each other; rename one."


# --- old versions of Orbax --------------------------------------------------------------------------------


WITHOUT_STRUCTURE, WITH_STRUCTURE = "0.5.21", "0.4.8"
"""Oldest versions without and with a structure file; versions before 0.4.8 miss some keys even with it."""
PRNG_KEYS = "0.11.9"
"""Oldest version that restores typed PRNG keys; earlier ones restored their numbers."""
OF_EMPTY: Mapping[str | None, str] = {"Tuple": "0.7.0", "NamedTuple": "0.10.2"}
"""Oldest versions that know these kinds of empty nodes; all versions know the others."""
OF_TYPES: Mapping[str, str] = {
    "int2": "0.1.75",
    "float8_e3m4": "0.1.75",
    "float4_e2m1fn": "0.1.80",
    "float8_e8m0fnu": "0.1.85",
}
"""Oldest versions of TensorStore that know these types; all versions know the others."""


def restorable_by(leaves: Sequence[Leaf], structure_file: bool) -> Mapping[str, str]:
    """The oldest version of each package that restores these leaves, by its name.

    Found by restoring with them, each with libraries of its time; docs/formats.md has the table. All of them
    read both versions of zarr, and every codec that is written.
    """
    dtypes = {leaf.spec.dtype for leaf in leaves if leaf.spec is not None}
    orbax = {
        WITH_STRUCTURE if structure_file else WITHOUT_STRUCTURE,
        *(PRNG_KEYS for leaf in leaves if leaf.kind is LeafKind.PRNG_KEY),
        *(OF_EMPTY[leaf.empty] for leaf in leaves if leaf.empty in OF_EMPTY),
    }
    tensorstore = {OF_TYPES[dtype.name] for dtype in dtypes if dtype.name in OF_TYPES}
    wanted = {"orbax-checkpoint": orbax, "tensorstore": tensorstore}
    ordered = lambda version: [int(part) for part in version.split(".")]  # noqa: E731
    return {package: max(versions, key=ordered) for package, versions in wanted.items() if versions}


# --- the item ---------------------------------------------------------------------------------------------

NODES = "d/"
"""The directory of the index's nodes, and of linked files."""


class OrbaxSink:
    """Writes one item, to a directory or below a URL. Nothing is valid before `finish`."""

    def __init__(self, directory: PathLike, options: SinkOptions, outputs: Sequence[Output]):
        self.outputs = outputs
        self._options = options
        self._started = time.time_ns()
        self._step_directory, self._item_directory = step_and_item(os.fspath(directory), options)
        self._step = open_places(self._step_directory)
        self._item = open_places(self._item_directory, options.link_mode, options.replaced)
        if not urls.is_url(self._item_directory):
            self.record_directory = Path(self._item_directory)  # which keeps config files beside the record

    def create(self) -> None:
        """Make the item's directory."""
        self._item.create()

    def attach(self, worker: str) -> OrbaxWriter:
        """A writer with data files of its own."""
        return OrbaxWriter(self._item, self._options.zarr, worker)

    def finish(self, workers: Sequence[str]) -> None:
        """Write the index, then the metadata, and the commit files last. What is not of use is deleted."""
        computed = self._collect(workers)
        options, zarr = self._options, self._options.zarr
        leaves = [output.leaf for output in self.outputs]
        entries = {key.encode(): value for key, value in computed.items()}
        for output in self.outputs:
            if output.leaf.spec is not None:
                key = array_prefix(array_name(output.leaf.key)) + FILE_NAMES[zarr]
                entries[key.encode()] = definition(output, zarr)
        index = make_index(entries) if entries else None
        if index is not None:
            self._item.put(index.name, index.nodes)
        self._item.begin_documents()
        if index is not None:
            self._item.put(orbax_layout.MANIFEST, [index.manifest])
        if options.structure_file:
            self._item.put(STRUCTURE, [structure_bytes(leaves)])
        for name, document in documents(self.outputs, zarr, options.metadata).items():
            self._item.put(name, [json.dumps(document).encode()])
        self._commit()
        self._item.close()
        self._step.close()

    def _collect(self, workers: Sequence[str]) -> Entries:
        """Collect the places of all chunks. Deletes what other workers wrote, and what nobody noted.

        Two workers write the same chunk only if one was taken for dead, and then both write the same values.
        """
        sizes = self._item.sizes()
        computed: Entries = {}
        for worker in workers:
            computed |= read_notes(self._item, worker, sizes)
        used = {value.file for value in computed.values() if isinstance(value, Chunk)}
        notes = tuple(worker_directory(worker) + NOTES for worker in workers)
        ours = [name for name in sizes if name.startswith((NODES, orbax_layout.PROCESS_PREFIX))]
        self._item.delete(name for name in ours if name not in used and not name.startswith(notes))
        return computed

    def _commit(self) -> None:
        """Write the files that tell Orbax that the save was finished, the item's before the step's."""
        item = os.path.basename(self._item_directory)
        existing = self._options.existing
        if existing is not None:
            if not urls.is_url(self._step_directory):
                new = Path(self._step_directory)
                with storage_errors(new):
                    link_rest(Path(existing), new, keep={item}, leave_out={item, *REWRITTEN})
            self._item.put(orbax_layout.COMMIT_FILE, [COMMITTED])
            for name, text in documents_of_step(existing, item, self._started).items():
                self._step.put(name, [text])
            return
        within = None if self._item_directory == self._step_directory else item
        about = about_checkpoint(within, self._started, self._options.metadata)
        self._step.put(orbax_layout.CHECKPOINT_METADATA, [json.dumps(about).encode()])
        for places in (self._item, self._step) if within is not None else (self._step,):
            places.put(orbax_layout.COMMIT_FILE, [COMMITTED])

    def record(self, text: str) -> bool:
        """Put the record into the item's directory."""
        put_record(f"{self._item_directory}/{RECORD_NAME}", text)
        return True


open_sink = OrbaxSink
