"""Find all formats: each folder or module beside this one with a `FORMAT`, and those of other packages.

Other packages add theirs under the entry point group `ckpt_surgery.formats`, whose entries name a module with
a `FORMAT`, or a `Format` itself. Names of destinations imply formats, or other programs' files.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

import ckpt_surgery.formats as formats_package
from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.formats.registry import Format

NO_FORMATS = {"chunk_reading", "known", "opening", "plain_files", "recognition", "registry", "shared"}
"""Modules beside the formats that are not formats: they are not imported to look for them."""


@functools.cache
def formats() -> Mapping[str, Format]:
    """Every known format by name, this package's first. Raises UsageError where two have the same name."""
    known: dict[str, Format] = {}
    origins: dict[str, str] = {}
    for origin, offer in _offers():
        if offer.name in known:
            both = f"that of {origins[offer.name]}, and that of {origin}"
            hint = "Rename one of them, or uninstall the package that it comes with."
            raise UsageError(f"Two formats are called `{shown(offer.name)}`: {both}", hint=hint)
        known[offer.name], origins[offer.name] = offer, origin
    return known


def _offers() -> Iterator[tuple[str, Format]]:
    """All formats, each with the module or entry point that it comes from."""
    beside = (info.name for info in pkgutil.iter_modules(formats_package.__path__))
    for name in sorted(set(beside) - NO_FORMATS):
        module = importlib.import_module(f"{formats_package.__name__}.{name}")
        if hasattr(module, "FORMAT"):
            yield module.__name__, module.FORMAT
    for entry in importlib.metadata.entry_points(group="ckpt_surgery.formats"):
        loaded = entry.load()
        yield f"the entry point {shown(f'{entry.name} = {entry.value}')}", getattr(loaded, "FORMAT", loaded)


READING = ("read", "foreign_files")
"""Functions that a package that is a format's has in its module `source`; it has the others in `writing`.
Where it lacks that module, it has them itself."""


def part(format: Format, name: str) -> Any:
    """The function or description that a format's module has under a name; None where it has none."""
    module = importlib.import_module(format.module)
    if hasattr(module, "__path__"):
        inner = f"{format.module}.{'source' if name in READING else 'writing'}"
        if importlib.util.find_spec(inner) is not None:
            module = importlib.import_module(inner)
    return getattr(module, name, None)


def format_named(name: str) -> Format:
    """The format of that name. Raises UsageError."""
    known = formats()
    if name not in known:
        what = f"Not a format: `{name}`{did_you_mean(name, known)}"
        raise UsageError(what, hint=f"Known: {', '.join(known)}.")
    return known[name]


def writable() -> list[str]:
    """Names of the formats that can be written."""
    return [name for name, known in formats().items() if known.writable]


def formats_to_write() -> str:
    """A sentence that lists them, for hints."""
    return f"Formats to write: {', '.join(writable())}."


_MODELS = (
    ".caffemodel .engine .ggml .mar .mlmodel .mlpackage .nemo .onnx .ort .params .pb .pdparams .pt2 .pte "
    ".tflite .trt"
)
FOREIGN: Mapping[str, str] = {
    **dict.fromkeys(_MODELS.split(), "a model in another program's format"),
    **dict.fromkeys((".7z", ".bz2", ".gz", ".tar", ".tgz", ".xz", ".zip", ".zst"), "an archive"),
    **dict.fromkeys((".dill", ".joblib", ".pickle", ".pkl"), "a pickle"),
    **dict.fromkeys((".yaml", ".yml"), "a recipe"),
    ".ckpt": "a checkpoint of PyTorch Lightning or TensorFlow",
    ".distcp": "a part of a distributed checkpoint of PyTorch",
    ".json": "a JSON document",
}
"""Kinds of other programs' files by suffix. The formats list the suffixes of files that are read here."""


def format_for(name: str) -> str | None:
    """The format, perhaps only read, with the longest suffix that a name ends with; None if there is none."""
    suffixes = {suffix.lower(): known.name for known in formats().values() for suffix in known.suffixes}
    return _by_suffix(name, suffixes)


def promised(name: str) -> str | None:
    """Format, or other program's kind of file, that a name implies; None if it implies neither."""
    return format_for(name) or _by_suffix(name, FOREIGN)


def _by_suffix(name: str, suffixes: Mapping[str, str]) -> str | None:
    matching = [suffix for suffix in suffixes if name.lower().endswith(suffix)]
    return suffixes[max(matching, key=len)] if matching else None


def check_name(path: str) -> None:
    """Raise UsageError for a destination that is named like something that cannot be written here."""
    name = os.path.basename(urls.absolute(path))
    what = promised(name)
    if what is not None and format_for(name) not in writable():
        hint = f"{formats_to_write()} Name the destination for one of them, or say which: `format=NAME`."
        raise UsageError(f"{shown(path)}: its name says {what}, which cannot be written", hint=hint)
