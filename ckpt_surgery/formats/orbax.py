"""The Orbax format: v0 and v1 checkpoints, CheckpointManager directories, OCDBT or plain zarr."""

from ckpt_surgery.formats import Format
from ckpt_surgery.formats.orbax_layout import detect
from ckpt_surgery.formats.orbax_sink import open_orbax_sink
from ckpt_surgery.formats.orbax_source import open_orbax

FORMAT = Format(name="orbax", detect=detect, open_source=open_orbax, open_sink=open_orbax_sink, links=True)
