"""Pickles that want more than tensors: each is refused by the name of what it wants, and nothing runs."""

import contextlib
import os
import pickle
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.torch import globals, unpickler
from ckpt_surgery.formats.shared.torch.globals import TENSORS
from ckpt_surgery.formats.shared.torch.unpickler import load
from tests.formats.bounds import bounded
from tests.formats.torch.pickles import (
    ORDERED,
    V2,
    Call,
    Name,
    Persistent,
    Raw,
    archive,
    code,
    document,
    opened,
    storage,
    view,
)
from tests.support.conformance import SLACK_BYTES


def saved(value: object, directory: Path) -> Path:
    torch.save(value, directory / "saved.pt")
    return directory / "saved.pt"


TOUCH = "touch ran"
"""What would leave a file in the current directory."""


@dataclass(frozen=True)
class Attack:
    reason: str
    pickled: bytes
    wants: str
    """What the refusal names."""


def attack(module: str, name: str, *arguments: Any) -> Attack:
    """A call of one function."""
    return Attack(
        f"calls {module}.{name}", document(Call(Name(module, name), arguments)), f"`{module}.{name}`"
    )


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value.encode())]) + value.encode()


def stacked(module: str, name: str) -> bytes:
    """A pickle with a global whose names are on the stack, where any characters do."""
    return b"\x80\x04" + text(module) + text(name) + b"\x93."


def called(value: Any) -> bytes:
    return document(Call(value, (2**40,)))


def with_attributes(value: Any, attributes: Any) -> bytes:
    return document(Raw(code(value) + code(attributes) + pickle.BUILD))


SYSTEM, TENSOR = Name("os", "system"), Name("torch", "Tensor")
WANTED = Name("torch._tensor", "_rebuild_from_type_v2")
WANTED_BY_NONE = (
    *("posix.system", "nt.system", "os.popen", "os.execv", "os.remove", "subprocess.Popen", "pty.spawn"),
    *("builtins.eval", "builtins.exec", "__builtin__.eval", "builtins.__import__", "builtins.getattr"),
    *("builtins.compile", "builtins.type", "io.open", "pathlib.Path.touch", "importlib.import_module"),
    *("runpy.run_path", "shutil.rmtree", "ctypes.CDLL", "webbrowser.open", "urllib.request.urlopen"),
    *("socket.create_connection", "timeit.timeit", "code.interact", "pickle.loads", "marshal.loads"),
    *("types.FunctionType", "functools.partial", "operator.methodcaller", "copyreg._reconstructor"),
    *("collections.defaultdict", "argparse.Namespace", "numpy.load", "numpy.core.multiarray._reconstruct"),
    *("torch.load", "torch.hub.load", "torch._utils._rebuild_wrapper_subclass"),
    *("torch.storage._load_from_bytes", "torch.jit._pickle.build_intlist", "torch.package.PackageImporter"),
    *("__torch__.Model.forward", "sys.setrecursionlimit", "os.path.join"),
)
"""Functions that run, open, import or delete something, or make what could."""
CALLS = (
    attack("os", "system", TOUCH),
    attack("subprocess", "check_output", ["touch", "ran"]),
    attack("builtins", "open", "ran", "w"),
    *(attack(*name.rpartition(".")[::2], TOUCH) for name in WANTED_BY_NONE),
)
FORMS = (
    Attack("a global that is never called", document([SYSTEM]), "`os.system`"),
    Attack("a global that is dropped", b"\x80\x02cos\nsystem\n0}.", "`os.system`"),
    Attack("protocol 0", b"cos\nsystem\n(Vtouch ran\ntR.", "`os.system`"),
    Attack("an instance", b"(Vtouch ran\nios\nsystem\n.", "`os.system`"),
    Attack("an instance of what is allowed", b"(icollections\nOrderedDict\n.", "`collections.OrderedDict`"),
    Attack("an object", b"(cos\nsystem\nVtouch ran\no.", "`os.system`"),
    Attack("a new object", b"\x80\x02csubprocess\nPopen\nVtouch\n\x85\x81.", "`subprocess.Popen`"),
    Attack(
        "a new object of what is allowed",
        b"\x80\x02ccollections\nOrderedDict\n)\x81.",
        "instance of `collections.OrderedDict`",
    ),
    Attack(
        "a new object with keywords",
        b"\x80\x04ctorch\nFloatStorage\n)}\x92.",
        "instance of `torch.FloatStorage`",
    ),
    Attack("an extension", b"\x80\x02\x82\x07.", "the instruction EXT1"),
    Attack(
        "a global from the stack",
        b"\x80\x04" + text("os") + text("system") + b"\x93" + text(TOUCH) + b"\x85R.",
        "`os.system`",
    ),
    Attack("a dotted name", stacked("torch", "_utils.os.system"), "`torch._utils.os.system`"),
    Attack(
        "a dotted name below what is allowed",
        stacked("torch._utils", "_rebuild_tensor_v2.__globals__"),
        "`torch._utils._rebuild_tensor_v2.__globals__`",
    ),
    Attack("a name with a space", b"\x80\x02cos system\nx\n.", "`os system.x`"),
    Attack("a name in another alphabet", stacked("tоrch", "Tensor"), "`tоrch.Tensor`"),
    Attack("a name that hides in the terminal", stacked("os\x1b[8m", "system"), r"`os\x1b[8m.system`"),
    Attack("names that are no text", b"\x80\x04K\1K\2\x93.", "wants a str"),
    Attack("in a tensor's shape", document(view(Call(SYSTEM, (TOUCH,)), (1,))), "`os.system`"),
    Attack("as a storage's type", document(Persistent(("storage", SYSTEM, "0", "cpu", 8))), "`os.system`"),
    Attack(
        "as a tensor's hook", document(view((2,), (1,), rest=(False, Call(SYSTEM, (TOUCH,))))), "`os.system`"
    ),
    Attack("as a tensor's function", document(Call(WANTED, (SYSTEM, TENSOR, (TOUCH,), {}))), "`os.system`"),
    Attack("as a tensor's class", document(Call(WANTED, (V2, SYSTEM, (), {}))), "`os.system`"),
    Attack(
        "an allowed function as a tensor's",
        document(Call(WANTED, (WANTED, TENSOR, (), {}))),
        "_v2` with arguments that do not fit",
    ),
    Attack(
        "in the attributes of a state",
        with_attributes(ORDERED, {"_metadata": Call(SYSTEM, (TOUCH,))}),
        "`os.system`",
    ),
    Attack(
        "attributes of an allowed function",
        with_attributes(V2, (None, {"__code__": 1})),
        "attributes of `torch._utils._rebuild_tensor_v2`",
    ),
    Attack(
        "attributes of an allowed class",
        with_attributes(ORDERED.function, (None, {"__init__": 1})),
        "attributes of `collections.OrderedDict`",
    ),
    Attack("a class that is called", called(Name("torch", "Tensor")), "calls `torch.Tensor`"),
    Attack("a text that is called", called("os.system"), "calls a value of type str"),
    Attack("a buffer from outside", b"\x80\x05\x97.", "NEXT_BUFFER"),
    Attack(
        "behind the first pickle", document({}) + document(Call(SYSTEM, (TOUCH,))), "bytes follow its end"
    ),
)
ATTACKS = (*CALLS, *FORMS)

_watched: list[str] | None = None
"""What happened while somebody looked."""
RUNNING = ("exec", "compile", "import", "pickle.", "os.", "subprocess.", "socket.", "shutil.", "ctypes.")
"""Beginnings of the names of events that come of running or importing something."""


def _watch(event: str, arguments: object) -> None:
    if _watched is not None and event.startswith(RUNNING):
        _watched.append(event)


sys.addaudithook(_watch)


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """The events of Python's own audit that come of running something."""
    global _watched
    _watched = events = []
    try:
        yield events
    finally:
        _watched = None


@pytest.fixture(scope="module")
def _imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is imported when the first file is opened is no part of what any file asks for."""
    opened(archive(tmp_path_factory.mktemp("harmless") / "saved.pt", document([Raw(b"Vtext\n")])))


@pytest.mark.usefixtures("_imported")
@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.reason for attack in ATTACKS])
def test_malice_is_refused_by_name_and_runs_nothing(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = archive(tmp_path / "saved.pt", attack.pickled)
    before = [dict(vars(module)) for module in (globals, unpickler)]
    with watched() as events, pytest.raises(SourceError) as caught:
        opened(path)
    assert attack.wants in str(caught.value)
    assert events == []
    assert os.listdir(tmp_path) == ["saved.pt"]
    assert [dict(vars(module)) for module in (globals, unpickler)] == before


def test_pythons_own_unpickler_runs_what_attacks_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the attacks are some, and the watch sees them."""
    monkeypatch.chdir(tmp_path)
    for attack in CALLS[:2]:
        with watched() as events:
            pickle.loads(attack.pickled)
        assert "pickle.find_class" in events
        (tmp_path / "ran").unlink()


class Trap:
    """What torch itself writes for an object that runs something when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (TOUCH,)


def test_a_trap_that_torch_saved(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"asks for `posix.system`, .*\n.*None of it was run"):
        opened(saved({"w": torch.ones(2), "x": Trap()}, tmp_path))


def test_a_whole_module_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"`torch.nn.modules.linear.Linear`.*\n.*model.state_dict\(\)"):
        opened(saved(torch.nn.Linear(2, 2), tmp_path))


def test_a_memo_takes_no_room_for_large_numbers() -> None:
    with bounded(SLACK_BYTES):
        assert load(b"\x80\x02}r\xff\xff\xff\x7f0K\x07.") == 7


def test_pickles_of_too_many_instructions() -> None:
    short = replace(TENSORS, most_instructions=100)
    assert load(b"\x80\x02" + b"N" * 99 + b".", short) is None
    with pytest.raises(SourceError, match=r"data.pkl: it has more than 100 instructions"):
        load(b"\x80\x02" + b"N" * 100 + b".", short)


def test_records_are_made_of_known_classes_alone() -> None:
    """Attributes are kept as they are given, by name or in order; no class is looked at."""
    words = replace(TENSORS, records=("os.system",))
    made = Raw(code(Name("os", "system")) + b")\x81" + code({"a": 1}) + b"b" + code((2, 3)) + b"b")
    found = load(document([made]), words)
    assert (found[0].name, found[0].fields) == ("os.system", {"a": 1, 0: 2, 1: 3})
    with pytest.raises(SourceError, match=r"^here: it asks for `os.popen`, which tensors do not need"):
        load(document([Raw(code(Name("os", "popen")) + b")\x81")]), words, "here")
    with pytest.raises(SourceError, match=r"makes an instance of `os.system`"):
        load(document([Raw(code(Name("os", "system")) + code((1,)) + b"\x81")]), words)
    with pytest.raises(
        SourceError, match=r"sets attributes of an instance of `os.system` by a value of type"
    ):
        load(document([Raw(code(made) + b"K\x01b")]), words)


def test_records_can_be_keys() -> None:
    words = replace(TENSORS, records=("a.B",))
    made = Raw(code(Name("a", "B")) + b")\x81")
    found: Any = load(document(Raw(b"}(" + code(made) + b"K\x01" + code(made) + b"K\x02u")), words)
    assert list(found.values()) == [1, 2]


@pytest.mark.parametrize("seed", range(4))
def test_instructions_in_any_order(seed: int) -> None:
    """Whatever they do to each other: a value or a refusal."""
    rng = random.Random(seed)
    parts: Sequence[bytes] = [
        *(bytes([op]) for op in b"(}])NtuesaldR0bQ12\x81\x85\x86\x87\x88\x89\x90\x91\x92\x93\x94o"),
        *(b"K\x01", b"h\0", b"q\0", b"\x8c\x01a", code(1.5), code(V2), code(WANTED), code(ORDERED)),
        *(code(view((2,), (1,))), code(Name("torch", "Size")), code(Name("torch", "int8")), code(storage())),
    ]
    for _ in range(3000):
        with contextlib.suppress(SourceError):
            load(b"\x80\x04" + b"".join(rng.choices(parts, k=rng.randrange(1, 30))) + b".")
