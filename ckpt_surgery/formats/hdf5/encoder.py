"""Leaves that an HDF5 file can hold."""

from collections.abc import Iterator, Sequence

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.hdf5 import CONFIG, is_archive_name
from ckpt_surgery.formats.hdf5.attributes import stored_values
from ckpt_surgery.formats.hdf5.element_types import HELD
from ckpt_surgery.formats.hdf5.library import import_h5py
from ckpt_surgery.formats.hdf5.source import ALONE, MOST_LEVELS
from ckpt_surgery.formats.registry import Limits, SinkOptions
from ckpt_surgery.formats.unsupported import LimitedEncoder, metadata_json, quoted, repeated_keys, wrong_keys


def _wrong_names(leaves: Sequence[Leaf]) -> Iterator[str]:
    for leaf in leaves:
        names = leaf.key.text.split(SEPARATOR)
        if "" in names or "." in names:
            yield f"{quoted(leaf)} has a component that is empty or `.`, not a group's name; rename it."
        if "\0" in leaf.key.text:
            yield f"{quoted(leaf)} has a NUL in it, where HDF5 cuts names off; rename it."
        if len(names) > MOST_LEVELS:
            yield f"`{shown(leaf.key.text[:200])}…` has {len(names)} components; {MOST_LEVELS} is the limit."


def _leaves_as_groups(leaves: Sequence[Leaf]) -> Iterator[str]:
    """Leaves in whose place another one needs a group, because components of keys contain `/`."""
    texts = dict.fromkeys([leaf.key.text for leaf in leaves])
    for text in texts:
        names = text.split(SEPARATOR)
        above = (SEPARATOR.join(names[:i]) for i in range(1, len(names)))
        for other in above:
            if other in texts:
                yield f"`{shown(other)}` is an array, and `{shown(text)}` needs a group there; rename one."


LIMITS = Limits(
    ("HDF5 files are written with plain arrays", "HDF5 cannot store"),
    HELD,
    more=(wrong_keys, _wrong_names, repeated_keys, _leaves_as_groups),
)


def encoder(options: SinkOptions) -> LimitedEncoder:
    """The encoder.

    Raises UsageError for an archive where no source has a model, metadata that is not JSON, and where h5py is
    missing.
    """
    name = options.file_name or "The destination"
    if is_archive_name(name) and CONFIG not in options.model_files():
        raise UsageError(
            f"{shown(name)} is to be one of Keras's archives, which hold the config of the model, and no "
            "source has one: none is such an archive",
            hint=ALONE,
        )
    import_h5py(name)
    _check_metadata(options)
    return LimitedEncoder(LIMITS)


def _check_metadata(options: SinkOptions) -> None:
    metadata_json(options.metadata)
    for name, value in stored_values(options.metadata).items():
        texts = [text for text in (name, value) if isinstance(text, str)]
        if not name or any("\0" in text or not is_unicode(text) for text in texts):
            raise UsageError(
                f"The custom metadata has the entry `{shown(name[:200])}`, which cannot be an attribute: "
                "its name is empty, or a text has a NUL or is not valid Unicode",
                hint="Choose another format.",
            )
