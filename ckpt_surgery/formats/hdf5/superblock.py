"""The beginning of an HDF5 file, which is checked before libhdf5 reads it.

libhdf5 1.14 adds to addresses without looking whether the sum fits, and crashes when the process ends where a
block that its superblock refers to is not in the file. Source: the HDF5 1.14 specification, section II.A.
"""

from struct import Struct

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.hdf5 import SIGNATURE
from ckpt_surgery.formats.hdf5.library import FileView
from ckpt_surgery.storage.failures import DAMAGED

WIDTH = 8
"""Bytes of addresses and lengths in all files that current programs write."""
FIRST_PLACE = 512
"""Least offset of a signature that is not at the beginning; the next ones are each twice as far."""
NOWHERE = 2**64 - 1
"""Address of what there is not."""
_OLD = Struct("<8sB4xBB")
"""Signature, version; widths of addresses and of lengths: of versions 0 and 1."""
_NEW = Struct("<8sBBB")
"""The same of versions 2 and 3."""
_ADDRESSES = Struct("<4Q")
_ROOT = Struct("<QQ")
"""Of versions 0 and 1, after the addresses: place of the root's name, address of the root."""
OLD_ADDRESSES_AT = {0: 24, 1: 28}
"""Offset of the addresses: the base, free space, the end of the file, the driver's settings."""
NEW_ADDRESSES_AT = 12
"""Offset of the addresses: the base, the superblock's extension, the end of the file, the root."""
MOST_BYTES = 28 + 32 + 16


def base_of(view: FileView) -> int:
    """The offset that addresses are counted from, which is that of the signature."""
    base = _signature_at(view)
    data = view.bytes_at(base, min(MOST_BYTES, view.size - base)).ljust(MOST_BYTES, b"\0")
    version = data[8]
    if version in OLD_ADDRESSES_AT:
        at = OLD_ADDRESSES_AT[version]
        _, _, *widths = _OLD.unpack_from(data)
        first, _, _, settings = _ADDRESSES.unpack_from(data, at)
        _, root = _ROOT.unpack_from(data, at + _ADDRESSES.size)
    elif version in (2, 3):
        _, _, *widths = _NEW.unpack_from(data)
        first, settings, _, root = _ADDRESSES.unpack_from(data, NEW_ADDRESSES_AT)
    else:
        raise _flaw(view, f"it is in version {version} of the format, which is not known")
    if widths != [WIDTH, WIDTH]:
        widths_text = f"{widths[0]} and {widths[1]} bytes instead of {WIDTH}"
        raise _flaw(view, f"its addresses and lengths have {widths_text}", "Write it again with h5py.")
    if version in OLD_ADDRESSES_AT and settings != NOWHERE:
        raise _flaw(view, "it is a part of a file that was written in several", "Write it again with h5py.")
    for address in (first, root, *(() if settings == NOWHERE else (settings,))):
        if address >= view.size:
            raise _flaw(view, f"its superblock refers to byte {address}, of {view.size}")
    return base


def _signature_at(view: FileView) -> int:
    at = 0
    while at + len(SIGNATURE) <= view.size:
        if view.bytes_at(at, len(SIGNATURE)) == SIGNATURE:
            return at
        at = 2 * at or FIRST_PLACE
    raise _flaw(view, "the signature of HDF5 files is nowhere in it")


def _flaw(view: FileView, what: str, hint: str = DAMAGED) -> SourceError:
    return SourceError(f"{shown(view.path)}: {what}", hint=hint)
