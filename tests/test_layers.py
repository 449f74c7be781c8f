"""Who may import whom: bytes (storage, formats) and meaning (the others) meet in the engine only."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import ckpt_surgery

PACKAGE = Path(__file__).parent.parent / "ckpt_surgery"

MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "storage": {"core"},
    "functions": {"core"},
    "formats": {"core", "storage"},
    "graph": {"core", "functions"},
    "language": {"core", "functions", "graph"},
    "planner": {"core", "functions", "graph", "language"},
    "engine": {"core", "storage", "graph", "planner"},
    "live": {"core", "graph", "language", "planner", "engine"},
    "migration": {"core", "functions", "graph", "language", "live"},
    "merging": {"core", "language"},
    "inference": {"core", "functions", "graph", "language", "planner"},
    "report": {"core", "planner"},
    "api": {
        *("core", "storage", "formats", "graph", "language", "planner", "engine", "report"),
        *("inference", "live", "merging", "migration"),
    },
    "cli": {"api", "report", "core"},
}
"""What each wing may import besides itself."""

OF_API = {
    *(
        "__init__",
        "api",
        "checking",
        "destinations",
        "document_paths",
        "inspecting",
        "linting",
        "migrating",
        "offers",
    ),
    "explaining",
    *(
        "matching",
        "opening",
        "orbax",
        "preparing",
        "prepublication",
        "provenance",
        "readback",
        "records",
        "remarks",
    ),
    *("replacing", "requests", "restoring", "resuming", "saved_plans", "structure", "verifying"),
    *(
        "clusters",
        "inferring",
        "run",
        "shard_jobs",
        "shard_places",
        "sharded",
        "stages",
    ),
    *(
        "backwards",
        "choosing",
        "layer_stacks",
        "cleaning",
        "companions",
        "environment",
        "existing_items",
        "history",
        "mending",
        "merges",
        "model_configs",
        "models",
        "reporting",
        "sampling",
        "shown_plans",
        "wholeness",
    ),
}
"""Modules of the package itself: the functions of the commands, where all wings meet."""
PUBLIC = set(ckpt_surgery.__all__)
"""Names of the package that are no modules; they are defined by modules of several wings."""

HOME = {
    "click": {"cli"},
    "rich": {"cli"},
    "orbax": {"formats", "api"},
    "tensorstore": {"formats"},
    "jax": {"functions", "formats", "live", "migration", "api"},
    "h5py": {"formats"},
    "flax": set(),
    "optax": set(),
    "gguf": set(),
    "tensorflow": set(),
    "torch": set(),
}
"""The only modules that may import these at all."""

HEAVY = {"h5py", "jax", "orbax", "tensorstore"}
"""Imported only inside functions: `--help` must not wait for them."""

MADE_FOR = {"orbax.py": "orbax"}
"""Modules that nobody imports who does not want the library."""


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    layer: str
    """Wing of the importing module: `formats` for everything in that folder."""
    target: str
    """A layer of this package, or the first name of another one."""
    ours: bool
    at_top: bool
    """Outside any function: happens when the module is imported."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def layer_of(path: Path) -> str:
    return wing(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))


def wing(name: str) -> str:
    """The wing of a module or folder of the package."""
    return "api" if name in OF_API | PUBLIC else "cli" if name == "__main__" else name


def imports_of(path: Path) -> Iterator[Import]:
    yield from imports_in(path.read_text(), path.relative_to(PACKAGE).as_posix(), layer_of(path))


def imports_in(text: str, file: str, layer: str) -> Iterator[Import]:
    for node, at_top in statements(ast.parse(text), True):
        for name in imported_names(node):
            first, *rest = name.split(".")
            ours = first == "ckpt_surgery"
            target = wing(rest[0] if rest else "__init__") if ours else first
            yield Import(file, getattr(node, "lineno", 0), layer, target, ours, at_top)


def statements(node: ast.AST, at_top: bool) -> Iterator[tuple[ast.AST, bool]]:
    """All statements below one, with whether they are outside any function. They are in these lists only."""
    at_top = at_top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for blocks in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, blocks, []):
            yield child, at_top
            yield from statements(child, at_top)


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        if node.module == "ckpt_surgery":
            return [f"ckpt_surgery.{alias.name}" for alias in node.names]
        return [node.module or ""]
    return []


FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def all_imports() -> list[Import]:
    return [found for path in FILES for found in imports_of(path)]


def broken(wrong: list[Import]) -> str:
    return "\n".join(map(str, wrong))


def test_every_module_has_a_wing() -> None:
    assert {layer_of(path) for path in FILES} == set(MAY_IMPORT)


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_wings_import_only_what_they_may(layer: str) -> None:
    wrong = [
        i
        for i in all_imports()
        if i.layer == layer and i.ours and i.target not in {*MAY_IMPORT[layer], layer}
    ]
    assert not wrong, broken(wrong)


def test_importing_a_wing_imports_no_more_of_the_package() -> None:
    """Nothing is loaded unasked: `--help` must not wait for NumPy, nor one format for the others."""
    packages = {f"{path.parent.name}/__init__.py" for path in PACKAGE.glob("*/__init__.py")}
    assert {"cli/__init__.py", "core/__init__.py"} <= packages
    wrong = [i for i in all_imports() if i.file in packages and i.ours and i.at_top]
    assert not wrong, broken(wrong)


def test_no_module_hands_on_what_another_defines() -> None:
    """`from … import x as x` says that whoever imports this module may take `x` from here."""
    told = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} hands on {alias.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    assert told == []


@pytest.mark.parametrize("library", HOME)
def test_libraries_stay_where_they_belong(library: str) -> None:
    wrong = [i for i in all_imports() if not i.ours and i.target == library and i.layer not in HOME[library]]
    assert not wrong, broken(wrong)


def test_heavy_libraries_are_imported_inside_functions() -> None:
    wrong = [
        i
        for i in all_imports()
        if not i.ours and i.target in HEAVY and i.at_top and MADE_FOR.get(i.file) != i.target
    ]
    assert not wrong, broken(wrong)


# --- formats ----------------------------------------------------------------------------------------------

OF_FORMATS = sorted((PACKAGE / "formats").rglob("*.py"))
FORMATS = {path.parent.name for path in OF_FORMATS if path.parent.parent == PACKAGE / "formats"} - {"shared"}


def formats_imported(path: Path) -> Iterator[str]:
    """The folders of formats that a module imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
        for name in imported_names(node):
            parts = name.split(".")
            if parts[:2] == ["ckpt_surgery", "formats"] and len(parts) > 2 and parts[2] in FORMATS:
                yield parts[2]


def test_a_format_imports_no_other_format() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports of the format {name}"
        for path in OF_FORMATS
        for name in formats_imported(path)
        if name != path.parent.name
    ]
    assert len(FORMATS) >= 9
    assert not wrong, "\n".join(wrong)


TOUCHES_DISK = {
    *("open", "os.open", "os.stat", "os.lstat", "os.scandir", "os.listdir", "os.walk", "os.access"),
    *("os.path.exists", "os.path.lexists", "os.path.isdir", "os.path.isfile", "os.path.islink"),
    *("os.path.realpath", "os.path.samefile", "os.path.getsize", "os.path.getmtime"),
}
"""Functions that only storage calls for what is read."""
METHODS_OF_PATHS = {
    *("exists", "is_dir", "is_symlink", "iterdir", "glob", "rglob", "read_bytes", "read_text", "resolve"),
    *("lstat", "samefile"),
}
WRITES = {"sink.py": "creates files", "ocdbt_writer.py": "creates files", "zarr_writing.py": "creates files"}
"""Modules that write checkpoints, and why they may call the file system."""


def calls_to_disk(tree: ast.AST) -> list[str]:
    """What touches the disk, as it is spelled, with its line."""
    called = [(node.lineno, node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        f"{line}: {ast.unparse(function)}"
        for line, function in called
        if ast.unparse(function) in TOUCHES_DISK
        or (isinstance(function, ast.Attribute) and function.attr in METHODS_OF_PATHS)
    ]


def test_only_storage_looks_at_files_for_formats() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{call}"
        for path in OF_FORMATS
        if path.name not in WRITES
        for call in calls_to_disk(ast.parse(path.read_text()))
    ]
    assert not wrong, "\n".join(wrong)


def test_calls_to_the_disk_are_found() -> None:
    code = "def f(p):\n    with open(p) as file: pass\n    return os.path.isdir(p) or Path(p).exists()"
    assert calls_to_disk(ast.parse(code)) == ["2: open", "3: os.path.isdir", "3: Path(p).exists"]


SAMPLE = """
import jax.numpy
def read():
    import tensorstore as ts
    from ckpt_surgery.formats.orbax import x
    from ckpt_surgery import api, core
"""


def test_imports_are_found_wherever_they_are() -> None:
    found = [(i.line, i.target, i.ours, i.at_top) for i in imports_in(SAMPLE, "sample.py", "sample")]
    assert found == [
        (2, "jax", False, True),
        (4, "tensorstore", False, False),
        (5, "formats", True, False),
        (6, "api", True, False),
        (6, "core", True, False),
    ]


# --- what only looks --------------------------------------------------------------------------------------

ONLY_LOOK = ["inferring", "backwards", "explaining", "inspecting", "checking", "document_paths", "preparing"]


def modules_imported(path: Path) -> set[Path]:
    """The files of all modules of the package that one imports, wherever in it."""
    nodes = [node for node, _ in statements(ast.parse(path.read_text()), True)]
    named = {name for node in nodes for name in imported_names(node)}
    named |= {f"{n.module}.{a.name}" for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
    return {PACKAGE.parent / f"{name.replace('.', '/')}.py" for name in named} & set(FILES)


@pytest.mark.parametrize("module", ONLY_LOOK)
def test_what_only_looks_at_checkpoints_reaches_no_lock(module: str) -> None:
    reached = [PACKAGE / f"{module}.py"]
    for path in reached:  # which grows
        reached += modules_imported(path).difference(reached)
    assert not {PACKAGE / "engine" / "staging" / name for name in ("locks.py", "object_lock.py")} & {*reached}
    assert len(reached) > 20
