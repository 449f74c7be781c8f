"""Checksums of arrays and bytes."""

import google_crc32c
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core import digests
from ckpt_surgery.core.digests import bytes_crc, values_crc


def test_the_checksum_is_that_of_rfc_3720() -> None:
    """Appendix B.4: 32 bytes of zeros, of ones, and counting up."""
    assert bytes_crc(bytes(32)) == 0x8A9136AA
    assert bytes_crc(b"\xff" * 32) == 0x62A8AB43
    assert bytes_crc(bytes(range(32))) == 0x46DD794E


@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
def test_parts_one_after_another(data: bytes, cut: int) -> None:
    whole = google_crc32c.value(data)
    assert bytes_crc(data[cut:], bytes_crc(data[:cut])) == whole
    assert bytes_crc(memoryview(bytearray(data))) == whole


@pytest.mark.parametrize("dtype", ["bool", "int4", "uint16", "bfloat16", "float8_e4m3fn", "complex128"])
def test_elements_count_in_c_order(dtype: str) -> None:
    array = np.arange(60).reshape(3, 4, 5).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    for view in (array, array.T, array[::2, ::-1], array[:, 1, 2:3], array[1, 2, 3], array[:0]):
        assert values_crc(view) == google_crc32c.value(view.tobytes())
        assert values_crc(view, 7) == google_crc32c.extend(7, view.tobytes())


def test_what_is_not_contiguous_is_gathered_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).integers(0, 256, (40, 30), np.uint8)
    for most in (1, 29, 30, 31, 95, 5000):
        monkeypatch.setattr(digests, "PIECE", most)
        assert values_crc(array.T) == google_crc32c.value(array.T.tobytes())
