"""Reading HDF5 files: h5py lists them, the elements are read without it, region by region."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import BIG, Chunk, Codec, Manifest, parts_of_chunks, raw_codec
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.hdf5.archives import model_files
from ckpt_surgery.formats.hdf5.attributes import root_attributes
from ckpt_surgery.formats.hdf5.datasets import Room, StoredDataset
from ckpt_surgery.formats.hdf5.detect import NAMES, WEIGHTS, is_archive
from ckpt_surgery.formats.hdf5.file_view import FileView
from ckpt_surgery.formats.hdf5.filters import decoded
from ckpt_surgery.formats.hdf5.library import import_h5py, opened_hdf5
from ckpt_surgery.formats.hdf5.listing import listed
from ckpt_surgery.formats.hdf5.superblock import base_of
from ckpt_surgery.formats.hdf5.texts import Texts
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.chunk_reading import read_stored
from ckpt_surgery.formats.shared.raw_arrays import Opaque, RawArraysSource
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.formats.shared.zip.members import read_archive, wrong
from ckpt_surgery.storage.failures import about, named
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened


class Hdf5Source(RawArraysSource):
    """An HDF5 file, opened for reading. Safe to use from several threads."""

    def __init__(
        self,
        path: str,
        file: str,
        stat: FileStat,
        datasets: Mapping[str, StoredDataset],
        metadata: Mapping[str, Any],
    ):
        leaves = {text: _leaf(text, dataset) for text, dataset in datasets.items()}
        unusable = {
            text: Opaque(*dataset.element.unusable)
            for text, dataset in datasets.items()
            if dataset.element.unusable is not None
        }
        super().__init__(path, "hdf5", leaves, {file: stat}, metadata, opaque=unusable)
        self._datasets = datasets
        self._file = file, stat

    @property
    def details(self) -> SourceDetails:
        """What one of Keras's archives holds beside the weights; nothing for other files."""
        return SourceDetails(model_files=self._model_files)

    def _model_files(self) -> Mapping[str, bytes]:
        with opened(*self._file) as file:
            return model_files(file, read_archive(file)) if is_archive(file) else {}

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read."""
        dataset = self._datasets[leaf.key.text]
        if dataset.manifest is None or not (dataset.filters or dataset.fill is not None):
            return super().read(leaf, region)
        try:
            return self._in_parts(dataset, dataset.manifest, region)
        except SourceError as error:
            raise named(leaf.key, error) from error

    def _in_parts(self, dataset: StoredDataset, manifest: Manifest, region: Region) -> np.ndarray:
        """A region of which chunks are encoded or missing. Takes the memory of one more chunk, twice."""
        block: np.ndarray = np.empty(region.shape, manifest.spec.dtype)
        for index, part in parts_of_chunks(manifest, region):
            chunk = manifest.chunks.get(index)
            if chunk is None:
                assert dataset.fill is not None
                block[part.within(region)] = dataset.fill
                continue
            if dataset.filters:
                chunk = self._decoded(dataset, manifest, chunk)
            plain = Manifest(manifest.spec, manifest.chunk_shape, _plain(dataset, manifest), {index: chunk})
            block[part.within(region)] = read_stored(plain, part, self._files)
        return block

    def _decoded(self, dataset: StoredDataset, manifest: Manifest, chunk: Chunk) -> Chunk:
        """The elements of a chunk, in memory."""
        with opened(chunk.file, self._files[chunk.file]) as file:
            stored = file.read(chunk.offset, chunk.length)
        data = decoded(stored, dataset.filters, manifest.chunk_nbytes)
        return Chunk("", 0, len(data), data)


def _plain(dataset: StoredDataset, manifest: Manifest) -> Codec:
    """The codec of decoded chunks."""
    raw = raw_codec(manifest.spec.ndim)
    return Codec(raw.name, raw.permutation, BIG) if dataset.element.big else raw


def _leaf(text: str, dataset: StoredDataset) -> Leaf:
    key = Key.parse(text)
    if dataset.shape is None:
        return Leaf(key, LeafKind.EMPTY, empty="None")
    return Leaf(key, LeafKind.ARRAY, ArraySpec(dataset.shape, dataset.element.dtype), dataset.manifest)


def open_hdf5(path: str, selection: Selection) -> Hdf5Source:
    """Open an HDF5 file, one of Keras's archives, or the only one of them in a directory.

    Raises SourceError where it is not whole, UsageError for a step or an item and where h5py is missing.
    """
    check_no_choice(f"{shown(path)} is an HDF5 file, which has", selection.step, selection.item)
    name = os.path.join(*NAMES.file_of(path))
    import_h5py(name)
    with opened(name) as file:
        room = _room(file)
    view = FileView(name, file.stat, room.start, room.size)
    base = base_of(view)
    with opened_hdf5(view) as h5, about(name):
        texts = Texts(view, base)
        datasets = listed(h5, room, texts)
        metadata = root_attributes(h5, texts)
    return Hdf5Source(path, name, file.stat, datasets, metadata)


def _room(file: OpenFile) -> Room:
    """Where the HDF5 file lies: it is the whole file, or a member of an archive that is stored as it is."""
    if not is_archive(file):
        return Room(file.path, 0, file.stat.size)
    archive = read_archive(file)
    if WEIGHTS not in archive:
        raise wrong(file, f"it has no member `{WEIGHTS}`", "Save the model with Keras 3 in one file.")
    member = archive[WEIGHTS]
    if member.deflated:
        raise wrong(file, f"`{WEIGHTS}` is compressed in the archive", "Unpack it and name that file.")
    return Room(file.path, member.offset, member.size)
