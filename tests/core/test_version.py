"""The version that saved plans name is that of the package."""

import re
from importlib.metadata import version

from ckpt_surgery.core.version import VERSION


def test_the_version_is_that_of_the_installed_package() -> None:
    assert version("ckpt-surgery") == VERSION


def test_the_version_is_written_as_releases_are() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
