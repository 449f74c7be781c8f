"""The page of the Python API has every public thing, each with what its docstring says."""

import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import pytest

import ckpt_surgery
from tests.support.ci_scripts import script
from tests.test_contributing import PUBLIC
from tests.test_site import Html

HELD: list[type] = script("site_api").held()


@cache
def package() -> griffe.Module:
    """The package as mkdocstrings reads it."""
    options = griffe.load_extensions(script("site_api").Options())
    loaded = griffe.load("ckpt_surgery", extensions=options, docstring_parser="google", resolve_aliases=True)
    assert isinstance(loaded, griffe.Module)
    return loaded


def undescribed(names: list[str]) -> Iterator[str]:
    """Of these objects and of their public members, those that no docstring describes."""
    for name in names:
        found: Any = package()[name]
        found = found.final_target if found.is_alias else found
        shown = [] if found.is_module else [one for one in found.members.values() if is_shown(one)]
        yield from (one.path for one in (found, *shown) if not is_described(one))


def is_shown(member: Any) -> bool:
    return member.is_public and not member.is_alias and not member.is_special


def is_described(found: Any) -> bool:
    """Whether it, what it overrides, or the class of the attribute has a docstring."""
    bases = found.parent.mro() if found.parent.is_class else []
    overridden = [cls.members[found.name] for cls in bases if found.name in cls.members]
    return any(one.has_docstring or is_of_own_class(one) for one in (found, *overridden))


def is_of_own_class(found: Any) -> bool:
    annotation = getattr(found, "annotation", None)
    return getattr(annotation, "canonical_path", "").startswith("ckpt_surgery.")


def test_the_page_lists_the_public_modules() -> None:
    assert set(script("site_api").modules()) == PUBLIC


@pytest.mark.slow("builds the site")
def test_public_names_and_what_they_hold_are_on_the_page_with_descriptions(site: Path) -> None:
    held = [f"{cls.__module__}.{cls.__qualname__}".removeprefix("ckpt_surgery.") for cls in HELD]
    names = [*ckpt_surgery.__all__, *held]
    assert {f"ckpt_surgery.{name}" for name in names} <= Html.of((site / "api.html").read_text()).anchors
    assert list(undescribed(names)) == []


def test_every_function_says_what_it_raises() -> None:
    functions = [
        getattr(ckpt_surgery, name) for name in ckpt_surgery.__all__ if name not in ("schema", "recipes")
    ]
    documented = [one for one in functions if inspect.isroutine(one)]
    assert [one for one in documented if "Raises " not in (inspect.getdoc(one) or "")] == []
