"""Keras's archives: what they hold beside the weights.

An archive is a zip file with the model's config, `metadata.json`, perhaps files of layers in `assets/`, and
the weights as an HDF5 file, which is stored as it is. (Source: keras/src/saving/saving_lib.py of Keras 3.)
"""

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.formats.hdf5.detect import WEIGHTS
from ckpt_surgery.formats.shared.zip.inflating import read_member
from ckpt_surgery.formats.shared.zip.members import Archive
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
