"""Open the archives of `torch.save`: a pickle, and a member for each storage that it names.

Source of the format: torch.serialization and caffe2/serialize (2.13). An archive PREFIX/… of `data.pkl`,
`data/KEY` for each storage, `byteorder`, `version`, and members that are not needed. None is compressed.
"""

from dataclasses import dataclass

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.torch.globals import Storage
from ckpt_surgery.formats.shared.zip.inflating import read_member
from ckpt_surgery.formats.shared.zip.members import Archive, ZipMember
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.reading import OpenFile

PICKLE = "data.pkl"
MOST_PICKLE_BYTES = 2**27


@dataclass(frozen=True)
class Saved:
    """The pickle of an archive, and where the storages are that it names."""

    pickle: bytes
    archive: Archive
    prefix: str
    """The prefix of the names of all members, with its slash."""
    start: int = 0
    """Offset of the archive in the file that it lies in."""

    def offset_of(self, storage: Storage) -> int:
        """The offset of a storage in the file. Raises SourceError unless its size is that in the pickle."""
        name = f"{self.prefix}data/{storage.key}"
        if name not in self.archive:
            raise damaged(f"is in `{shown(name[:200])}`, which is missing")
        member = self.archive[name]
        _check_stored(member)
        if member.size != storage.nbytes:
            raise damaged(
                f"is in `{shown(name[:200])}`, which has {member.size} bytes in place of {storage.nbytes}"
            )
        return self.start + member.offset


def read_saved(file: OpenFile, archive: Archive) -> Saved:
    """The pickle of an archive, which is not run."""
    prefix = _prefix(archive)
    _check_byte_order(file, archive, prefix)
    return Saved(_read(file, archive[prefix + PICKLE], MOST_PICKLE_BYTES), archive, prefix)


def _prefix(archive: Archive) -> str:
    """The prefix of the names of all members, with its slash."""
    pickles = [m.name for m in archive.members if m.name.count("/") == 1 and m.name.endswith("/" + PICKLE)]
    if len(pickles) != 1:
        raise SourceError(
            f"it holds {len(pickles)} files {PICKLE} where one belongs",
            hint="It is damaged, or a zip archive of something else.",
        )
    prefix = pickles[0].removesuffix(PICKLE)
    if f"{prefix}constants.pkl" in archive:
        raise SourceError(
            "it is TorchScript, a program with its tensors",
            hint="Save the tensors alone: `torch.save(torch.jit.load(path).state_dict(), other_path)`.",
        )
    return prefix


def _check_byte_order(file: OpenFile, archive: Archive, prefix: str) -> None:
    """Raise SourceError unless a file is little endian, as it is where it does not record its byte order."""
    name = f"{prefix}byteorder"
    order = _read(file, archive[name], 16) if name in archive else b"little"
    if order != b"little":
        raise SourceError(
            f"its byte order is {shown(order.decode('latin-1'))}; only little endian is read",
            hint="Load and save it with torch on a little-endian machine.",
        )


def _read(file: OpenFile, member: ZipMember, most: int) -> bytes:
    """All of a member, unchecked if its CRC-32 is 0: torch can be set to write no checksums."""
    _check_stored(member)
    if member.crc or member.size > most:
        return read_member(file, member, most)
    return file.read(member.offset, member.size)


def _check_stored(member: ZipMember) -> None:
    if member.deflated:
        raise SourceError(
            f"`{shown(member.name[:200])}` is compressed, which torch never does",
            hint="Unpack the archive, and zip it again without compression.",
        )
