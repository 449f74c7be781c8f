"""HDF5 files of arrays: those of h5py, Keras 3 (`.weights.h5`, `.keras`) and earlier Keras (`.h5`)."""

from ckpt_surgery.formats.registry import Format, Names
from ckpt_surgery.formats.shared.zip.members import LOCAL, first_name
from ckpt_surgery.storage.reading import OpenFile

SUFFIXES = (".h5", ".hdf5")
ARCHIVE_SUFFIX = ".keras"
"""Suffix of Keras 3's zip archives."""
WEIGHTS = "model.weights.h5"
"""The member of such an archive that holds the arrays."""
CONFIG = "config.json"
"""The member that holds the config of the model."""
ARCHIVE_MEMBERS = ("metadata.json", CONFIG, WEIGHTS)
"""Members that such an archive begins with one of."""
SIGNATURE = b"\x89HDF\r\n\x1a\n"
USER_BLOCK = 512
"""Least size of a block of other bytes before the signature; larger ones have a power of 2 times as many."""
MOST_DETECTED = 2048
"""Size of the largest such block behind which a file is recognized without its name."""


def is_archive_name(name: str) -> bool:
    """Whether a file is, or is to be, one of Keras's archives, by its name alone."""
    return name.lower().endswith(ARCHIVE_SUFFIX)


def is_archive(file: OpenFile) -> bool:
    """Whether a file is one of Keras's archives, by its name and the member at its beginning."""
    if not is_archive_name(file.path):
        return False
    first = first_name(file)
    return first is None or first in ARCHIVE_MEMBERS


def signature_at(file: OpenFile, most: int) -> int | None:
    """Offset of the signature in a file, of at most `most`; None where it has none."""
    at = 0
    while at <= min(most, file.stat.size - len(SIGNATURE)):
        if file.read(at, len(SIGNATURE)) == SIGNATURE:
            return at
        at = 2 * at or USER_BLOCK
    return None


def _begins(file: OpenFile) -> bool | None:
    """Whether a file is such an archive or has the signature; False for other zip archives."""
    if is_archive(file) or signature_at(file, MOST_DETECTED) is not None:
        return True
    return False if file.read(0, min(len(LOCAL), file.stat.size)) == LOCAL else None


NAMES = Names("HDF5 files", _begins, (*SUFFIXES, ARCHIVE_SUFFIX), alone=True)

FORMAT = Format(
    name="hdf5",
    detect=NAMES.detect,
    module=__name__,
    writable=True,
    suffixes=NAMES.suffixes,
    is_file=lambda name: True,
    holds_empty=False,
    holds_lists=False,
)
