"""Reading the pickles of PyTorch's files, with an interpreter that can only build inert values.

Nothing is imported, and nothing that the pickle names is called. Only the instructions that make plain values
are known, and only the globals of a `Vocabulary`. Python's own unpickler is not used: later instructions can
change what it has built, even classes; an instruction can make its memo take gigabytes; and keys that are
nested deeply enough end the process. The standard library decodes the arguments of instructions.

Source of the format: https://docs.python.org/3/library/pickletools.html.
"""

import io
import pickletools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.torch import globals as words
from ckpt_surgery.storage.failures import damaged, with_path

T = TypeVar("T")


def load(data: bytes, vocabulary: words.Vocabulary = words.TENSORS, name: str = "data.pkl") -> object:
    """The value that a pickle describes: plain values and containers, and what the vocabulary makes.

    Dictionaries have keys of type str and int, and records. Containers can contain themselves. `name`: what
    errors call the pickle. Raises SourceError for everything that it does not need, with the name of the
    global that it asks for.
    """
    with with_path(name):
        machine, file = _Machine(vocabulary), io.BytesIO(data)
        for _ in range(vocabulary.most_instructions + 1):  # STOP is not counted
            position = file.tell()
            opcode = _NAMES.get(file.read(1))
            if opcode is None:
                raise damaged(f"it is not a valid pickle: byte {position} is not an instruction")
            if opcode == "STOP":
                break
            instruction, read = _INSTRUCTIONS.get(opcode), _READERS.get(opcode)
            if instruction is None:
                what = f"the instruction {opcode} at byte {position}"
                raise damaged(f"{what} is not for {vocabulary.of}", words.RESAVE)
            try:
                argument = None if read is None else read(file)
            except ValueError as error:
                detail = shown(str(error)[:200])
                raise damaged(f"it is not a valid pickle: {opcode} at byte {position}: {detail}") from error
            instruction(machine, argument)
        else:
            raise damaged(f"it has more than {vocabulary.most_instructions} instructions", words.RESAVE)
        if position != len(data) - 1:
            raise damaged(f"{len(data) - 1 - position} bytes follow its end")
        return machine.pop()


class _Machine:
    """The state of the interpreter: the stack, its parts below the marks, and the memo."""

    def __init__(self, vocabulary: words.Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.stack: list[Any] = []
        """Values pushed since the last mark."""
        self.below: list[list[Any]] = []
        """Values beneath each mark, the last mark last."""
        self.memo: dict[int, Any] = {}

    def push(self, value: object) -> None:
        """Add a value."""
        self.stack.append(value)

    def pop(self) -> Any:
        """Remove the last value and return it."""
        self.last()
        return self.stack.pop()

    def last(self) -> Any:
        """The last value, which stays on the stack."""
        if not self.stack:
            raise damaged("an instruction wants more values than there are")
        return self.stack[-1]

    def top(self, kind: type[T]) -> T:
        """The last value, which stays on the stack and must be of exactly this type."""
        value = self.last()
        if type(value) is not kind:
            raise damaged(f"an instruction wants a {kind.__name__} and finds {words.what_is(value)}")
        return value

    def popped(self, kind: type[T]) -> T:
        """Remove the last value, which must be of exactly this type, and return it."""
        value = self.top(kind)
        self.stack.pop()
        return value

    def popped_many(self, count: int) -> tuple[Any, ...]:
        """Remove the last values and return them, the last one last."""
        return tuple([self.pop() for _ in range(count)][::-1])

    def mark(self) -> None:
        """Begin a part of the stack."""
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        """Remove everything since the last mark, and the mark, and return the values."""
        if not self.below:
            raise damaged("an instruction wants a mark, and there is none")
        items, self.stack = self.stack, self.below.pop()
        return items

    def extend(self, items: Sequence[Any]) -> None:
        """Put values at the end of the list on the stack."""
        self.top(list).extend(items)

    def fill(self, items: Sequence[Any]) -> None:
        """Put alternating keys and values into the dictionary on the stack."""
        target = self.top(dict)
        if len(items) % 2:
            raise damaged("a dictionary is given a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            number = type(key) is int and abs(key) <= words.MOST_NUMBER
            if type(key) not in (str, words.Record) and not number:
                what = f"a dictionary has {words.what_is(key)} for a key; texts and integers can be one"
                raise damaged(what, words.RESAVE)
            target[key] = value

    def remember(self, number: int) -> None:
        """Put the last value into the memo."""
        self.memo[number] = self.last()

    def recall(self, number: int) -> None:
        """Add a value of the memo."""
        if number not in self.memo:
            raise damaged(f"nothing was remembered as number {number}")
        self.stack.append(self.memo[number])


def _drop(machine: _Machine, argument: Any) -> None:
    """POP: removes the last value, or the mark where nothing was pushed since."""
    if machine.stack:
        machine.stack.pop()
    else:
        machine.since_mark()


def _dict(machine: _Machine, argument: Any) -> None:
    items = machine.since_mark()
    machine.push({})
    machine.fill(items)


def _replace_set(machine: _Machine, argument: Any) -> None:
    """FROZENSET: sets are not read."""
    machine.since_mark()
    machine.push(words.Unsupported("a set"))


def _add_all(machine: _Machine, argument: Any) -> None:
    machine.since_mark()
    machine.top(words.Unsupported)


def _stack_global(machine: _Machine, argument: Any) -> None:
    name = machine.popped(str)
    module = machine.popped(str)
    machine.push(machine.vocabulary.find(f"{module}.{name}"))


def _refuse_instance(factory: object) -> None:
    """INST, OBJ, NEWOBJ_EX: make instances of a class, which no pickle does that torch writes."""
    raise damaged(f"it makes an instance of {words.what_is(factory)}", words.RESAVE)


def _new(machine: _Machine, argument: Any) -> None:
    """NEWOBJ: makes an instance of the class that lies beneath a tuple of arguments."""
    arguments = machine.pop()
    factory = machine.pop()
    records = machine.vocabulary.records
    if not isinstance(factory, words.Global) or factory.name not in records or arguments != ():
        _refuse_instance(factory)
    machine.push(words.Record(factory.name, {}))


def _reduce(machine: _Machine, argument: Any) -> None:
    arguments = machine.popped(tuple)
    called = machine.pop()
    calls = machine.vocabulary.calls
    if not isinstance(called, words.Global) or called.name not in calls:
        raise damaged(f"it calls {words.what_is(called)}", words.RESAVE)
    value = calls[called.name](arguments)
    if value is None:
        raise damaged(f"it calls `{called.name}` with arguments that do not fit")
    machine.stack.append(value)


def _build(machine: _Machine, argument: Any) -> None:
    """BUILD: sets attributes; those of an OrderedDict (a state dict has `_metadata`) are ignored."""
    state = machine.pop()
    target = machine.pop()
    if type(target) is words.Record and type(state) in (dict, tuple):
        target.fields.update(state if type(state) is dict else enumerate(state))
    elif type(target) is not dict or type(state) is not dict:
        what = f"it sets attributes of {words.what_is(target)} by {words.what_is(state)}"
        raise damaged(what, words.RESAVE)
    machine.push(target)


Instruction = Callable[[_Machine, Any], object]
"""The effect of an opcode on the machine, given its argument."""

_INSTRUCTIONS: Mapping[str, Instruction] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, argument: None),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _Machine.push),
    **dict.fromkeys(("FLOAT", "BINFLOAT"), _Machine.push),
    **dict.fromkeys(("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), _Machine.push),
    **dict.fromkeys(
        ("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
        lambda machine, _: machine.stack.append(words.Unsupported("bytes")),
    ),
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "EMPTY_SET": lambda machine, _: machine.stack.append(words.Unsupported("a set")),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "MARK": lambda machine, _: machine.mark(),
    "POP": _drop,
    "POP_MARK": lambda machine, _: machine.since_mark(),
    "DUP": lambda machine, _: machine.push(machine.last()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.push(machine.popped_many(1)),
    "TUPLE2": lambda machine, _: machine.push(machine.popped_many(2)),
    "TUPLE3": lambda machine, _: machine.push(machine.popped_many(3)),
    "LIST": lambda machine, _: machine.push(machine.since_mark()),
    "DICT": _dict,
    "FROZENSET": _replace_set,
    "APPEND": lambda machine, _: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "ADDITEMS": _add_all,
    "SETITEM": lambda machine, _: machine.fill(machine.popped_many(2)),
    "SETITEMS": lambda machine, _: machine.fill(machine.since_mark()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.remember),
    "MEMOIZE": lambda machine, _: machine.remember(len(machine.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.recall),
    "GLOBAL": lambda machine, parts: machine.stack.append(machine.vocabulary.find(".".join(parts))),
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "BUILD": _build,
    "BINPERSID": lambda machine, _: machine.stack.append(machine.vocabulary.persistent(machine.pop())),
    # The rest is refused, by the name of what it asks for.
    "INST": lambda machine, parts: _refuse_instance(machine.vocabulary.find(".".join(parts))),
    "OBJ": lambda machine, _: _refuse_instance(next(iter(machine.since_mark()), None)),
    "NEWOBJ": _new,
    "NEWOBJ_EX": lambda machine, _: _refuse_instance(machine.popped_many(3)[0]),
}
"""Effects of the known opcodes, by name. Any other is refused with its name."""


def _two_lines(file: io.BytesIO) -> tuple[str, str]:
    """A module and a name as Python's unpickler reads them; pickletools would undo escapes in them."""
    lines = [file.readline(), file.readline()]
    if not all(line.endswith(b"\n") for line in lines):
        raise ValueError("a name does not end")
    module, name = (line[:-1].decode() for line in lines)
    return module, name


_NAMES = {opcode.code.encode("latin-1"): opcode.name for opcode in pickletools.opcodes}
"""Names of opcodes, as in the standard library's pickletools, by their code, which is one byte."""
_READERS: Mapping[str, Callable[[io.BytesIO], Any]] = {
    **{opcode.name: opcode.arg.reader for opcode in pickletools.opcodes if opcode.arg is not None},
    **dict.fromkeys(("GLOBAL", "INST"), _two_lines),
}
"""Read the argument that follows an opcode, by its name; raise ValueError where it is incomplete."""
