"""Keras's archives: what they hold beside the weights, and how one is laid out that is to be written.

An archive is a zip file with the model's config, `metadata.json`, perhaps files of layers in `assets/`, and
the weights as an HDF5 file, which is stored as it is. (Source: keras/src/saving/saving_lib.py of Keras 3.)
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.formats.hdf5.detect import ARCHIVE_MEMBERS, WEIGHTS
from ckpt_surgery.formats.shared.zip.inflating import read_member
from ckpt_surgery.formats.shared.zip.members import Archive
from ckpt_surgery.formats.shared.zip.writing import PlacedMember, archive_end, placed
from ckpt_surgery.storage.reading import OpenFile

MOST_BYTES = 64 << 20
"""Bytes of all members but the weights that are taken over at most."""
ALONE = "Write the weights alone, as NAME.weights.h5, which `model.load_weights` loads."


def model_files(file: OpenFile, archive: Archive) -> dict[str, bytes]:
    """All members of an archive but the weights, by name.

    Raises SourceError where one is damaged, UsageError where they are too large or a name leads elsewhere.
    """
    members = [member for member in archive.members if member.name != WEIGHTS]
    total = sum(member.size for member in members)
    if total > MOST_BYTES:
        raise UsageError(
            f"{shown(file.path)} holds {bytes_text(total)} beside its weights, and {bytes_text(MOST_BYTES)} "
            "is the most that is taken over into another archive",
            hint=ALONE,
        )
    for member in members:
        if _leads_elsewhere(member.name):
            raise UsageError(
                f"{shown(file.path)} has a member `{shown(member.name[:200])}`, whose name leads out of it",
                hint=ALONE,
            )
    return {member.name: read_member(file, member, MOST_BYTES) for member in members}


def _leads_elsewhere(name: str) -> bool:
    parts = name.split("/")
    return bool({"", ".", ".."} & set(parts)) or "\\" in name or "\0" in name or ":" in parts[0]


@dataclass(frozen=True)
class ModelArchive:
    """An archive that is to be written: the files of a model, then its weights."""

    files: Mapping[str, bytes]
    """Every member but the weights."""
    size: int
    """Bytes of the weights."""

    @cached_property
    def places(self) -> Sequence[PlacedMember]:
        """The members in their order: first those that archives are recognized by, the weights last."""
        names = sorted(self.files, key=lambda name: name not in ARCHIVE_MEMBERS)
        sizes = [(name.encode(), len(self.files[name])) for name in names]
        return placed([*sizes, (WEIGHTS.encode(), self.size)])

    @property
    def weights(self) -> PlacedMember:
        """The place of the weights."""
        return self.places[-1]

    def crcs(self, of_weights: int) -> list[int]:
        """CRC-32 of every member, with that of the weights."""
        texts = [place.raw_name.decode() for place in self.places[:-1]]
        return [*(zlib.crc32(self.files[name]) for name in texts), of_weights]

    def pieces(self, of_weights: int) -> list[tuple[int, bytes]]:
        """Everything but the weights, as offset and bytes. `of_weights`: their CRC-32."""
        crcs = self.crcs(of_weights)
        found = []
        for place, crc in zip(self.places, crcs, strict=True):
            data = b"" if place is self.weights else self.files[place.raw_name.decode()]
            found.append((place.header, place.local_header(crc) + data))
        return [*found, (self.weights.stop, archive_end(self.places, crcs))]
