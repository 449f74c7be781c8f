"""Versions, variables, cores and memory: the output of `env`, for bug reports."""

import os
import platform
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from ckpt_surgery.core.documents import Versioned
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.system.resources import available_memory, total_memory, usable_cores

PACKAGES = (
    *("click", "google-crc32c", "ml_dtypes", "msgpack", "msgspec", "numpy", "pydantic", "PyYAML", "regex"),
    *("rich", "tensorstore", "zstandard", "jax", "jaxlib", "orbax-checkpoint", "flax", "obstore", "h5py"),
    *("gguf", "dask", "distributed", "torch", "safetensors", "transformers"),
)
"""Libraries that this package imports, and others that write or read users' checkpoints."""
OWN = "CKPT_SURGERY_"
"""Prefix of the variables that stand in for options."""
SHOWN = (
    *("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "LANG", "LC_ALL", "PYTHONIOENCODING", "TMPDIR"),
    *("OMP_NUM_THREADS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "XLA_FLAGS", "HTTP_PROXY", "HTTPS_PROXY"),
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "STORAGE_EMULATOR_HOST"),
    *("GITHUB_ACTIONS", "SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST"),
)
"""Variables whose values change what is done or printed."""
SECRET = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS")
"""Secret variables: a report says only that they are set."""
IS_SET = "(set)"
UNKNOWN = "(no option has this variable)"

_USER = re.compile(r"(?:(?<=//)|^(?!\S*//))\S*@")
"""User and password in a URL."""
_QUERY = re.compile(r"\?\S*")
"""The query of a URL, which can hold a signature."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentDocument(Versioned):
    """`env`."""

    ckpt_surgery: str
    """Version of ckpt-surgery."""
    location: str
    """Directory of the package."""
    python: str
    """Version, implementation and path of Python."""
    platform: str
    """System, release, architecture and C library."""
    cores: int
    """Cores of the machine."""
    usable_cores: int
    """Cores that the process may use."""
    memory: int
    """Memory of the machine."""
    available_memory: int
    """Memory available without swapping."""
    packages: Mapping[str, str | None]
    """Versions of libraries by name; null where one is not installed."""
    variables: Mapping[str, str]
    """Environment variables that change what is done, without passwords."""


def describe_environment(options: Collection[str] = ()) -> EnvironmentDocument:
    """Collect the versions, variables, cores and memory of this process. Imports none of the libraries.

    `options`: the names of the variables that stand in for options.
    """
    return EnvironmentDocument(
        ckpt_surgery=VERSION,
        location=os.path.dirname(os.path.abspath(__file__)),
        python=f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})",
        platform=platform.platform(),
        cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        memory=total_memory(),
        available_memory=available_memory(),
        packages={name: _version(name) for name in PACKAGES},
        variables=reported_variables(os.environ, options),
    )


def reported_variables(environ: Mapping[str, str], options: Collection[str]) -> dict[str, str]:
    """The variables that a report shows, without passwords in URLs, and likely misspellings of options."""
    shown = {name: environ[name] for name in (*options, *SHOWN) if name in environ}
    values = {name: _QUERY.sub("?…", _USER.sub("…@", value)) for name, value in shown.items()}
    misspelt = sorted(name for name in environ if name.startswith(OWN) and name not in options)
    secrets = dict.fromkeys((name for name in SECRET if name in environ), IS_SET)
    return {**values, **secrets, **dict.fromkeys(misspelt, UNKNOWN)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
