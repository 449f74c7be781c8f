"""What a release is made of: the metadata of the package, its README on an index, workflows, the image."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from ckpt_surgery.core.version import VERSION
from ckpt_surgery.report.problems import PAGE, SITE

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RELEASE = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())


def readme_on_an_index() -> str:
    """The README after the substitutions of hatch-fancy-pypi-readme, which `make dist` applies."""
    text = (ROOT / "README.md").read_text()
    for one in PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"].replace("$HFPR_VERSION", VERSION), text)
    return text


def destinations(text: str) -> list[str]:
    """Destinations of links and pictures, in Markdown and in HTML."""
    prose = re.sub(r"```.*?```|`[^`\n]+`", "", text, flags=re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r'(?:src|srcset|href)="([^"]+)"', prose)


def test_links_of_the_readme_are_absolute_on_an_index_and_lead_to_files_here() -> None:
    links = destinations(readme_on_an_index())
    assert len(links) >= 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert any(link.endswith(f"/blob/v{VERSION}/LICENSE") for link in links)
    links = [link.partition("#")[0] for link in destinations((ROOT / "README.md").read_text())]
    assert [link for link in links if link and "://" not in link and not (ROOT / link).exists()] == []


def test_the_wheel_carries_what_the_package_reads_of_the_repository() -> None:
    """All files of the package, recipes, and the page that `explain` prints sections of."""
    wheel = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    included = {path: f"ckpt_surgery/{path}" for path in ("recipes", PAGE)}
    assert wheel == {"packages": ["ckpt_surgery"], "force-include": included}
    assert SITE.startswith(PYPROJECT["project"]["urls"]["Documentation"])


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = PYPROJECT["project"]
    assert str(citation["version"]) == VERSION
    assert citation["license"] == project["license"]
    assert citation["repository-code"] == project["urls"]["Source"]
    assert citation["authors"][0]["name"] == project["authors"][0]["name"]


def pythons(job: dict[str, Any]) -> set[str]:
    matrix = job["strategy"]["matrix"]
    return {*matrix["python"], *(one["python"] for one in matrix.get("include", ()))}


def test_only_what_was_tested_on_every_python_is_published_and_no_password_is_kept() -> None:
    check = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    assert pythons(RELEASE["jobs"]["test"]) == pythons(check["jobs"]["test"])
    jobs = RELEASE["jobs"]
    assert jobs["publish"]["needs"] == "test"
    assert jobs["test"]["needs"] == "build"
    assert jobs["publish"]["permissions"]["id-token"] == "write"
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    uses = [step.get("uses", "") for step in jobs["publish"]["steps"]]
    assert any("attest" in one for one in uses)
    assert not re.search(
        r"secrets\.|password: (?!\$\{\{ github\.token)", (ROOT / ".github/workflows/release.yml").read_text()
    )


def test_the_pages_name_the_image_that_is_published() -> None:
    names = set(re.findall(r"ghcr\.io/[\w./-]+", (ROOT / "docs/machines.md").read_text()))
    owner = PYPROJECT["project"]["urls"]["Source"].removeprefix("https://github.com/")
    assert names == {f"ghcr.io/{owner}"}
