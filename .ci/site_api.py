"""The page of the Python API: what mkdocstrings cannot know from the sources alone.

Used twice: by mkdocs, which calls the function `on_…`, and by griffe, mkdocstrings' reader of sources, of
which `Options` is an extension.
"""

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import griffe
from mkdocs.structure.pages import Page

import ckpt_surgery

PAGE = Path(__file__).parent.parent / "docs/api.md"
HELD = "<!-- the classes that these hold -->"
"""Stands in docs/api.md where `on_page_markdown` puts them."""
ENTRY = """\
::: {0.__module__}.{0.__qualname__}
    options:
      heading_level: 3
      show_root_full_path: false
"""
INTERNAL = {"Read", "Apply", "Cut", "LoadedRecipe"}
"""Classes that public values hold, and whose own fields are internal."""


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Add an entry for each class that the public functions and classes hold."""
    if page.file.src_uri != PAGE.name:
        return markdown
    return markdown.replace(HELD, "\n\n".join(map(ENTRY.format, held())))


def modules() -> list[str]:
    """The public modules, as the page lists them."""
    return re.findall(r"^::: (.*)$", PAGE.read_text(), re.MULTILINE)


def held() -> list[type]:
    """Classes that public functions and classes name in their annotations, and that these name, and so on."""
    queue = [getattr(ckpt_surgery, name) for name in ckpt_surgery.__all__]
    known, others = {value for value in queue if inspect.isclass(value)}, set(modules())
    found: list[type] = []
    for value in queue:  # which grows
        for cls in (cls for hint in hints(value) for cls in classes(hint)):
            ours = cls.__module__.startswith("ckpt_surgery.") and cls.__module__ not in others
            if ours and cls not in known and cls.__name__ not in INTERNAL:
                known.add(cls)
                found.append(cls)
                queue.append(cls)
    return found


def hints(value: Any) -> Iterable[Any]:
    """Annotations of a function, or of a dataclass's fields and properties."""
    if dataclasses.is_dataclass(value):
        getters = [one.fget for one in vars(value).values() if isinstance(one, property) and one.fget]
        given = [inspect.get_annotations(getter).get("return") for getter in getters]
        return [*(field.type for field in dataclasses.fields(value)), *given]
    if inspect.isroutine(value):
        signature = inspect.signature(value)
        return [*(given.annotation for given in signature.parameters.values()), signature.return_annotation]
    return []


def classes(hint: Any) -> Iterator[type]:
    """The classes that an annotation names."""
    if inspect.isclass(hint) and not get_args(hint):
        yield hint
    for argument in hint if isinstance(hint, list) else get_args(hint):
        yield from classes(argument)


class Options(griffe.Extension):
    """Gives functions the options that `takes` and `described` add when their module is imported."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        ends = ("arguments.takes", "arguments.described")
        if not any(decorator.callable_path.endswith(ends) for decorator in func.decorators):
            return
        function = getattr(importlib.import_module(func.module.path), func.name)
        func.parameters = griffe.Parameters(*map(parameter, inspect.signature(function).parameters.values()))
        assert func.docstring is not None
        func.docstring.value = inspect.getdoc(function) or ""


def parameter(given: inspect.Parameter) -> griffe.Parameter:
    """A parameter of a signature as griffe has those of sources, without the names of modules."""
    hint = get_args(given.annotation)[0] if get_origin(given.annotation) is Annotated else given.annotation
    default = given.default.value if isinstance(given.default, enum.Enum) else given.default
    return griffe.Parameter(
        given.name,
        annotation=re.sub(r"(?:\b\w+\.)+(?=\w)", "", inspect.formatannotation(hint)),
        kind=griffe.ParameterKind[given.kind.name.lower()],
        default=None if default is given.empty else repr(default),
    )
