"""Writing an HDF5 file, by itself or in one of Keras's archives: leaves that it can hold, and its layout.

libhdf5 makes the file in memory, once in every process that writes, and always the same: it allocates each
dataset early and fills none. So the places are known before anything is on a disk, and errors of the disk are
none of the library's.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import NUMPY_NAMES
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.hdf5 import ARCHIVE_MEMBERS, CONFIG, WEIGHTS, is_archive_name
from ckpt_surgery.formats.hdf5.datasets import DTYPE_ATTRIBUTE, HELD
from ckpt_surgery.formats.hdf5.library import Positioned, import_h5py
from ckpt_surgery.formats.hdf5.source import ALONE, MOST_LEVELS
from ckpt_surgery.formats.plain_files import LimitedEncoder, metadata_json, quoted, repeated_keys, wrong_keys
from ckpt_surgery.formats.registry import FilePlan, Limits, SinkOptions
from ckpt_surgery.formats.shared.zip.writing import archived
from ckpt_surgery.storage.regions import PlacedArray

PAGE = 4 << 10
"""Bytes of a page: memory is taken for pages only in which something was written."""


class SparseFile(Positioned):
    """A file object in memory that keeps what was written, and is zeros elsewhere."""

    def __init__(self) -> None:
        super().__init__(0)
        self._pages: dict[int, bytearray] = {}

    def truncate(self, size: int | None = None) -> int:
        """Set the size."""
        self.size = self._position if size is None else size
        return self.size

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes, as far as the file goes."""
        view = memoryview(buffer).cast("B")[: max(0, self.size - self._position)]
        for page, inner, outer in _split(self._position, len(view)):
            view[outer] = self._pages.get(page, bytes(PAGE))[inner]
        self._position += len(view)
        return len(view)

    def write(self, data: Any) -> int:
        """Write bytes at the position."""
        view = memoryview(data).cast("B")
        for page, inner, outer in _split(self._position, len(view)):
            self._pages.setdefault(page, bytearray(PAGE))[inner] = view[outer]
        self._position += len(view)
        self.size = max(self.size, self._position)
        return len(view)

    def pieces(self, without: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
        """All bytes but those of these ranges, which are offset and length: each piece with its offset."""
        at = 0
        for start, length in (*sorted(without), (self.size, 0)):
            if start > at:
                self.seek(at)
                yield at, self.read(start - at) or b""
            at = start + length


def _split(position: int, length: int) -> Iterator[tuple[int, slice, slice]]:
    """The pages that a range touches: number, the part of the page, and the part of the range."""
    done = 0
    while done < length:
        page, within = divmod(position + done, PAGE)
        count = min(PAGE - within, length - done)
        yield page, slice(within, within + count), slice(done, done + count)
        done += count


def layout(leaves: Sequence[Leaf], options: SinkOptions) -> list[FilePlan]:
    """One file: `checkpoint.h5`, or `options.file_name`, which may be an archive.

    The metadata is the attributes of the root group: texts and numbers as they are, other values as JSON. In
    an archive the weights come last; first comes what archives are recognized by.
    """
    name = options.file_name or "checkpoint.h5"
    if not is_archive_name(name):
        return [image_of(name, leaves, options.metadata)]
    files = options.model_files()
    names = sorted(files, key=lambda name: name not in ARCHIVE_MEMBERS)
    members = [FilePlan(name, len(files[name]), [(0, files[name])]) for name in names]
    return [archived(name, [*members, image_of(WEIGHTS, leaves, options.metadata)])]


def stored_values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as attributes: texts, truths, numbers, else JSON. Raises TypeError and ValueError."""
    values = {}
    for name, value in metadata.items():
        number = isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)
        values[name] = value if number or isinstance(value, str) else json.dumps(value)
    return values


def image_of(name: str, leaves: Sequence[Leaf], metadata: Mapping[str, Any]) -> FilePlan:
    """The file with these arrays, contiguous and in this order, and with these root attributes."""
    import h5py

    image = SparseFile()
    arrays = {}
    with h5py.File(image, "w") as file:
        for attribute, value in stored_values(metadata).items():
            file.attrs[attribute] = value
        for leaf in leaves:
            assert leaf.spec is not None
            offset = _create(file.id, leaf.key.text, leaf.spec)
            ranges = () if offset is None else ((offset, leaf.spec.nbytes),)
            arrays[leaf.key.text] = PlacedArray(leaf.spec, ranges)
    pieces = image.pieces(span for array in arrays.values() for span in array.ranges)
    return FilePlan(name, image.size, tuple(pieces), arrays)


def _create(file: Any, text: str, spec: ArraySpec) -> int | None:
    """Make the dataset of an array in h5py's `FileID`; the offset of its first element, where it has any."""
    from h5py import Dataset, h5d, h5p, h5s, h5t

    how = h5p.create(h5p.DATASET_CREATE)
    how.set_layout(h5d.CONTIGUOUS)
    how.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    how.set_fill_time(h5d.FILL_TIME_NEVER)
    how.set_obj_track_times(False)
    link = h5p.create(h5p.LINK_CREATE)
    link.set_create_intermediate_group(True)
    link.set_char_encoding(h5t.CSET_UTF8)
    dtype, plain = spec.dtype, spec.dtype.name in NUMPY_NAMES
    space = h5s.create_simple(spec.shape) if spec.shape else h5s.create(h5s.SCALAR)
    # Types of ml_dtypes are opaque bytes, as Keras has bfloat16.
    stored = h5t.py_create(dtype if plain else np.dtype(f"V{dtype.itemsize}"), logical=True)
    dataset = h5d.create(file, text.encode(), stored, space, how, link)
    if not plain:
        Dataset(dataset).attrs[DTYPE_ATTRIBUTE] = dtype.name
    return dataset.get_offset()  # type: ignore[no-any-return]


def _wrong_names(leaves: Sequence[Leaf]) -> Iterator[str]:
    """Keys that cannot be paths, also where another leaf needs a group: components can contain `/`."""
    texts = dict.fromkeys([leaf.key.text for leaf in leaves])
    for leaf in leaves:
        text, names = leaf.key.text, leaf.key.text.split(SEPARATOR)
        if "" in names or "." in names:
            yield f"{quoted(leaf)} has a component that is empty or `.`, not a group's name; rename it."
        if "\0" in text:
            yield f"{quoted(leaf)} has a NUL in it, where HDF5 cuts names off; rename it."
        if len(names) > MOST_LEVELS:
            yield f"`{shown(text[:200])}…` has {len(names)} components; {MOST_LEVELS} is the limit."
        for other in (SEPARATOR.join(names[:i]) for i in range(1, len(names))):
            if other in texts:
                yield f"`{shown(other)}` is an array, and `{shown(text)}` needs a group there; rename one."


LIMITS = Limits(
    ("HDF5 files are written with plain arrays", "HDF5 cannot store"),
    HELD,
    more=(wrong_keys, _wrong_names, repeated_keys),
)


def encoder(options: SinkOptions) -> LimitedEncoder:
    """The encoder. Raises UsageError for an archive without a model, wrong metadata, and without h5py."""
    name = options.file_name or "The destination"
    if is_archive_name(name) and CONFIG not in options.model_files():
        what = f"{shown(name)} is to be one of Keras's archives, which hold the config of the model"
        raise UsageError(f"{what}, and no source has one: none is such an archive", hint=ALONE)
    import_h5py(name)
    metadata_json(options.metadata)
    for entry, value in stored_values(options.metadata).items():
        texts = [text for text in (entry, value) if isinstance(text, str)]
        if not entry or any("\0" in text or not is_unicode(text) for text in texts):
            what = f"The custom metadata has the entry `{shown(entry[:200])}`, which cannot be an attribute"
            why = "its name is empty, or a text has a NUL or is not valid Unicode"
            raise UsageError(f"{what}: {why}", hint="Choose another format.")
    return LimitedEncoder(LIMITS)
