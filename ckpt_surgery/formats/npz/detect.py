"""Which paths are NumPy's `.npz` files."""

from ckpt_surgery.formats.registry import Names
from ckpt_surgery.formats.shared.npy import NPY_SUFFIX
from ckpt_surgery.formats.shared.zip.layout import first_name
from ckpt_surgery.storage.reading import OpenFile


def _begins(file: OpenFile) -> bool | None:
    first = first_name(file)
    return None if first is None else first.endswith(NPY_SUFFIX)


NAMES = Names(".npz files", _begins, (".npz",), alone=True)
