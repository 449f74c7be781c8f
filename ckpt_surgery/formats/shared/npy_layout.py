"""What NumPy's `.npy` files are called, and how they begin."""

MAGIC = b"\x93NUMPY"
"""The first bytes of every file."""
NPY_SUFFIX = ".npy"
