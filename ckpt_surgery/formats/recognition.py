"""Recognize files that no format of this package reads, and say what to do about them.

Recognized by names and a few bytes. Sources: the magic numbers that the formats' own documents give, and the
names that PyTorch, DeepSpeed, Megatron-LM, TensorFlow, Hugging Face and Git LFS write.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.storage.listing import DirectoryNames, directory_names, is_directory
from ckpt_surgery.storage.reading import opened

HEAD_BYTES = 512
"""Bytes that are read at the beginning of a file; the magic number of a tar ends at 262."""
MOST_FILES = 1000
"""Largest number of files of a directory that are opened."""
STEM = "STEM"
"""Stands in hints for the first group of a mark's name."""


@dataclass(frozen=True)
class Mark:
    """Another program's file, recognized where all patterns match."""

    what: str
    """Description that continues `looks like`: `an ONNX model`."""
    hint: str
    """Advice, as a sentence."""
    name: str = ".*"
    """Pattern of the whole name of a file, or of a name in a directory; directories' names end with `/`."""
    head: bytes = b""
    """Pattern of the first HEAD_BYTES of a file, from `at` on."""
    at: int = 0
    tail: bytes = b""
    """The last byte of a file."""


_RESAVE_TORCH = (
    "Re-save it with PyTorch 1.6 or later: "
    "`torch.save(torch.load(FILE, map_location='cpu', weights_only=True), 'new.pt')`."
)
_UNPACK = "Unpack it and name what is inside."
_TEXT_BEGINS = rb"(?i)(\xef\xbb\xbf)?\s*"
_PICKLED_MAGIC = rb"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\."
"""`torch.serialization.MAGIC_NUMBER`, 0x1950a86a20f9469cfc6c, as a pickle of its own."""
_UTF_8 = rb"([\t\n\f\r -\x7f]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"
_PART_OF_TORCH = ("a part of a distributed checkpoint of PyTorch", "Name its directory.")

STAND_INS = (
    Mark(
        "an Equinox file: arrays one after another, without names",
        "Load it with the code that made it (`equinox.tree_deserialise_leaves`), and give the tree to "
        "`ckpt_surgery.apply`, which takes trees as checkpoints.",
        name=r".*\.eqx",
        head=rb"\{",  # a line of JSON comes first, as in its documentation
    ),
    Mark(
        "a Git LFS pointer",
        "The file itself was not downloaded: run `git lfs pull` in its repository.",
        head=rb"version https://(git-lfs|hawser)\.github\.com/spec/",
    ),
    Mark(
        "a web page",
        "The download returned a page, of a login or an error, instead of the file: download it again.",
        head=_TEXT_BEGINS + rb"(<!doctype html|<html)",
    ),
    Mark(
        "an error message of a file server",
        "The download was refused; the text in the file says why, so download it again.",
        head=_TEXT_BEGINS + rb"<\?xml[^>]*>\s*<Error",
    ),
)
"""Files found in place of a checkpoint, under the name of a real one."""

FILES = (
    Mark("a PyTorch file saved before 1.6", _RESAVE_TORCH, head=_PICKLED_MAGIC),
    Mark(
        "a TensorFlow Lite model",
        "Take the checkpoint or SavedModel that it was made from.",
        head=rb"TFL3",
        at=4,
    ),
    Mark("a gzip archive", _UNPACK, head=rb"\x1f\x8b"),
    Mark("a zstd archive", _UNPACK, head=rb"\x28\xb5\x2f\xfd"),
    Mark("an xz archive", _UNPACK, head=rb"\xfd7zXZ\0"),
    Mark("a bzip2 archive", _UNPACK, head=rb"BZh"),
    Mark("a 7z archive", _UNPACK, head=rb"7z\xbc\xaf\x27\x1c"),
    Mark(*_PART_OF_TORCH, name=r".*\.distcp"),
    Mark(*_PART_OF_TORCH, head=rb".*torch\.distributed\.checkpoint\.metadata"),
    Mark(
        "a PyTorch file from before 0.1.10, in tar form",
        _RESAVE_TORCH,
        head=rb"(?=.{257}ustar)(\./)?(sys_info|pickle|storages|tensors)\0",
    ),
    Mark("a tar archive", _UNPACK, head=rb"ustar", at=257),
    Mark("a zip archive without arrays of NumPy or PyTorch", _UNPACK, head=rb"PK\x03\x04"),
    Mark(  # beside its index it is recognized as a checkpoint
        "a part of a TensorFlow checkpoint",
        f"The others are missing beside it, the index {STEM}.index first: copy them too.",
        name=r"(.+)\.data-[0-9]{5}-of-[0-9]{5}",
    ),
    Mark(
        "the graph of a TensorFlow checkpoint", f"Name its index, {STEM}.index, instead.", name=r"(.*)\.meta"
    ),
    Mark(
        "an ONNX model",
        "Save its weights with `numpy.savez('new.npz', "
        "**{t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(FILE).graph.initializer})`.",
        name=r".*\.onnx",
        head=rb"\x08",  # field 1, the version, as a varint
    ),
    Mark(
        "a pickle",
        "Pickles run code when they are loaded, so they are not read. Load it where you trust it, and save "
        "its arrays with `numpy.savez`, under names that join their keys with `/`.",
        head=rb"\x80[\x02-\x05].",  # the number of the protocol
        tail=b".",  # STOP
    ),
    Mark("an empty file", "Check that the save or the copy is complete.", head=rb"\Z"),
    Mark(
        "a text file",
        "Name the checkpoint itself. A recipe comes before the checkpoints; a listing of shapes is a "
        "target, `target=PATH`.",
        head=_UTF_8 + rb"*([\xc2-\xf4][\x80-\xbf]{0,2})?\Z",  # the head may end within a character
    ),
)

DIRECTORIES = (
    Mark(
        "a DeepSpeed checkpoint",
        "Make one of its parts with the script beside it: "
        "`python zero_to_fp32.py DIR OUT --safe_serialization`.",
        name=r"zero_to_fp32\.py|((bf16_)?zero_pp_rank_\d+_mp_rank_\d+_optim|mp_rank_\d+_model)_states\.pt",
    ),
    Mark(
        "a Megatron-LM checkpoint",
        "Convert it with Megatron-LM's own `tools/checkpoint/convert.py`, to Hugging Face's layout, say. "
        "If a directory `iter_…` in it has a file .metadata, name that directory instead.",
        name=r"mp_rank_\d\d(_\d{3})*/|latest_checkpointed_iteration\.txt",
    ),
    Mark(
        "a repository in Hugging Face's cache",
        "Name one of the directories in `snapshots`.",
        name=r"blobs/\n(.*\n)*snapshots/",
    ),
)

WITHOUT_ARRAYS = (
    Mark("an empty directory", "Check the path, and that the save or the copy is complete.", name=r"\Z"),
    Mark(
        "the directory of a model without its weights",
        "Only its configuration was downloaded or copied: get the weights too.",
        name=r"config\.json",
    ),
)


def recognized(path: str) -> Mark | None:
    """Mark of a path that no format reads; None if it is not recognized."""
    if is_directory(path):
        return stand_in(path) or _match_names(DIRECTORIES, path)
    return _match_file((*STAND_INS, *FILES), path)


def stand_in(path: str) -> Mark | None:
    """Recognize what only has a checkpoint's name: pointers of Git LFS, web pages, models without values."""
    if not is_directory(path):
        return _match_file(STAND_INS, path)
    files = _listed(path).files
    for name in files[:MOST_FILES]:
        if other := _match_file(STAND_INS, os.path.join(path, name)):
            return Mark(f"a directory with {other.what} in place of {shown(name)}", other.hint)
    if not {"saved_model.pb", "saved_model.pbtxt"} & set(files):
        return None
    if any(name.endswith(".index") for name in _listed(os.path.join(path, "variables")).files):
        return None
    return Mark(
        "a TensorFlow SavedModel without its variables",
        "Its directory `variables` is missing or empty: take another copy, or the checkpoint itself.",
    )


def without_arrays(path: str) -> Mark | None:
    """Describe a directory without a checkpoint: empty, for example, or steps without arrays."""
    if not is_directory(path):
        return None
    if (other := _match_names(WITHOUT_ARRAYS, path)) is not None:
        return other
    names = _listed(path)
    steps = [n for n in sorted((*names.files, *names.directories)) if re.fullmatch(r"(.*[_-])?[0-9]+", n)]
    what = f"a directory of steps ({few(steps)}) without arrays in them"
    hint = "Check that the saves were finished, and that the copy is complete."
    return Mark(what, hint) if steps else None


def _match_file(marks: Sequence[Mark], path: str) -> Mark | None:
    """The first mark of a file; None also where it is not a regular file or cannot be read."""
    try:
        with opened(path) as file:
            size = file.stat.size
            head = file.read(0, min(HEAD_BYTES, size))
            tail = file.read(max(0, size - 1), min(1, size))
    except (SourceError, StorageError):
        return None
    base = os.path.basename(path)
    for mark in marks:
        name = re.fullmatch(mark.name, base, re.DOTALL)
        if name and re.match(mark.head, head[mark.at :], re.DOTALL) and tail.endswith(mark.tail):
            return replace(mark, hint=mark.hint.replace(STEM, shown(name[1]) if name.re.groups else ""))
    return None


def _match_names(marks: Sequence[Mark], path: str) -> Mark | None:
    """The first mark of a directory by the names in it, one a line."""
    names = _listed(path)
    text = "\n".join(sorted([*names.files, *(f"{name}/" for name in names.directories)]))
    matching = (mark for mark in marks if re.search(rf"^({mark.name})$", text, re.MULTILINE))
    return next(matching, None)


def _listed(path: str) -> DirectoryNames:
    """The names in a directory; none where it cannot be listed."""
    try:
        return directory_names(path)
    except (SourceError, StorageError):
        return DirectoryNames((), ())
