"""The Orbax format: v0 and v1 checkpoints, CheckpointManager directories, OCDBT or plain zarr."""

from ckpt_surgery.formats.orbax.detect import detect
from ckpt_surgery.formats.registry import Format

FORMAT = Format(
    name="orbax",
    detect=detect,
    source="ckpt_surgery.formats.orbax.source:open_orbax",
    encoder="ckpt_surgery.formats.orbax.encoder:orbax_encoder",
    sink="ckpt_surgery.formats.orbax.sink:open_orbax_sink",
    separate_files=True,
    check="ckpt_surgery.formats.orbax.encoder:check_destination",
    other_files="ckpt_surgery.formats.orbax.other_files:other_files",
    links=True,
    stores=True,
    shards_in_stores=True,
    replaces_files=True,
    holds_shardings=True,
    structure_file=True,
    restorable_by="ckpt_surgery.formats.orbax.versions:restorable_by",
)
