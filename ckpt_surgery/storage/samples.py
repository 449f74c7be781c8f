"""Samples: a checksum of a few blocks of a file, by which other contents of the same size show in O(1).

The sample of a file is the CRC-32C of its first and last 64 KiB and of 8 blocks of 4 KiB between them, in
the order of their offsets; of a file of at most 160 KiB, that of all its bytes. A change elsewhere is not
seen: only digests of everything tell.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.file_states import FileState
from ckpt_surgery.storage.listing import exists, relative
from ckpt_surgery.storage.reading import opened, stat_file
from ckpt_surgery.storage.record_files import RECORD_NAME

EDGE, BLOCK, BLOCKS = 64 << 10, 4 << 10, 8
THREADS = 8
"""Files that are sampled at the same time: where storage is slow, most of the time goes into waiting."""
TOGETHER = 256
"""Files that one thread samples before it takes others."""


def ranges(size: int) -> Sequence[tuple[int, int]]:
    """Offsets and lengths of the blocks that make up the sample of a file of `size` bytes, ascending."""
    middle = size - 2 * EDGE
    if middle <= BLOCKS * BLOCK:
        return ((0, size),)
    starts = (EDGE + (2 * i + 1) * middle // (2 * BLOCKS) - BLOCK // 2 for i in range(BLOCKS))
    return ((0, EDGE), *((start, BLOCK) for start in starts), (size - EDGE, EDGE))


def state_of(path: str, of_objects: bool = False) -> FileState:
    """The state of a file or object. `of_objects`: objects are sampled, too."""
    with opened(path) as file:
        stat, sample = file.stat, None
        if of_objects or not stat.version:
            sample = 0
            for offset, length in ranges(stat.size):
                sample = bytes_crc(file.read(offset, length), sample)
    return FileState(stat.size, stat.modified, stat.version, sample)


def states(files: Iterable[str]) -> Mapping[str, FileState]:
    """The state of each of these files that exists, by its path within the checkpoint.

    Records of ckpt-surgery are left out: they are no part of the contents. Objects of a store are not
    sampled, since their versions tell, nor are files that may not be read, since they hold no data of a run.
    """
    paths = [path for path in files if not path.endswith(f"/{RECORD_NAME}")]

    def state(path: str) -> FileState:
        try:
            return state_of(path)
        except StorageError:
            return _unsampled(path)  # raises where it is no file any more

    def some(batch: Sequence[str]) -> Mapping[str, FileState]:
        return {path: state(path) for path in batch if exists(path)}

    with ThreadPoolExecutor(THREADS) as pool:
        batches = pool.map(some, (paths[at : at + TOGETHER] for at in range(0, len(paths), TOGETHER)))
        return relative({path: state for batch in batches for path, state in batch.items()})


def states_by_path(files: Iterable[str]) -> dict[str, FileState]:
    """The same by path, with size, and time or version alone: reads nothing of the files."""
    paths = (path for path in files if not path.endswith(f"/{RECORD_NAME}"))
    return {path: _unsampled(path) for path in paths if exists(path)}


def _unsampled(path: str) -> FileState:
    stat = stat_file(path)
    return FileState(stat.size, stat.modified, stat.version)
