"""TensorFlow's checkpoints: tensor bundles, of `tf.train.Checkpoint` and `tf.compat.v1.train.Saver`.

A bundle is a prefix of file names, which a directory's file `checkpoint` may give: a CheckpointState in
Protocol Buffers' text form, one field per line. Format: tensorflow/tensorflow,
python/checkpoint/checkpoint_management.py.
"""

import os
import re
from collections.abc import Sequence

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.registry import Format, Selection, claims
from ckpt_surgery.formats.shared.steps import ChosenFile, check_no_choice, choose_step
from ckpt_surgery.storage import listing
from ckpt_surgery.storage.failures import damaged, with_path
from ckpt_surgery.storage.listing import exists
from ckpt_surgery.storage.reading import OpenFile, opened, read_file

SUFFIX = ".index"
GRAPH_SUFFIX = ".meta"
"""Suffix of the graph that `tf.compat.v1.train.Saver` writes beside the variables."""
FOOTER_BYTES = 48
MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
STATE = "checkpoint"
VARIABLES = os.path.join("variables", "variables")
"""The prefix of the variables in a SavedModel's directory."""
_DATA = re.compile(r"\.data-\d{5}-of-\d{5}\Z")
_STEP = re.compile(r"-(\d{1,18})\Z")
_LATEST, _ALL = "model_checkpoint_path", "all_model_checkpoint_paths"
_TEXT = re.compile(rb'\s*(\w+)\s*:\s*"((?:[^"\\]|\\[\\"\'abfnrtvx0-7])*)"\s*\Z')
_NUMBER = re.compile(rb"\s*(\w+)\s*:\s*[-+.\w]+\s*\Z")


def detect(path: str) -> bool:
    """Whether a path is a bundle's prefix or file, or a directory with some; damaged or of version 1, too."""
    if listing.is_directory(path):
        names = listing.names_in(path)
        if STATE in names and claims(_is_state, os.path.join(path, STATE)):
            return True
        if "saved_model.pb" in names or listing.is_file(os.path.join(path, VARIABLES + SUFFIX)):
            return True
        return any(_is_index(path, name, names) for name in names)
    if not exists(path):
        return listing.is_file(path + SUFFIX)
    directory, name = os.path.split(path)
    if match := _DATA.search(name):
        return exists(os.path.join(directory, f"{name[: match.start()]}{SUFFIX}"))
    siblings = listing.names_in(directory or ".") if name.endswith(SUFFIX) else ()
    return _is_index(directory, name, siblings) or _ends_as_table(path)


def _is_index(directory: str, name: str, siblings: Sequence[str]) -> bool:
    """Whether a file is an index: a table, or a damaged one with data files beside it."""
    if not name.endswith(SUFFIX):
        return False
    data = name.removesuffix(SUFFIX) + ".data-"
    if any(sibling.startswith(data) and _DATA.search(sibling) for sibling in siblings):
        return True
    return claims(_ends_as_table, os.path.join(directory, name))  # a link may lead nowhere


def is_table(file: OpenFile) -> bool:
    """Whether a file ends as LevelDB's tables do."""
    size = file.stat.size
    return size >= FOOTER_BYTES and file.read(size - len(MAGIC), len(MAGIC)) == MAGIC


def _ends_as_table(path: str) -> bool:
    with opened(path) as file:
        return is_table(file)


def _is_state(path: str) -> bool:
    """Whether a file is a CheckpointState; T5X has a file of the same name, in MessagePack."""
    with opened(path) as file:
        head = file.read(0, min(1024, file.stat.size))
    return head.lstrip().startswith(_LATEST.encode()) or _ALL.encode() + b":" in head


def locate(path: str, selection: Selection) -> ChosenFile:
    """The bundle that `path` and a step choose, by the prefix of its names; only directories have steps."""
    if not listing.is_directory(path):
        check_no_choice(path, selection.step)
        directory, name = os.path.split(path)
        return ChosenFile(directory, _DATA.sub("", name).removesuffix(SUFFIX))
    names = listing.names_in(path)
    named = _named_in(path) if STATE in names else []
    prefixes = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    if selection.step is not None:  # a prefix that the state names, where it names one, else any that exists
        known = [prefix for prefix in named if listing.has_entry(os.path.join(path, prefix + SUFFIX))]
        steps = {p: int(match[1]) for p in dict.fromkeys([*known, *prefixes]) if (match := _STEP.search(p))}
        preferred = {p: steps[p] for p in known if steps.get(p) == selection.step}
        prefix = choose_step(path, preferred or steps, selection.step)
    elif named:
        prefix = named[-1]
    elif not prefixes and listing.is_directory(os.path.join(path, os.path.dirname(VARIABLES))):
        prefix = VARIABLES
    elif len(prefixes) == 1:
        prefix = prefixes[0]
    elif not prefixes:
        raise damaged(f"{shown(path)} holds no TensorFlow checkpoint")
    else:
        what = f"{shown(path)} holds {len(prefixes)} TensorFlow checkpoints, and no file `{STATE}` says which"
        hint = "Name the one that is meant, or its step: `step=N`."
        raise SourceError(f"{what} is the latest: {few(prefixes, 5)}", hint=hint)
    match = _STEP.search(prefix)
    listing.check_link(os.path.join(path, prefix + SUFFIX), listing.real_path(path))
    return ChosenFile(path, prefix, int(match[1]) if match else None)


def _named_in(directory: str) -> list[str]:
    """The checkpoints that the file `checkpoint` names, as prefixes in the directory, the latest last."""
    path = os.path.join(directory, STATE)
    listing.check_link(path, listing.real_path(directory))
    text = read_file(path, 2**20)
    named: dict[str, list[str]] = {_ALL: [], _LATEST: []}
    with with_path(path):
        for line in filter(bytes.strip, text.split(b"\n")):
            match = _TEXT.match(line)
            if match is None and _NUMBER.match(line) is None:  # numbers are times
                raise damaged(f"its line {line[:100]!r} does not belong to a checkpoint's state")
            if match is not None and match[1].decode() in named:
                named[match[1].decode()].append(_within(directory, match[2]))
        if not named[_LATEST]:
            raise damaged(f"it does not name `{_LATEST}`")
    return [*named[_ALL], named[_LATEST][-1]]


def _within(directory: str, escaped: bytes) -> str:
    """The name that a state has for a checkpoint, as a prefix in the directory.

    If a path leads elsewhere, such as to the place where the checkpoint was written, only its last component
    counts: a checkpoint's own files never lead out of its directory.
    """
    try:
        given = os.fsdecode(escaped.decode("unicode_escape").encode("latin-1"))
    except ValueError:
        given = ""
    prefix = given.removeprefix(listing.real_path(directory) + os.sep)
    if os.path.isabs(prefix) or "://" in prefix or ".." in prefix.split("/"):
        prefix = os.path.basename(prefix)
    if not prefix or "\0" in prefix or prefix.endswith(("/", "..")):
        raise damaged(f"it names the checkpoint {escaped[:100]!r}")
    return prefix


FORMAT = Format(
    name="tensorflow",
    detect=detect,
    module=__name__,
    choices=("step",),
    holds_empty=False,
    holds_lists=False,
)
