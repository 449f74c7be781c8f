"""The file object through which libhdf5 reads."""

from pathlib import Path

import numpy as np
import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.hdf5.library import LEAST_READS, FileView
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.storage.reading import stat_file
from tests.support.hdf5_files import save_hdf5
from tests.support.key_value import key_value, uploaded
from tests.support.store_conformance import forget

DATA = np.random.default_rng(0).integers(0, 256, 50_000, np.uint8).tobytes()


@pytest.fixture
def view(tmp_path: Path) -> FileView:
    """Bytes 100 to 40100 of a file."""
    path = tmp_path / "x"
    path.write_bytes(DATA)
    return FileView(str(path), stat_file(str(path)), 100, 40_000)


def test_nothing_is_read_beyond_the_range(view: FileView) -> None:
    view.seek(39_999)
    with pytest.raises(SourceError, match="refers to bytes 39999 to 40001, of 40000") as caught:
        view.readinto(bytearray(2))
    assert view.failure is caught.value


def test_a_file_is_not_read_forever(view: FileView) -> None:
    for _ in range(LEAST_READS + 40_000 // 16):
        view.seek(0)
        view.read(8)
    with pytest.raises(SourceError, match="refers to itself in circles"):
        view.read(8)


def test_a_file_that_changes_meanwhile(view: FileView) -> None:
    Path(view.path).write_bytes(DATA + b"more")
    with pytest.raises(SourceError, match="has changed since it was listed"):
        view.read(8)


def test_listing_an_object_fetches_little_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 MB, the pages in which the index lies; and of an array, the bytes of a region."""
    arrays = {f"layers/{i}/kernel": np.full((1 << 20,), i, np.uint8) for i in range(40)}
    path = save_hdf5(arrays, tmp_path / "x.h5")
    with key_value(tmp_path / "bucket") as url:
        at = uploaded(path, f"{url}/x.h5")
        forget()
        from ckpt_surgery.storage import reading

        fetched: list[int] = []
        fill = reading._fill_from_object
        monkeypatch.setattr(
            reading, "_fill_from_object", lambda *args: (fetched.append(len(args[3])), fill(*args))[1]
        )
        source = open_source(at)
        assert list(source.leaves()) == list(arrays)
        assert sum(fetched) < path.stat().st_size / 5
        assert len(fetched) < 100
    forget()
