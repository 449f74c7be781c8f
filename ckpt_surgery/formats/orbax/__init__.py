"""The Orbax format: v0 and v1 checkpoints, CheckpointManager directories, OCDBT or plain zarr."""

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.shared.orbax_layout import is_orbax

FORMAT = Format(
    name="orbax",
    detect=is_orbax,
    module=__name__,
    writable=True,
    choices=("step", "item"),
    options=("step", "item", "structure_file"),
    stores=True,
    replaces_files=True,
    separate_files=True,
)
