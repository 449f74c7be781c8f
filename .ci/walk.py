"""Prints how far one has to read to follow a recipe: the modules of inputs, runs and api that a plain `apply`
enters, and how often it climbs back from one to another.

A function counts once, when it is called for the first time. A climb is its return to a caller that is in
another of these modules. Functions without a name of their own (comprehensions, lambdas) are not counted.
`--functions` prints the functions too, in the order in which they are reached.
"""

import inspect
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import numpy as np
from safetensors.numpy import save_file

import ckpt_surgery

PACKAGE = Path(ckpt_surgery.__file__).parent
WINGS = ("inputs", "runs", "api")
RECIPE = """\
version: 1
rules:
  - {match: 'a/(.*)', to: 'c/\\1', value: x * 2}
  - {match: '(.*)', to: '\\1'}
"""


@dataclass
class Walk:
    """Functions and modules entered while a function ran."""

    modules: list[str] = field(default_factory=list)
    """Paths within the package, in the order in which they are entered."""
    functions: list[tuple[int, str, str]] = field(default_factory=list)
    """Depth, module and name of each function, in the order in which they are reached."""
    climbs: int = 0


def module_of(code: CodeType) -> str | None:
    """The module of a function, by its path within the package; None where it is in none of the wings."""
    path = Path(code.co_filename)
    if not path.is_relative_to(PACKAGE):
        return None
    name = path.relative_to(PACKAGE)
    return name.as_posix() if name.parts[0] in WINGS else None


def is_function(code: CodeType) -> bool:
    """False for the bodies of classes and modules."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


@contextmanager
def walked() -> Iterator[Walk]:
    """Record what this thread enters inside the context."""
    walk, stack = Walk(), list[tuple[str | None, bool]]()
    seen = set[CodeType]()

    def enter(code: CodeType) -> tuple[str | None, bool]:
        module = module_of(code)
        above = next((name for name, _ in reversed(stack) if name is not None), None)
        if module is None or code in seen or code.co_name.startswith("<") or not is_function(code):
            return module, False
        seen.add(code)
        if module not in walk.modules:
            walk.modules.append(module)
        depth = sum(name is not None for name, _ in stack)
        walk.functions.append((depth, module, code.co_qualname))
        return module, above not in (None, module)

    def step(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            stack.append(enter(frame.f_code))
        elif event == "return" and stack:
            walk.climbs += stack.pop()[1]

    sys.setprofile(step)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def walk_of_apply(directory: Path) -> Walk:
    """The walk of a recipe with two rules over a small checkpoint, which are written into `directory`."""
    source, recipe = directory / "source.safetensors", directory / "recipe.yaml"
    save_file({f"{name}/w": np.ones((4, 4), np.float32) for name in "ab"}, source)
    recipe.write_text(RECIPE)
    apply = ckpt_surgery.apply  # imported before the walk
    with walked() as walk:
        apply(recipe, source, dst=directory / "out")
    return walk


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        walk = walk_of_apply(Path(directory))
    if "--functions" in sys.argv[1:]:
        print("\n".join(f"{'  ' * depth}{module}: {name}" for depth, module, name in walk.functions))
    print(f"{len(walk.modules)} modules, {walk.climbs} climbs, {len(walk.functions)} functions")
    print("\n".join(walk.modules))


if __name__ == "__main__":
    main()
