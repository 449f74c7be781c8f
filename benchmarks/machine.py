"""Describes the machine of a measurement: cores, memory, versions, file system."""

import fcntl
import os
import platform
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("ckpt-surgery", "orbax-checkpoint", "tensorstore", "jax", "flax", "numpy", "safetensors")
FICLONE = 0x40049409
"""Number of the request in `linux/fs.h`."""


@dataclass(frozen=True)
class Setting:
    """When, where and by which command something was measured."""

    date: str
    """Day and time, UTC, as `2026-11-26 09:30`."""
    machine: str
    load: float
    """Processes that wanted to run in the minute before."""
    cores: int
    command: str


def machine(scratch: Path) -> str:
    """One sentence, without the machine's name."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    reflinks = "with reflinks" if can_reflink(scratch) else "without reflinks"
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB; {file_system(scratch)} {reflinks}; "
        f"{platform.system()}, Python {platform.python_version()}; {libraries}"
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def file_system(path: Path, mounts: str = "/proc/self/mounts") -> str:
    """The type of the file system that holds a path."""
    found = [line.split()[1:3] for line in Path(mounts).read_text().splitlines()]
    holding = [(Path(point), kind) for point, kind in found if path.resolve().is_relative_to(point)]
    return max(holding, key=lambda mount: len(mount[0].parts))[1]


def can_reflink(directory: Path) -> bool:
    """Whether files can share their blocks there."""
    with tempfile.TemporaryFile(dir=directory) as one, tempfile.TemporaryFile(dir=directory) as other:
        one.write(b"x")
        one.flush()
        try:
            fcntl.ioctl(other.fileno(), FICLONE, one.fileno())
        except OSError:
            return False
    return True


def disk_use(directory: Path) -> int:
    """Bytes on the disk of everything below; a file with several names counts once."""
    paths = [Path(parent) / name for parent, _, names in os.walk(directory) for name in names]
    stats = {(s.st_dev, s.st_ino): s.st_blocks * 512 for s in (path.lstat() for path in paths)}
    return sum(stats.values())
