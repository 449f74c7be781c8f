"""What a report of a bug says about the machine."""

import json
import os
import platform
from importlib.metadata import version

import pytest

from ckpt_surgery.api.environment import PACKAGES, describe_environment, reported_variables
from ckpt_surgery.cli.parameters.command import VARIABLES
from tests.support.command_line import run


def test_versions_and_sizes() -> None:
    found = describe_environment()
    assert found.packages["numpy"] == version("numpy")
    assert found.python.startswith(platform.python_version())
    assert 1 <= found.usable_cores <= found.cores == os.cpu_count()
    assert 0 < found.available_memory <= found.memory
    assert os.path.isfile(os.path.join(found.location, "environment.py"))


def test_a_package_that_is_missing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt_surgery.api.environment.PACKAGES", (*PACKAGES, "no-such-package-anywhere"))
    assert describe_environment().packages["no-such-package-anywhere"] is None
    assert "no-such-package-anywhere  not installed" in run("env").stdout


def test_no_secret_is_shown() -> None:
    environ = {
        "AWS_SECRET_ACCESS_KEY": "hidden1",
        "AWS_ENDPOINT_URL": "https://me:hid/d@en2@store:9000/a?X-Amz-Signature=hidden3",
        "HTTPS_PROXY": "me:hidden4@proxy:3128",
        "CKPT_SURGERY_SCHEDULER": "tls://me:hidden5@head:8786",
        "CKPT_SURGERY_TOKEN": "hidden6",
        "MY_PASSWORD": "hidden7",
        "CKPT_SURGERY_MEMORY": "8GiB",
    }
    shown = reported_variables(environ, tuple(VARIABLES.values()))
    assert shown == {
        "AWS_SECRET_ACCESS_KEY": "(set)",
        "AWS_ENDPOINT_URL": "https://…@store:9000/a?…",
        "HTTPS_PROXY": "…@proxy:3128",
        "CKPT_SURGERY_SCHEDULER": "tls://…@head:8786",
        "CKPT_SURGERY_TOKEN": "(no option has this variable)",
        "CKPT_SURGERY_MEMORY": "8GiB",
    }


def test_the_command_prints_it_and_its_json() -> None:
    done = run("env", CKPT_SURGERY_MEMORY="8GiB", AWS_SECRET_ACCESS_KEY="hidden\x1b[31m")
    assert done.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["CKPT_SURGERY_MEMORY"] == "8GiB"
    assert lines["numpy"] == version("numpy")
    assert "hidden" not in done.stdout
    document = json.loads(run("env", "--json", CKPT_SURGERY_MEMORY="8GiB").stdout)
    assert document["variables"]["CKPT_SURGERY_MEMORY"] == "8GiB"
    assert set(document["packages"]) == set(PACKAGES)
