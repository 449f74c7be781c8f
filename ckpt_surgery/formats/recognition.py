"""What a path holds that no format of this package reads, and what to do about it.

Recognized by names and a few bytes. Sources: the magic numbers that the formats' own documents give, and the
names that PyTorch, DeepSpeed, Megatron-LM, TensorFlow, Hugging Face and Git LFS write.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.storage.listing import DirectoryNames, directory_names, is_directory
from ckpt_surgery.storage.reading import opened

HEAD_BYTES = 512
"""Bytes that are read at the beginning of a file; the magic number of a tar ends at 262."""
TAIL_BYTES = 8
"""Bytes that are read at the end of a file."""
MOST_FILES = 1000
"""Largest number of files of a directory that are opened."""

T = TypeVar("T")


@dataclass(frozen=True)
class Recognized:
    """Something that this package does not read as a checkpoint."""

    what: str
    """Description that continues `looks like`: `an ONNX model`."""
    hint: str
    """What to do, as a sentence."""


@dataclass(frozen=True)
class _FileEnds:
    """The name and the few bytes by which a file is recognized."""

    name: str
    head: bytes
    """The first HEAD_BYTES, fewer where the file is shorter."""
    tail: bytes
    """The last TAIL_BYTES."""
    size: int


def recognized(path: str) -> Recognized | None:
    """What is at a path that no format reads; None if it is not recognized."""
    if is_directory(path):
        return stand_in(path) or _first(_DIRECTORIES, _listed(path))
    return _first((*_STAND_INS, *_FILES), _look(path))


def stand_in(path: str) -> Recognized | None:
    """What is found in place of a checkpoint: pointers of Git LFS, web pages, a model without its values.

    Their names are those of real checkpoints, so that a format can claim them as damaged ones of its own.
    """
    if not is_directory(path):
        return _first(_STAND_INS, _look(path))
    for name in _listed(path).files[:MOST_FILES]:
        if other := _first(_STAND_INS, _look(os.path.join(path, name))):
            return Recognized(f"a directory with {other.what} in place of {shown(name)}", other.hint)
    return _without_variables(path)


def _without_variables(path: str) -> Recognized | None:
    if not {"saved_model.pb", "saved_model.pbtxt"} & set(_listed(path).files):
        return None
    if _matching(_listed(os.path.join(path, "variables")), r".*\.index"):
        return None
    return Recognized(
        "a TensorFlow SavedModel without its variables",
        "Its directory `variables` is missing or empty: take another copy, or the checkpoint itself.",
    )


def without_arrays(path: str) -> Recognized | None:
    """What a directory without any checkpoint is: empty, for example, or steps without arrays."""
    if not is_directory(path):
        return None
    found = _listed(path)
    if not found.files and not found.directories:
        return Recognized("an empty directory", "Check the path, and that the save or the copy is complete.")
    if "config.json" in found.files:
        return Recognized(
            "the directory of a model without its weights",
            "Only its configuration was downloaded or copied: get the weights too.",
        )
    steps = _matching(found, r"(.*[_-])?[0-9]+")
    if not steps:
        return None
    return Recognized(
        f"a directory of steps ({few(steps)}) without arrays in them",
        "Check that the saves were finished, and that the copy is complete.",
    )


def _first(marks: Iterable[Callable[[T], Recognized | None]], found: T | None) -> Recognized | None:
    """The result of the first mark that recognizes something."""
    results = (mark(found) for mark in marks) if found is not None else ()
    return next((other for other in results if other is not None), None)


def _look(path: str) -> _FileEnds | None:
    """The name and a few bytes of a file; None where it is not a regular file or cannot be read."""
    try:
        with opened(path) as file:
            size = file.stat.size
            head = file.read(0, min(HEAD_BYTES, size))
            tail = file.read(max(0, size - TAIL_BYTES), min(TAIL_BYTES, size))
    except (SourceError, StorageError):
        return None
    return _FileEnds(os.path.basename(path), head, tail, size)


def _listed(path: str) -> DirectoryNames:
    """The names in a directory; none where it cannot be listed."""
    try:
        return directory_names(path)
    except (SourceError, StorageError):
        return DirectoryNames((), ())


def _matching(found: DirectoryNames, pattern: str) -> list[str]:
    """Names of files and directories that match as a whole, sorted."""
    return sorted(name for name in (*found.files, *found.directories) if re.fullmatch(pattern, name))


# --- files ------------------------------------------------------------------------------------------------

FileMark = Callable[[_FileEnds], Recognized | None]


def _begins(magics: Sequence[bytes], what: str, hint: str, offset: int = 0) -> FileMark:
    """A mark of files with one of these magic numbers at `offset`."""
    found = Recognized(what, hint)
    return lambda file: found if file.head[offset:].startswith(tuple(magics)) else None


def _text_begins(pattern: bytes, what: str, hint: str) -> FileMark:
    """A mark of files whose text begins like this, in any case and after any white space."""
    found = Recognized(what, hint)
    text = re.compile(rb"(\xef\xbb\xbf)?\s*(" + pattern + rb")", re.IGNORECASE)
    return lambda file: found if text.match(file.head) else None


def _equinox(file: _FileEnds) -> Recognized | None:
    """Recognizes files of Equinox that begin with a line of JSON, as its documentation does it."""
    if not (file.name.endswith(".eqx") and file.head.startswith(b"{")):
        return None
    return Recognized(
        "an Equinox file: arrays one after another, without names",
        "Load it with the code that made it (`equinox.tree_deserialise_leaves`), and give the tree to "
        "`ckpt_surgery.apply`, which takes trees as checkpoints.",
    )


_STAND_INS: Sequence[FileMark] = (
    _equinox,
    _begins(
        [b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/"],
        "a Git LFS pointer",
        "The file itself was not downloaded: run `git lfs pull` in its repository.",
    ),
    _text_begins(
        rb"<!doctype html|<html",
        "a web page",
        "The download returned a page, of a login or an error, instead of the file: download it again.",
    ),
    _text_begins(
        rb"<\?xml[^>]*>\s*<Error",
        "an error message of a file server",
        "The download was refused; the text in the file says why, so download it again.",
    ),
)

_PICKLED_MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
"""`torch.serialization.MAGIC_NUMBER`, 0x1950a86a20f9469cfc6c, as a pickle of its own."""
_RESAVE_TORCH = (
    "Re-save it with PyTorch 1.6 or later: "
    "`torch.save(torch.load(FILE, map_location='cpu', weights_only=True), 'new.pt')`."
)
_UNPACK = "Unpack it and name what is inside."


def _pickle(file: _FileEnds) -> Recognized | None:
    """Recognizes pickles of protocols 2 to 5, which begin with their number and end with STOP."""
    if len(file.head) < 3 or file.head[0] != 0x80 or file.head[1] not in range(2, 6):
        return None
    if not file.tail.endswith(b"."):
        return None
    return Recognized(
        "a pickle",
        "Pickles run code when they are loaded, so they are not read. Load it where you trust it, and save "
        "its arrays with `numpy.savez`, under names that join their keys with `/`.",
    )


def _tar(file: _FileEnds) -> Recognized | None:
    if file.head[257:262] != b"ustar":
        return None
    member = file.head[:100].rstrip(b"\0").removeprefix(b"./")
    if member in (b"sys_info", b"pickle", b"storages", b"tensors"):
        return Recognized("a PyTorch file from before 0.1.10, in tar form", _RESAVE_TORCH)
    return Recognized("a tar archive", _UNPACK)


def _zip(file: _FileEnds) -> Recognized | None:
    if not file.head.startswith(b"PK\x03\x04"):
        return None
    return Recognized("a zip archive without arrays of NumPy or PyTorch", _UNPACK)


def _tensorflow(file: _FileEnds) -> Recognized | None:
    """Recognizes parts without their index; beside it they are recognized as a checkpoint."""
    if prefix := re.fullmatch(r"(.+)\.data-[0-9]{5}-of-[0-9]{5}", file.name):
        return Recognized(
            "a part of a TensorFlow checkpoint",
            f"The others are missing beside it, the index {shown(prefix[1])}.index first: copy them too.",
        )
    if file.name.endswith(".meta"):
        prefix_only = shown(file.name.removesuffix(".meta"))
        return Recognized(
            "the graph of a TensorFlow checkpoint", f"Name its index, {prefix_only}.index, instead."
        )
    return None


def _torch_distributed(file: _FileEnds) -> Recognized | None:
    """Recognizes the files of a directory that is a checkpoint."""
    if not file.name.endswith(".distcp") and b"torch.distributed.checkpoint.metadata" not in file.head:
        return None
    return Recognized("a part of a distributed checkpoint of PyTorch", "Name its directory.")


def _onnx(file: _FileEnds) -> Recognized | None:
    """Recognizes ONNX files by their first field: number 1, the version, is a varint."""
    if not (file.name.endswith(".onnx") and file.head.startswith(b"\x08")):
        return None
    return Recognized(
        "an ONNX model",
        "Save its weights with `numpy.savez('new.npz', "
        "**{t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(FILE).graph.initializer})`.",
    )


def _text(file: _FileEnds) -> Recognized | None:
    """Recognizes text by the first bytes; in a longer file they may end within a character."""
    if not file.head:
        return Recognized("an empty file", "Check that the save or the copy is complete.")
    try:
        text = file.head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(file.head) - 3 or file.size <= HEAD_BYTES:
            return None
        text = file.head[: error.start].decode("utf-8")
    if any(character < " " and character not in "\t\r\n\f" for character in text):
        return None
    return Recognized(
        "a text file",
        "Name the checkpoint itself. A recipe comes before the checkpoints; a listing of shapes is a "
        "target, `target=PATH`.",
    )


_FILES: Sequence[FileMark] = (
    _begins([_PICKLED_MAGIC], "a PyTorch file saved before 1.6", _RESAVE_TORCH),
    _begins(
        [b"TFL3"], "a TensorFlow Lite model", "Take the checkpoint or SavedModel that it was made from.", 4
    ),
    _begins([b"\x1f\x8b"], "a gzip archive", _UNPACK),
    _begins([b"\x28\xb5\x2f\xfd"], "a zstd archive", _UNPACK),
    _begins([b"\xfd7zXZ\0"], "an xz archive", _UNPACK),
    _begins([b"BZh"], "a bzip2 archive", _UNPACK),
    _begins([b"7z\xbc\xaf\x27\x1c"], "a 7z archive", _UNPACK),
    _torch_distributed,
    _tar,
    _zip,
    _tensorflow,
    _onnx,
    _pickle,
    _text,
)

# --- directories ------------------------------------------------------------------------------------------

DirectoryMark = Callable[[DirectoryNames], Recognized | None]
_FILE_OF_DEEPSPEED = r"(bf16_)?zero_pp_rank_\d+_mp_rank_\d+_optim_states\.pt|mp_rank_\d+_model_states\.pt"


def _deepspeed(found: DirectoryNames) -> Recognized | None:
    if "zero_to_fp32.py" not in found.files and not _matching(found, _FILE_OF_DEEPSPEED):
        return None
    return Recognized(
        "a DeepSpeed checkpoint",
        "Make one of its parts with the script beside it: "
        "`python zero_to_fp32.py DIR OUT --safe_serialization`.",
    )


def _megatron(found: DirectoryNames) -> Recognized | None:
    ranks = _matching(found, r"mp_rank_\d\d(_\d{3})*")
    if not ranks and "latest_checkpointed_iteration.txt" not in found.files:
        return None
    return Recognized(
        "a Megatron-LM checkpoint",
        "Convert it with Megatron-LM's own `tools/checkpoint/convert.py`, to Hugging Face's layout, say. "
        "If a directory `iter_…` in it has a file .metadata, name that directory instead.",
    )


def _hugging_face_cache(found: DirectoryNames) -> Recognized | None:
    if not {"snapshots", "blobs"} <= set(found.directories):
        return None
    return Recognized("a repository in Hugging Face's cache", "Name one of the directories in `snapshots`.")


_DIRECTORIES: Sequence[DirectoryMark] = (
    _deepspeed,
    _megatron,
    _hugging_face_cache,
)
