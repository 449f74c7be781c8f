"""NumPy's `.npz`: one zip archive of `.npy` files, as `np.savez` and `np.savez_compressed` write it."""

from ckpt_surgery.formats.registry import Format, Names
from ckpt_surgery.formats.shared.npy import NPY_SUFFIX
from ckpt_surgery.formats.shared.zip.members import first_name
from ckpt_surgery.storage.reading import OpenFile


def _begins(file: OpenFile) -> bool | None:
    first = first_name(file)
    return None if first is None else first.endswith(NPY_SUFFIX)


NAMES = Names(".npz files", _begins, (".npz",), alone=True)

FORMAT = Format(
    name="npz",
    detect=NAMES.detect,
    module=f"{__name__}.archive",
    writable=True,
    suffixes=NAMES.suffixes,
    is_file=lambda name: True,
    flat=True,
    holds_empty=False,
    holds_lists=False,
)
