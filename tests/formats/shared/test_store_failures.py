"""The system's errors, as TensorStore words them."""

import errno
import os

import pytest

from ckpt_surgery.formats.shared.store_failures import system_error

DENIED = (
    'PERMISSION_DENIED: Error opening "zarr3" driver: Error reading "k/zarr.json" in OCDBT database at local '
    'file "/x/": Error reading local file "/x/manifest.ocdbt": Failed to open: "/x/manifest.ocdbt": '
    'Permission denied [tensorstore_spec=\'{"driver":"zarr3","path":"/other"}\'] [os_error_code=\'13\']'
)


@pytest.mark.parametrize(
    ("text", "number", "file"),
    [
        (DENIED, errno.EACCES, "/x/manifest.ocdbt"),
        (
            'OUT_OF_RANGE: Failed writing: "/d/0.__lock": Failed to write 39 bytes: File too large '
            "[os_error_code='27']",
            errno.EFBIG,
            "/d/0",
        ),
        (
            "RESOURCE_EXHAUSTED: Write: No space left on device [OS error 28: ENOSPC No space left]",
            errno.ENOSPC,
            None,
        ),
    ],
)
def test_number_and_file(text: str, number: int, file: str | None) -> None:
    found = system_error(ValueError(text))
    assert found is not None
    assert (found.errno, found.strerror, found.filename) == (number, os.strerror(number), file)


def test_errors_that_are_not_the_systems() -> None:
    assert system_error(ValueError("DATA_LOSS: Error decoding chunk [source locations='a.cc:28']")) is None
    itself = PermissionError(errno.EACCES, "no", "/x")
    assert system_error(itself) is itself
