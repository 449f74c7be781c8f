"""The functions of docs/extending.md, installed as another package would be: entry point and module."""

import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.arrays import chunk_regions
from ckpt_surgery.functions.registry import registry
from tests.support.calling import result_of
from tests.support.comparing import same
from tests.test_docs import blocks, code

PAGE = Path(__file__).parent.parent.parent / "docs" / "extending.md"


def install(site: Path) -> str:
    """What `pip install` makes of the page's package; gives the name of its module."""
    (project,) = [b.text for b in blocks(PAGE) if b.text.startswith("# pyproject.toml\n")]
    document = tomllib.loads(project)["project"]
    [(group, entries)] = document["entry-points"].items()
    [(name, module)] = entries.items()
    (site / f"{module}.py").write_text(code("functions") + "\n\n" + code("primitives"))
    about = site / f"{module}-{document['version']}.dist-info"
    about.mkdir()
    head = f"Metadata-Version: 2.1\nName: {document['name']}\nVersion: {document['version']}\n"
    (about / "METADATA").write_text(head)
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n")
    return str(module)


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The installed module, in a directory of packages that every test here has on its path."""
    directory = tmp_path_factory.mktemp("site-packages")
    name = install(directory)
    sys.path.insert(0, str(directory))
    registry.cache_clear()
    yield importlib.import_module(name)
    sys.path.remove(str(directory))
    sys.modules.pop(name, None)
    registry.cache_clear()


X = np.arange(35, dtype=np.float32).reshape(5, 7) - 17
CASES: list[tuple[str, dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = [
    ("roll", {"shift": 2}, lambda x: np.roll(x, 2, axis=0)),
    ("roll", {"shift": -6}, lambda x: np.roll(x, -6, axis=0)),
    ("rot90", {}, np.rot90),
    ("rot90", {"k": 2}, lambda x: np.rot90(x, 2)),
    ("rot90", {"k": -1}, lambda x: np.rot90(x, -1)),
    ("tril", {}, np.tril),
    ("tril", {"k": -2}, lambda x: np.tril(x, -2)),
    ("tril", {"k": 3}, lambda x: np.tril(x, 3)),
    ("running_max", {}, lambda x: np.maximum.accumulate(x, axis=0)),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_any_region_is_that_of_numpy(
    name: str, arguments: dict[str, Any], expected: Callable[[np.ndarray], np.ndarray]
) -> None:
    wanted = expected(X)
    for chunk in ((7, 7), (2, 3), (1, 7)):
        for region in chunk_regions(wanted.shape, chunk):
            found = result_of(registry()[name], X, region=region, **arguments)
            assert same(found, np.ascontiguousarray(wanted[region.slices]))


def test_recipes_call_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", kernel=X)
    rule = "{match: kernel, value: 'running_max(tril(rot90(roll(x, 1))))'}"
    (tmp_path / "recipe.yaml").write_text(f"{{version: 1, rules: [{rule}]}}")
    ckpt_surgery.apply(tmp_path / "recipe.yaml", tmp_path / "x.npz", dst=tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as found:
        turned = np.tril(np.rot90(np.roll(X, 1, axis=0)))
        assert same(found["kernel"], np.maximum.accumulate(turned, axis=0))


def test_ten_lines_are_enough() -> None:
    written = re.findall(r"(?s)@in_expressions\n(def (\w+).*?)(?=\n\n\n|\Z)", code("functions"))
    assert [name for _, name in written] == ["roll", "rot90", "tril"]
    assert all(len(text.splitlines()) <= 10 for text, _ in written)
