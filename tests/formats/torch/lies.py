"""PyTorch files that are not what they say."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.formats.torch.pickles import (
    ORDERED,
    V2,
    V3,
    Call,
    Name,
    Persistent,
    Raw,
    archive,
    code,
    document,
    storage,
    view,
)
from tests.support.conformance import Lie


def lie(reason: str, says: str, value: Any, members: Mapping[str, bytes] | None = None) -> Lie:
    """`value`: what is pickled; bytes are the whole pickle."""
    pickled = value if isinstance(value, bytes) else document(value)
    return Lie(reason, lambda directory: archive(directory / "saved.pt", pickled, members), says)


def viewed(reason: str, says: str, *arguments: Any, **more: Any) -> Lie:
    """A tensor `w` with these arguments of `view`."""
    return lie(reason, says, {"w": view(*arguments, **more)})


def stored(reason: str, says: str, *arguments: Any, **more: Any) -> Lie:
    """A tensor `w` in a storage with these arguments."""
    return viewed(reason, says, (2,), (1,), 0, storage(*arguments, **more))


def file_lie(reason: str, says: str, write: Callable[[Path], object]) -> Lie:
    def make(directory: Path) -> Path:
        write(directory / "saved.pt")
        return directory / "saved.pt"

    return Lie(reason, make, says)


def twice(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", document({}))
        file.writestr("b/data.pkl", document({}))


def flipped(path: Path) -> None:
    """One bit of a tensor's shape."""
    data = archive(path, document({"w": view((4,), (1,))})).read_bytes()
    where = data.index(code((4,)))
    path.write_bytes(data[:where] + code((5,)) + data[where + len(code((4,))) :])


def old(path: Path) -> None:
    torch.save({"a": torch.ones(2)}, path, _use_new_zipfile_serialization=False)


def arrays(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, a=np.ones(2))


def deflated_storage(path: Path) -> None:
    """A storage of nothing but zeros, in fewer bytes."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("saved/data.pkl", document({"w": view((4096,), (1,), 0, storage(length=4096))}))
        file.writestr("saved/data/0", bytes(4096), zipfile.ZIP_DEFLATED)


LAUGHS = (
    b"\x80\x02]" + b"q\0" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(40)) + b"."
)  # each list holds the one before it twice
UNTYPED = Call(V3, (storage(), 0, (2,), (1,), False, ORDERED, "uint8"))
NO_PARAMETER = Call(Name("torch._utils", "_rebuild_parameter"), (None, True, ORDERED))
TENSOR_LIES = (
    stored("a storage that is missing", "`w`: is in `saved/data/1`, which is missing", key="1"),
    stored("a storage longer than its file", "8 bytes in place of 1099511627776", length=2**40),
    stored("a storage of another width", "8 bytes in place of 32", "FloatStorage"),
    stored("a storage of negative length", "not described", length=-8),
    lie("a storage of no type", "not described", {"w": Persistent(("storage", "torch", "0", "cpu", 8))}),
    lie("something else that is persistent", "not described", {"w": Persistent(("module", 1, 2, 3, 4))}),
    lie("a storage by its text alone", "PERSID", {"w": Raw(b"Pstorage\n")}),
    viewed("a shape beyond the storage", "`w`: is uint8.9. from element 0 on, 9 elements", (9,), (1,)),
    viewed("an offset beyond the storage", "from element 7 on", (2,), (1,), 7),
    viewed("a shape of a terabyte", "in a storage of 8 bytes", (2**40,), (1,)),
    viewed("a shape beyond all memory", "beyond all memory", (2**40, 2**40), (0, 0)),
    viewed("a negative axis", "do not fit", (-2,), (1,)),
    viewed("an axis that is a truth", "do not fit", (True,), (1,)),
    viewed("more strides than axes", "do not fit", (2,), (1, 1)),
    viewed("too many axes", "`w`: it has 40 axes; 32", (1,) * 40, (1,) * 40),
    viewed("a tensor of no storage", "do not fit", (2,), (1,), 0, "0"),
    stored("an untyped storage", "do not fit", "UntypedStorage", module="torch.storage"),
    lie("too few arguments", "do not fit", {"w": Call(V2, (storage(), 0))}),
    lie("version 3 without a type", "do not fit", {"w": UNTYPED}),
    viewed("what is pending is a text", "do not fit", (2,), (1,), rest=(False, ORDERED, "conj")),
    lie("a parameter of nothing", "do not fit", {"w": NO_PARAMETER}),
    lie("a size that is text", "do not fit", {"w": Call(Name("torch", "Size"), ("ab",))}),
    lie(
        "booleans of the byte 2",
        "`w`: one of its booleans has the byte 2",
        {"w": view((8,), (1,), 0, storage("BoolStorage"))},
        {"data/0": bytes([0, 1, 2] + [0] * 5)},
    ),
)
PICKLE_LIES = (
    lie("a pickle of nothing", "not a valid pickle", b""),
    lie("a pickle of a stop", "more values than there are", b"."),
    lie("another pickle behind the first", "5 bytes follow its end", b"\x80\x02}.\x80\x02K\x01."),
    lie("text longer than the file", "not a valid", b"\x80\x04\x8d" + (2**62).to_bytes(8, "little") + b"x."),
    lie("an integer of negative length", "not a valid pickle", b"\x80\x02\x8b\xff\xff\xff\xffx."),
    lie("a number of a million digits", "not a valid pickle", b"L" + b"9" * 1_000_000 + b"L\n."),
    lie("an integer of 65 bits", "`n`: is an integer of 65 bits", {"n": 2**64}),
    lie("nothing was remembered", "remembered as number 7", b"\x80\x02h\x07."),
    lie("no mark", "wants a mark", b"\x80\x02K\x01t."),
    lie("an append to a text", "wants a list and finds a value of", {"w": Raw(code("x") + b"K\x01a")}),
    lie("a key without a value", "key without a value", b"\x80\x02}(K\x01u."),
    lie("a key that is a tuple", "type tuple for a key", {(1, 2): 3}),
    lie("a dictionary that holds itself", "nested more than 64 deep", b"\x80\x02}q\0X\x01\0\0\0ah\0s."),
    lie("a list of two to the fortieth", "more than .* leaves", LAUGHS),
    lie("a megabyte before twenty thousand names", "keys are longer", {"x" * 2**20: [None] * 20_000}),
    lie("a name that is no Unicode", "surrogate", {"\ud800": 1}),
    lie("one name twice", "`1`: two leaves have this key", {1: 2, "1": 3}),
    lie("an ordered dictionary made of something", "with arguments", {"w": Call(ORDERED.function, ([],))}),
    lie("attributes of a tensor", "of a value of type Tensor", Raw(code(view((2,), (1,))) + b"}b")),
    lie("attributes that are no dictionary", "by a value of type tuple", Raw(code(ORDERED) + b"N}\x86b")),
)
FILE_LIES = (
    file_lie("an empty file", "empty file", lambda path: path.write_bytes(b"")),
    file_lie("a file from before 1.6", "looks like a PyTorch file saved before 1.6: .*\n.*torch.save", old),
    file_lie("bytes of no kind", "no end of a zip archive", lambda path: path.write_bytes(b"\xff" * 99)),
    file_lie("arrays of NumPy", "holds 0 files data.pkl", arrays),
    file_lie("two pickles", "holds 2 files data.pkl", twice),
    lie("a program", "it is TorchScript", {}, {"constants.pkl": document(())}),
    file_lie("a pickle that was changed", "CRC-32", flipped),
    file_lie("a compressed storage", "`w`: `saved/data/0` is compressed", deflated_storage),
    file_lie(
        "compressed members",
        "is compressed",
        lambda path: archive(path, document({"a": [1] * 100}), compression=zipfile.ZIP_DEFLATED),
    ),
    lie("big endian", "byte order is big", {}, {"byteorder": b"big"}),
    lie("a byte order of many words", "17 bytes; 16 is the limit", {}, {"byteorder": b"l" * 17}),
)
