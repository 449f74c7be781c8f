"""Names and headers of NumPy's `.npy` files."""

MAGIC = b"\x93NUMPY"
"""The first bytes of every file."""
NPY_SUFFIX = ".npy"
