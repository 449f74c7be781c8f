"""System calls that can be made to fail: their kinds, their numbers, and the errors that they fail with."""

import errno
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

KILL = -1
"""In place of an error: the process is killed before the call."""

ERRORS: Mapping[str, Sequence[int]] = {
    "open": (errno.EACCES, errno.EMFILE, errno.EROFS, errno.ENOSPC, errno.EIO),
    "read": (errno.EIO,),
    "write": (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG),
    "sync": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EIO, errno.EACCES, errno.EROFS, errno.ENOSPC),
    "link": (errno.ENOSPC, errno.EPERM, errno.EIO, errno.EMLINK, errno.EXDEV),
    "mkdir": (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EMLINK),
    "remove": (errno.EIO, errno.EACCES, errno.EROFS),
}
"""The kinds of calls, and what the system says when one of them fails. They take turns."""


@dataclass(frozen=True)
class Call:
    """A system call of Linux."""

    name: str
    kind: str
    x86_64: int | None
    aarch64: int | None
    path: int | None = None
    """Which argument is the path; None where the first one is a descriptor."""
    folder: int | None = None
    """Which argument is the descriptor of the directory that the path is relative to."""
    file: int = 0
    """Which argument is the descriptor of the file that is written."""


CALLS = (
    Call("open", "open", 2, None, path=0),
    Call("openat", "open", 257, 56, path=1, folder=0),
    Call("creat", "open", 85, None, path=0),
    Call("openat2", "open", 437, 437, path=1, folder=0),
    Call("read", "read", 0, 63),
    Call("pread64", "read", 17, 67),
    Call("readv", "read", 19, 65),
    Call("preadv", "read", 295, 69),
    Call("preadv2", "read", 327, 286),
    Call("write", "write", 1, 64),
    Call("pwrite64", "write", 18, 68),
    Call("writev", "write", 20, 66),
    Call("pwritev", "write", 296, 70),
    Call("pwritev2", "write", 328, 287),
    Call("ftruncate", "write", 77, 46),
    Call("fallocate", "write", 285, 47),
    Call("sendfile", "write", 40, 71),
    Call("copy_file_range", "write", 326, 285, file=2),
    Call("fsync", "sync", 74, 82),
    Call("fdatasync", "sync", 75, 83),
    Call("rename", "rename", 82, None, path=1),
    Call("renameat", "rename", 264, 38, path=3, folder=2),
    Call("renameat2", "rename", 316, 276, path=3, folder=2),
    Call("link", "link", 86, None, path=1),
    Call("linkat", "link", 265, 37, path=3, folder=2),
    Call("symlink", "link", 88, None, path=1),
    Call("symlinkat", "link", 266, 36, path=2, folder=1),
    Call("ioctl", "link", 16, 29),
    Call("mkdir", "mkdir", 83, None, path=0),
    Call("mkdirat", "mkdir", 258, 34, path=1, folder=0),
    Call("unlink", "remove", 87, None, path=0),
    Call("unlinkat", "remove", 263, 35, path=1, folder=0),
    Call("rmdir", "remove", 84, None, path=0),
)

FICLONE = 0x40049409
"""The request of ioctl(2) that counts as a link."""


def numbers() -> dict[int, Call]:
    """The calls by their numbers on this machine; empty where the numbers are not known."""
    machine = platform.machine()
    if machine not in ("x86_64", "aarch64"):
        return {}
    return {number: call for call in CALLS if (number := getattr(call, machine)) is not None}


@dataclass(frozen=True)
class Fault:
    """From one call of a run on, something goes wrong."""

    kind: str = ""
    """The kind of calls that are counted; empty for all kinds but `read`."""
    number: int = 0
    """Which call of that kind is hit, from 1; 0 for none, so that calls are only counted."""
    error: int = KILL
    """What it fails with."""
    lasting: bool = False
    """Whether all later calls of that kind fail too, as on a full disk."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Counter:
    """Counts the calls of one run inside one directory, and decides which are hit."""

    fault: Fault
    directory: str
    """Absolute path, without a slash at the end. Calls elsewhere are not counted."""
    counted: dict[str, int] = field(default_factory=dict)
    """How many calls there were of each kind."""
    hit: str = ""
    """The call that was hit, as a person reads it."""

    def decide(self, kind: str, name: str, path: str) -> int:
        """The error that the call fails with; 0 if it is carried out; KILL if the process ends."""
        if path != self.directory and not path.startswith(f"{self.directory}/"):
            return 0
        self.counted[kind] = self.counted.get(kind, 0) + 1
        fault = self.fault
        if fault.kind:
            reached = self.counted[kind] if kind == fault.kind else 0
        else:
            reached = 0 if kind == "read" else self.writes()
        if not fault.number or reached < fault.number or (reached > fault.number and not fault.lasting):
            return 0
        self.hit = self.hit or f"{name} {path}"
        return fault.error

    def writes(self) -> int:
        """How many calls there were that are not reads."""
        return sum(count for kind, count in self.counted.items() if kind != "read")
