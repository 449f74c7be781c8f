"""The shape of the package: which wing may import which, how full folders are, and circles between folders.

Bytes (storage, formats) and meaning (the others) meet in the engine and above it.
"""

import ast
import importlib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

import ckpt_surgery

pytestmark = pytest.mark.each

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "ckpt_surgery"

BELOW: dict[str, set[str]] = {
    "core": set(),
    "storage": {"core"},
    "system": {"core"},
    "functions": {"core"},
    "formats": {"core", "storage"},
    "graph": {"core", "functions"},
    "language": {"core", "functions", "graph"},
    "planner": {"core", "functions", "graph", "language"},
    "engine": {"core", "storage", "system", "graph", "planner"},
    "live": {"core", "system", "functions", "graph", "language", "planner", "report"},
    "report": {"core", "planner"},
    "verification": {"core", "storage", "system", "formats", "planner", "engine", "report"},
    "inference": {"core", "functions", "graph", "language", "planner"},
    "merging": {"core", "language"},
    "migration": {"core", "functions", "graph", "language", "live"},
}
ALL_BELOW = set(BELOW)
MAY_IMPORT = {
    **BELOW,
    "inputs": ALL_BELOW - {"engine", "inference"},
    "runs": ALL_BELOW - {"language", "live", "inference", "merging", "migration"} | {"inputs"},
    "api": ALL_BELOW - {"functions", "graph"} | {"inputs", "runs"},
    "face": {"core", "language", "live", "planner", "report", "migration", "inputs", "runs", "api"},
    "cli": {"core", "report", "inputs", "api", "face"},
}
"""What each wing may import besides itself."""

FACE = {"__init__": "face", "errors": "face", "orbax": "face", "t5x": "face", "__main__": "cli"}
"""The modules that lie in no wing's folder, and the wing that they count for."""

LOCKS = "engine/staging/locks.py"
WITHOUT_RUNS = {"inferring", "inverting", "explaining", "inspecting", "linting"}
"""Modules of `api` that write no checkpoint: they must not even be able to reach a lock."""

SHORT_CALLS = {"inputs", "runs", "api", "engine"}
"""Wings whose functions take few arguments, the public ones apart."""
MOST_PARAMETERS = 6
LONGEST_FILE = 400
MOST_MODULES = 30
"""Modules in one folder, `__init__` not counted."""
MOST_FLOORS = 13
"""Wings that stand on each other, the lowest one counted."""
MOST_ARROWS = 100
"""Pairs of wings of which one imports the other."""
MOST_SHARED_NAMES = 20
"""Names that several classes may have: fields of recipes and documents beside what they describe."""

HOME = {
    "click": {"cli"},
    "rich": {"cli"},
    "orbax": {"formats", "face"},
    "tensorstore": {"formats"},
    "zstandard": {"formats"},
    "jax": {"functions", "formats", "live", "migration", "api", "face"},
    "h5py": {"formats"},
    "flax": set(),
    "optax": set(),
    "gguf": {"formats"},
    "tensorflow": set(),
    "torch": set(),
}
"""The only wings that may import these at all."""

UPWARDS = {"planner/plan.py": {"report.plan_texts:plan_summary", "api.report_page:report_page"}}
"""What a module uses of wings above it, by name and only when it is called: how it is shown to people."""

HEAVY = {"gguf", "h5py", "jax", "orbax", "tensorstore"}
"""Imported only inside functions: `--help` must not wait for them."""

SLOW_TO_IMPORT = {"torch", "transformers", "tensorflow", "keras"}
"""What tests import inside functions: each of these takes seconds."""
WITH_TORCH = ("formats/torch", "formats/dcp", "formats/shared/torch", "recipes", "merging", "inputs", "runs")
"""Folders of tests where nearly every test needs such a library, or that hold programs of their own."""

MADE_FOR = {"orbax.py": "orbax"}
"""Modules that nobody imports who does not want the library."""


# --- finding imports --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    file: str
    """Path of the importing module within the package."""
    line: int
    target: str
    """Path of the module of this package that is imported, or the first name of another package."""
    ours: bool
    at_top: bool
    """Outside any function: happens when the module is imported."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def wing_of(file: str) -> str:
    """The wing of a module, by its path within the package."""
    first = PurePosixPath(file).parts[0]
    return FACE.get(first.removesuffix(".py"), first)


def imports_in(text: str, file: str, modules: Iterable[str]) -> Iterator[Import]:
    """The imports in the text of a module; `modules` are the paths of all modules of the package."""
    known = set(modules)
    for node, at_top in statements(parsed(text), True):
        for name in imported_names(node):
            first = name.split(".")[0]
            ours = first == "ckpt_surgery"
            target = module_of(name, known) if ours else first
            yield Import(file, getattr(node, "lineno", 0), target, ours, at_top)


def module_of(name: str, modules: set[str]) -> str:
    """The path of the module that has, or is, what is imported by a dotted name."""
    parts = name.split(".")[1:]
    for length in range(len(parts), -1, -1):
        path = "/".join(parts[:length])
        for file in (f"{path}.py", f"{path}/__init__.py".lstrip("/")):
            if file in modules:
                return file
    raise AssertionError(f"nothing of the package is called {name}")


def statements(node: ast.AST, at_top: bool) -> Iterator[tuple[ast.AST, bool]]:
    """All statements below one, with whether they are outside any function. They are in these lists only."""
    at_top = at_top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for blocks in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, blocks, []):
            yield child, at_top
            yield from statements(child, at_top)


def imported_names(node: ast.AST) -> list[str]:
    """Dotted names of what a statement imports, each with the name that is taken from its module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


parsed = cache(ast.parse)
FILES = sorted(PACKAGE.rglob("*.py"))
TEXTS = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in FILES}


@cache
def all_imports() -> list[Import]:
    return imports_between(TEXTS)


def imports_between(texts: Mapping[str, str]) -> list[Import]:
    return [found for file, text in texts.items() for found in imports_in(text, file, texts)]


def assert_none(wrong: Iterable[object]) -> None:
    """Fail with a line for each thing that is wrong."""
    told = "\n".join(map(str, wrong))
    assert not told, told


# --- 1: wings ---------------------------------------------------------------------------------------------


def test_every_module_has_a_wing() -> None:
    assert {wing_of(file) for file in TEXTS} - {"orbax.py"} == set(MAY_IMPORT)


@pytest.mark.parametrize("wing", MAY_IMPORT)
def test_wings_import_only_what_they_may(wing: str) -> None:
    allowed = {*MAY_IMPORT[wing], wing}
    own = [i for i in all_imports() if wing_of(i.file) == wing and i.ours]
    assert_none(i for i in own if wing_of(i.target) not in allowed)


def calls_upwards(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """The functions that modules use through `from_above`, by module."""
    found: dict[str, set[str]] = defaultdict(set)
    for file, text in texts.items():
        for node in ast.walk(parsed(text)) if "from_above" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "from_above":
                found[file].add(":".join(ast.literal_eval(argument) for argument in node.args))
    return dict(found)


def test_few_modules_use_wings_above_them() -> None:
    assert calls_upwards(TEXTS) == UPWARDS
    for name in {name for names in UPWARDS.values() for name in names}:
        module, _, function = name.partition(":")
        assert callable(getattr(importlib.import_module(f"ckpt_surgery.{module}"), function))


def test_importing_a_wing_imports_no_more_of_the_package() -> None:
    """Nothing is loaded unasked: `--help` must not wait for NumPy, nor one format for the others."""
    packages = {file for file in TEXTS if file.endswith("/__init__.py") and file.count("/") == 1}
    assert {"cli/__init__.py", "core/__init__.py"} <= packages
    assert_none(i for i in all_imports() if i.file in packages and i.ours and i.at_top)


@pytest.mark.parametrize("module", sorted(WITHOUT_RUNS))
def test_what_writes_no_checkpoint_reaches_no_lock(module: str) -> None:
    arrows: dict[str, set[str]] = defaultdict(set)
    for i in all_imports():
        if i.ours:
            arrows[i.file].add(i.target)
    assert {LOCKS, f"api/{module}.py"} <= set(TEXTS)
    assert LOCKS not in reachable(f"api/{module}.py", arrows)


# --- 2 and 3: places --------------------------------------------------------------------------------------


def loose(texts: Mapping[str, str]) -> list[str]:
    """Modules that lie in no wing's folder, the face apart."""
    return [file for file in texts if "/" not in file and file.removesuffix(".py") not in FACE]


def too_long(texts: Mapping[str, str]) -> list[str]:
    found = {file: len(text.splitlines()) for file, text in texts.items()}
    return [f"{file} has {count} lines" for file, count in found.items() if count > LONGEST_FILE]


def crowded(texts: Mapping[str, str]) -> list[str]:
    """Folders with more modules than they may have."""
    paths = [PurePosixPath(file) for file in texts]
    counts = Counter(path.parent.as_posix() for path in paths if path.name != "__init__.py")
    return [f"{name} has {count} modules" for name, count in counts.items() if count > MOST_MODULES]


def test_no_module_is_loose_no_file_long_and_no_folder_crowded() -> None:
    assert_none([*loose(TEXTS), *too_long(TEXTS), *crowded(TEXTS)])


def shared_names(texts: Mapping[str, str]) -> list[str]:
    """Names of classes that stand for several classes."""
    nodes = (node for text in texts.values() for node in ast.walk(parsed(text)))
    counts = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in counts.items() if count > 1)


def test_few_names_stand_for_several_classes() -> None:
    assert shared_names({"a": "class A: ...", "b": "class A: ...\nclass B: ..."}) == ["A"]
    assert len(shared_names(TEXTS)) <= MOST_SHARED_NAMES, shared_names(TEXTS)


def long_calls(texts: Mapping[str, str], public: Container[str]) -> list[str]:
    """Functions with more parameters than they may have; `self` and `cls` do not count."""
    return [
        f"{file}: {node.name} has {count} parameters"
        for file, text in texts.items()
        if wing_of(file) in SHORT_CALLS
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.FunctionDef) and node.name not in public
        if (count := parameters(node.args)) > MOST_PARAMETERS
    ]


def parameters(arguments: ast.arguments) -> int:
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return sum(argument.arg not in ("self", "cls") for argument in named)


def test_functions_take_few_arguments() -> None:
    assert_none(long_calls(TEXTS, ckpt_surgery.__all__))


# --- 4: circles -------------------------------------------------------------------------------------------


def circles(imports: Iterable[Import], depth: int) -> list[frozenset[str]]:
    """Folders that import each other, all below `depth` taken together: one set for each circle."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for i in imports:
        start, end = cut(i.file, depth), cut(i.target, depth)
        if i.ours and start != end:
            arrows[start].add(end)
    reach = {start: reachable(start, arrows) for start in arrows}
    found = {
        frozenset({start, *(end for end in ends if start in reach.get(end, ()))})
        for start, ends in reach.items()
    }
    return sorted((circle for circle in found if len(circle) > 1), key=sorted)


def cut(file: str, depth: int) -> str:
    """The folder of a module, no deeper than `depth`; the wing of a module of the face."""
    folder = "/".join(PurePosixPath(file).parent.parts[:depth])
    return folder or wing_of(file)


def arrows_between_wings(imports: Iterable[Import]) -> dict[str, set[str]]:
    """The wings that each wing imports, itself apart."""
    below: dict[str, set[str]] = defaultdict(set)
    for i in imports:
        if i.ours and wing_of(i.file) != wing_of(i.target):
            below[wing_of(i.file)].add(wing_of(i.target))
    return below


def floor(wing: str, below: Mapping[str, set[str]]) -> int:
    """How high a wing stands: 1 if it imports no other wing."""
    return 1 + max((floor(other, below) for other in below.get(wing, ())), default=0)


def test_the_house_stays_low() -> None:
    below = arrows_between_wings(all_imports())
    assert max(floor(wing, below) for wing in below) <= MOST_FLOORS
    assert sum(map(len, below.values())) <= MOST_ARROWS


def reachable(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    found, pending = set[str](), [start]
    while pending:
        for end in arrows.get(pending.pop(), ()):
            if end not in found:
                found.add(end)
                pending.append(end)
    return found


DEPTHS = range(1, max(file.count("/") for file in TEXTS) + 1)


@pytest.mark.parametrize("depth", DEPTHS)
def test_no_folders_are_in_a_circle(depth: int) -> None:
    assert circles(all_imports(), depth) == []


# --- 5: what else is held ---------------------------------------------------------------------------------


def test_no_module_hands_on_what_another_defines() -> None:
    """`from … import x as x` says that whoever imports this module may take `x` from here."""
    assert_none(
        f"{file}:{node.lineno} hands on {alias.name}"
        for file, text in TEXTS.items()
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    )


@pytest.mark.parametrize("library", HOME)
def test_libraries_stay_where_they_belong(library: str) -> None:
    of_library = [i for i in all_imports() if not i.ours and i.target == library]
    assert_none(i for i in of_library if wing_of(i.file) not in HOME[library])


def test_heavy_libraries_are_imported_inside_functions() -> None:
    heavy = [i for i in all_imports() if not i.ours and i.target in HEAVY and i.at_top]
    assert_none(i for i in heavy if MADE_FOR.get(i.file) != i.target)


def test_tests_import_what_is_slow_inside_functions() -> None:
    files = {path.relative_to(TESTS).as_posix(): path.read_text() for path in TESTS.rglob("*.py")}
    assert_none(
        f"{file} imports {name}"
        for file, text in files.items()
        if not file.startswith((*WITH_TORCH, "data/")) and any(name in text for name in SLOW_TO_IMPORT)
        for node, at_top in statements(parsed(text), True)
        for name in imported_names(node)
        if at_top and name.split(".")[0] in SLOW_TO_IMPORT
    )


# --- formats ----------------------------------------------------------------------------------------------

OF_FORMATS = {file: text for file, text in TEXTS.items() if file.startswith("formats/")}
FORMATS = {file.split("/")[1] for file in OF_FORMATS if file.count("/") == 2} - {"shared"}


def format_of(file: str) -> str | None:
    """The format whose folder a module lies in."""
    folders = file.split("/")[:-1]
    return folders[1] if len(folders) > 1 and folders[0] == "formats" and folders[1] in FORMATS else None


def test_a_format_imports_no_other_format() -> None:
    assert len(FORMATS) >= 9
    of_formats = [i for i in all_imports() if i.file in OF_FORMATS and format_of(i.target)]
    assert_none(i for i in of_formats if format_of(i.target) != format_of(i.file))


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
WRITES = {"/sink.py": "creates files", "ocdbt/writer.py": "creates files"}
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
    readers = {file: text for file, text in OF_FORMATS.items() if not file.endswith(tuple(WRITES))}
    assert_none(f"{file}:{call}" for file, text in readers.items() for call in calls_to_disk(parsed(text)))
    code = "def f(p):\n    with open(p) as file: pass\n    return os.path.isdir(p) or Path(p).exists()"
    assert calls_to_disk(ast.parse(code)) == ["2: open", "3: os.path.isdir", "3: Path(p).exists"]


SAMPLE = """
import jax.numpy
def read():
    import tensorstore as ts
    from ckpt_surgery.formats.orbax import x
    from ckpt_surgery import apply, core
"""
PATHS = ("__init__.py", "core/__init__.py", "formats/orbax/__init__.py")


def test_imports_are_found_wherever_they_are() -> None:
    found = [(i.line, i.target, i.ours, i.at_top) for i in imports_in(SAMPLE, "core/sample.py", PATHS)]
    assert found == [
        (2, "jax", False, True),
        (4, "tensorstore", False, False),
        (5, "formats/orbax/__init__.py", True, False),
        (6, "__init__.py", True, False),
        (6, "core/__init__.py", True, False),
    ]


def test_what_breaks_the_rules_is_found() -> None:
    texts = {
        "__init__.py": "",
        "lost.py": "",
        "core/long.py": "\n" * (LONGEST_FILE + 1),
        **{f"graph/m{number}.py": "" for number in range(MOST_MODULES + 1)},
        "engine/worker.py": "from ckpt_surgery.engine.staging import local",
        "runs/run.py": "def run(a, b, c, d, e, *, f, g): ...\ndef apply(a, b, c, d, e, f, g): ...",
        "engine/staging/local.py": "def f():\n    from ckpt_surgery.engine.worker import run",
    }
    assert loose(texts) == ["lost.py"]
    assert too_long(texts) == [f"core/long.py has {LONGEST_FILE + 1} lines"]
    assert crowded(texts) == [f"graph has {MOST_MODULES + 1} modules"]
    assert long_calls(texts, {"apply"}) == ["runs/run.py: run has 7 parameters"]
    assert floor("engine", {"engine": {"graph", "core"}, "graph": {"core"}}) == 3
    assert circles(imports_between(texts), 1) == []
    assert circles(imports_between(texts), 2) == [frozenset({"engine", "engine/staging"})]
