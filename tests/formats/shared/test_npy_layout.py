"""How `.npy` files begin and are called, as NumPy says."""

from pathlib import Path

import numpy as np

from ckpt_surgery.formats.shared.npy_layout import MAGIC, NPY_SUFFIX


def test_files_begin_and_are_called_as_numpy_does(tmp_path: Path) -> None:
    np.save(tmp_path / "x", np.ones(2))
    [file] = tmp_path.iterdir()
    assert file.name == f"x{NPY_SUFFIX}"
    assert file.read_bytes().startswith(MAGIC)
    assert np.lib.format.MAGIC_PREFIX == MAGIC
