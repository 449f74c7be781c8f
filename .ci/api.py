"""The API reference, docs/api.md: `make docs` writes what this prints.

Signatures come from the objects, meanings from the docstrings of modules, classes, functions, and fields.
"""

import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import ckpt_surgery
from ckpt_surgery import errors, t5x
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.summaries.represented import Represented

HEAD = """\
# The Python API

Generated from the docstrings by `make docs`; a test checks that it is current.
[The commands](commands.md#from-python) have an example of the functions, and
[In a training program](training.md) introduces `restore`.
What is not on this page is internal and can change without notice.

`PathLike` stands for `str | os.PathLike[str]`. Sizes are in bytes."""

MODULES = (
    "errors",
    "orbax",
    "t5x",
    "core.errors",
    "core.arrays",
    "core.keys",
    "core.leaves",
    "core.manifests",
    "core.protocols",
    "functions",
    "functions.base",
    "functions.streams",
    "formats.registry",
    "storage.reading",
    "storage.json_files",
    "storage.regions",
)
"""The public modules besides `ckpt_surgery` itself, without its name. The page has them in this order."""

MODULES_NAMED = {f"ckpt_surgery.{name}" for name in MODULES}

INTERNAL = {"Read", "Apply", "Cut", "LoadedRecipe"}
"""Classes that public values hold, and whose own fields are internal."""

NOT_SHOWN = (object, typing.Protocol, Represented)
"""Base classes that say nothing of how a class is used."""

WIDTH = 100
"""Characters; a longer signature has a line for each parameter."""


def page() -> str:
    """The page, as Markdown."""
    public = {name: getattr(ckpt_surgery, name) for name in ckpt_surgery.__all__}
    functions = {name: value for name, value in public.items() if inspect.isroutine(value)}
    classes = {name: value for name, value in public.items() if inspect.isclass(value)}
    classes = {name: cls for name, cls in classes.items() if cls is SurgeryError or not _is_error(cls)}
    parts = [HEAD, "## ckpt_surgery"]
    for name, function in functions.items():
        parts += [f"### {name}", *_function(name, function)]
    for cls in (*classes.values(), *_held(public.values(), {*classes.values()})):
        parts += [f"### {cls.__name__}", *_class(cls)]
    for name in MODULES:
        module = importlib.import_module(f"ckpt_surgery.{name}")
        parts += [f"## {module.__name__}", *_paragraphs(module), *_module(module)]
    return "\n\n".join(parts) + "\n"


# --- what there is ----------------------------------------------------------------------------------


def _held(values: Iterable[Any], known: set[type]) -> list[type]:
    """Classes of this package that the annotations of these values name, and of their fields, and so on."""
    found: list[type] = []
    queue = list(values)
    for value in queue:  # which grows
        for cls in _named_by(value):
            if cls not in known:
                known.add(cls)
                found.append(cls)
                queue.append(cls)
    return found


def _named_by(value: Any) -> Iterator[type]:
    """Classes of this package that a signature or the types of fields name, but for those of `MODULES`."""
    if dataclasses.is_dataclass(value):
        getters = [one.fget for one in vars(value).values() if isinstance(one, property) and one.fget]
        given = [_annotations(getter).get("return") for getter in getters]
        hints: Iterable[Any] = [*(field.type for field in dataclasses.fields(value)), *given]
    elif inspect.isroutine(value):
        signature = inspect.signature(value)
        hints = [*(p.annotation for p in signature.parameters.values()), signature.return_annotation]
    else:
        return
    for hint in hints:
        for cls in _classes_in(hint):
            ours = cls.__module__.startswith("ckpt_surgery.")
            if ours and cls.__name__ not in INTERNAL and cls.__module__ not in MODULES_NAMED:
                yield cls


def _classes_in(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint) and not typing.get_args(hint):
        yield hint
    for argument in hint if isinstance(hint, list) else typing.get_args(hint):
        yield from _classes_in(argument)


def _module(module: types.ModuleType) -> Iterator[str]:
    """The public functions, classes, and constants that a module defines, in its order.

    `ckpt_surgery.t5x` defines none: its names lie with what they are made of.
    """
    documented = _documented_names(module)
    if module is t5x:
        documented = dict.fromkeys(t5x.__all__, "")
    constants = []
    for name in documented:
        value = getattr(module, name)
        if inspect.isclass(value) and (value.__module__ == module.__name__ or module is t5x):
            if not _is_error(value):
                yield f"### {name}"
                yield from _class(value)
        elif inspect.isfunction(inspect.unwrap(value)):
            yield f"### {name}"
            yield from _function(name, value)
        else:
            constants.append((f"`{name}`", _on_one_line(documented[name])))
    if module is errors:
        kinds = [kind for kind in vars(errors).values() if _is_error(kind)]
        rows = [
            (f"`{kind.__name__}`", str(kind.exit_code), _on_one_line(kind.__doc__ or "")) for kind in kinds
        ]
        yield "### Errors"
        yield _table(("error", "exit code", "meaning"), rows)
    if constants:
        yield "### Names"
        yield _table(("name", "meaning"), constants)


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, SurgeryError)


def _documented_names(module: types.ModuleType) -> dict[str, str]:
    """The public names that a module's own statements define, and the text below each."""
    return _texts_below(ast.parse(inspect.getsource(module)).body)


def _texts_below(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Names that statements define, each with the string that follows it: empty where there is none."""
    found: dict[str, str] = {}
    for statement, following in zip(body, [*body[1:], None], strict=True):
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = str(following.value.value)
        for name in _defined_by(statement):
            if not name.startswith("_"):
                found[name] = text
    return found


def _defined_by(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        yield statement.name
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


# --- functions and classes --------------------------------------------------------------------------


def _function(name: str, function: Callable[..., Any]) -> Iterator[str]:
    yield _code(_signature(name, inspect.signature(function)))
    yield from _paragraphs(function)


def _signature(name: str, signature: inspect.Signature) -> str:
    """`name(a: int, *, b: str = "x") -> str`, on several lines where one would be too long."""
    shown, star = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        shown.append(_parameter(parameter))
    end = (
        "" if signature.return_annotation is signature.empty else f" -> {_type(signature.return_annotation)}"
    )
    line = f"{name}({', '.join(shown)}){end}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in shown) + f"){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    marks: Mapping[Any, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    mark = marks.get(parameter.kind, "")
    hint = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{mark}{parameter.name}{hint}{default}"


def _class(cls: type) -> Iterator[str]:
    bases = [base.__name__ for base in cls.__bases__ if base not in NOT_SHOWN]
    yield _code(f"class {cls.__name__}({', '.join(bases)})" if bases else f"class {cls.__name__}")
    if cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("):  # which dataclasses write themselves
        yield from _paragraphs(cls)
    rows = list(_members(cls) if issubclass(cls, enum.Enum) else _fields(cls))
    if rows:
        yield _table(
            ("member", "value", "meaning")
            if issubclass(cls, enum.Enum)
            else ("attribute", "type", "meaning"),
            rows,
        )
    for name, method in vars(cls).items():
        if not name.startswith("_") and isinstance(method, types.FunctionType | staticmethod | classmethod):
            yield _code(_signature(f"{cls.__name__}.{name}", _without_self(cls, name)))
            yield from _paragraphs(getattr(cls, name))


def _without_self(cls: type, name: str) -> inspect.Signature:
    signature = inspect.signature(getattr(cls, name))
    own = [p for p in signature.parameters.values() if p.name != "self"]
    return signature.replace(parameters=own)


def _members(cls: type[enum.Enum]) -> Iterator[tuple[str, str, str]]:
    texts = _own_texts(cls)
    for member in cls:
        yield f"`{cls.__name__}.{member.name}`", f"`{member.value!r}`", _on_one_line(texts[member.name])


def _fields(cls: type) -> Iterator[tuple[str, str, str]]:
    """Fields and properties."""
    texts, hints = _own_texts(cls), _annotations(cls)
    defaults = {f.name: f for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    for name, hint in hints.items():
        if not name.startswith("_"):
            field = defaults.get(name)
            default = "" if field is None else _default_of(field)
            meaning = texts.get(name) or _first_paragraph(hint)
            yield f"`{name}`", f"`{_type(hint)}{default}`", _on_one_line(meaning)
    for name, value in vars(cls).items():
        if isinstance(value, property) and not name.startswith("_"):
            assert value.fget is not None
            hint = _annotations(value.fget)["return"]
            yield f"`{name}`", f"`{_type(hint)}`", _on_one_line(inspect.getdoc(value) or "")


def _first_paragraph(hint: Any) -> str:
    """What the class of a field says that it is, if it is one of this package."""
    ours = inspect.isclass(hint) and hint.__module__.startswith("ckpt_surgery.")
    return (inspect.getdoc(hint) or "").partition("\n\n")[0] if ours else ""


def _annotations(value: Any) -> Mapping[str, Any]:
    return inspect.get_annotations(value)


@functools.cache
def _own_texts(cls: type) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    return _texts_below(definition.body)


# --- texts ------------------------------------------------------------------------------------------


def _type(hint: Any) -> str:
    """An annotation without the names of modules."""
    if isinstance(hint, str):
        return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", hint)
    if hint is None or hint is types.NoneType:
        return "None"
    if hint is Ellipsis:
        return "..."
    if isinstance(hint, typing.ForwardRef):
        return _type(hint.__forward_arg__)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        shown = list(dict.fromkeys(_type(argument) for argument in arguments))
        if "PathLike[str]" in shown and "str" in shown:
            shown[shown.index("str")] = "PathLike"
            shown.remove("PathLike[str]")
        return " | ".join(shown)
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(hint, list):
        return f"[{', '.join(map(_type, hint))}]"
    if origin is not None and arguments:
        return f"{origin.__name__}[{', '.join(map(_type, arguments))}]"
    return str(getattr(hint, "__name__", hint))


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return repr(value.value)
    simple = value is None or isinstance(value, bool | int | float | str | tuple)
    return repr(value) if simple else "…"


def _default_of(field: "dataclasses.Field[Any]") -> str:
    if field.default is not dataclasses.MISSING:
        return f" = {_default(field.default)}"
    if field.default_factory is not dataclasses.MISSING:
        factory = field.default_factory
        return f" = {factory.__name__}()" if inspect.isclass(factory) else " = …"
    return ""


OPTION = re.compile(r"^    (\w+): (.*)$", re.MULTILINE)
"""A line of the options that `ckpt_surgery.inputs.request.takes` adds to a docstring."""


def _paragraphs(value: Any) -> Iterator[str]:
    """A docstring as Markdown: lines of a paragraph joined, lists left as they are, options as a table."""
    for paragraph in (inspect.getdoc(value) or "").split("\n\n"):
        if paragraph.startswith("Options:\n"):
            yield _table(
                ("option", "meaning"), [(f"`{name}`", text) for name, text in OPTION.findall(paragraph)]
            )
        elif paragraph:
            yield paragraph if paragraph.startswith("- ") else _on_one_line(paragraph)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(page())
