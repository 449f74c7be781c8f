"""A real browser without a window, where one is installed."""

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000", "--hide-scrollbars"),
)


def browse(page: Path, profile: Path, *options: str, fragment: str = "") -> subprocess.CompletedProcess[str]:
    """Open a page in a new profile, with no network; what the browser prints."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", *options, f"{page.as_uri()}{fragment}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)


def dom_of(page: Path, profile: Path, *, fragment: str = "") -> str:
    """The document after its scripts have run."""
    return browse(page, profile, "--dump-dom", "--enable-logging=stderr", fragment=fragment).stdout


def texts(dom: str, kind: str) -> list[str]:
    """The texts of the elements without children of a class, in their order."""
    found = re.findall(rf'<\w+[^>]*class="{kind}"[^>]*>([^<]*)<', dom)
    return [html.unescape(text) for text in found]
