"""What every format must do in an object store, as a class that `conformance.Reading` inherits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.formats.opening import detect_format, open_source
from ckpt_surgery.storage import views
from ckpt_surgery.storage.store import store_of
from tests.support.arrays import array
from tests.support.comparing import assert_same, same
from tests.support.directories import copy_of
from tests.support.key_value import uploaded
from tests.support.reading import values


class ReadingFromStore:
    """What every source must do where there is nothing but names and bytes."""

    format: ClassVar[str]
    names: ClassVar[Sequence[str]]

    def put(self, path: Path, bucket: str) -> str:
        """Upload a checkpoint; its URL."""
        views.forget()
        if path.exists():
            return uploaded(path, f"{bucket}/in/{path.name}")
        for file in path.parent.glob(f"{path.name}.*"):  # TensorFlow's is the beginning of names
            uploaded(file, f"{bucket}/in/{file.name}")
        return f"{bucket}/in/{path.name}"

    def outcome_at(self, place: str) -> dict[str, Any] | str:
        """All that is read of the checkpoint at a path or URL, or the refusal."""
        views.forget()
        try:
            return values(open_source(place, self.format))
        except (SourceError, UsageError) as error:
            assert len(str(error)) < 2000
            return str(error)

    def test_a_store_is_read_as_a_disk_is(self, saved: Path, bucket: str) -> None:
        url = self.put(saved, bucket)
        assert detect_format(url).name == self.format
        assert_same(self.outcome_at(url), self.sample())

    def test_regions_in_a_store(self, tmp_path: Path, bucket: str) -> None:
        value = array((7, 40, 30), "float32")
        url = self.put(self.save({"x": value, "y": array((3,), "uint8")}, tmp_path / "saved"), bucket)
        source = open_source(url, self.format)
        leaf, rng = source.leaves()["x"], np.random.default_rng(0)
        for _ in range(10):
            ends = [sorted(int(i) for i in rng.integers(0, n + 1, 2)) for n in value.shape]
            region = Region(tuple(a for a, _ in ends), tuple(b for _, b in ends))
            assert same(source.read(leaf, region), value[region.slices]), region

    def test_names_in_a_store_are_only_names(self, tmp_path: Path, bucket: str) -> None:
        arrays = {name: array((2, i % 3), "float32", i) for i, name in enumerate(self.names)}
        assert_same(self.outcome_at(self.put(self.save(arrays, tmp_path / "saved"), bucket)), arrays)

    def test_objects_that_are_cut_or_missing(self, saved: Path, tmp_path: Path, bucket: str) -> None:
        """A checkpoint is what it is on a disk: refused, or without the array of a missing object."""
        path = copy_of(saved, tmp_path / "copy") if saved.exists() else saved
        url, noticed = self.put(path, bucket), 0
        store, files = store_of(bucket)[0], self.files(path, bucket)
        for name, file in files.items():
            whole = file.read_bytes()
            file.write_bytes(whole[: len(whole) // 2])
            store.put(name, whole[: len(whole) // 2])
            self.same_outcome(path, url)
            file.unlink()
            store.delete([name])
            noticed += self.same_outcome(path, url) or len(self.outcome_at(url)) < len(self.sample())
            file.write_bytes(whole)
            store.put(name, whole)
        assert noticed
        assert_same(self.outcome_at(url), self.sample())

    def files(self, path: Path, bucket: str) -> dict[str, Path]:
        """The files of what is uploaded, by the names of their objects."""
        names = store_of(bucket)[0].walk()
        return {name: path.parent / name.removeprefix("in/") for name in names}

    def same_outcome(self, path: Path, url: str) -> bool:
        """Whether a checkpoint is refused, on the disk as in the store; what is read of both is the same."""
        on_disk, in_store = self.outcome_at(str(path)), self.outcome_at(url)
        if isinstance(on_disk, str) or isinstance(in_store, str):
            assert isinstance(on_disk, str), in_store
            assert isinstance(in_store, str), on_disk
            return True
        assert_same(in_store, on_disk)
        return False

    def test_an_object_that_is_gone_after_it_was_listed(self, saved: Path, bucket: str) -> None:
        url = self.put(saved, bucket)
        source, store = open_source(url, self.format), store_of(bucket)[0]
        assert source.leaves()
        store.delete(list(store.walk()))
        views.forget()
        with pytest.raises(SourceError):
            values(source)

    def sample(self) -> Mapping[str, np.ndarray]:
        raise NotImplementedError

    def save(self, arrays: Mapping[str, np.ndarray], path: Path) -> Path:
        raise NotImplementedError
