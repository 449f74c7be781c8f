"""Reading the pickles of PyTorch's files, with an interpreter that can only build inert values.

Nothing is imported, and nothing that the pickle names is called. Only the instructions that make plain values
are known, and only the globals of a `Vocabulary`. Python's own unpickler is not used: later instructions can
change what it has built, even classes; an instruction can make its memo take gigabytes; and keys that are
nested deeply enough end the process. The standard library decodes the arguments of instructions.

Source of the format: https://docs.python.org/3/library/pickletools.html.
"""

import io
import pickletools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.torch.globals import (
    MOST_NUMBER,
    RESAVE,
    TENSORS,
    Global,
    Record,
    Unsupported,
    Vocabulary,
    what_is,
)
from ckpt_surgery.storage.failures import damaged, with_path

T = TypeVar("T")


def load(data: bytes, vocabulary: Vocabulary = TENSORS, name: str = "data.pkl") -> object:
    """The value that a pickle describes: plain values and containers, and what the vocabulary makes.

    Dictionaries have keys of type str and int, and records. Containers can contain themselves. `name`: what
    errors call the pickle. Raises SourceError for everything that it does not need, with the name of the
    global that it asks for.
    """
    with with_path(name):
        machine = _Machine(vocabulary)
        for count, (opcode, argument) in enumerate(_decoded(data, vocabulary.of)):
            if count >= vocabulary.most_instructions:
                raise damaged(f"it has more than {vocabulary.most_instructions} instructions", RESAVE)
            opcode.apply(machine, argument)
        return machine.pop()


def _decoded(data: bytes, of: str) -> Iterator[tuple["Opcode", Any]]:
    """Instructions with their arguments, up to STOP, where the pickle must end."""
    file = io.BytesIO(data)
    while True:
        position = file.tell()
        opcode = _OPCODES.get(file.read(1))
        if opcode is None:
            raise damaged(f"it is not a valid pickle: byte {position} is not an instruction")
        if opcode.name == "STOP":
            break
        if opcode.name not in _INSTRUCTIONS:
            raise damaged(f"the instruction {opcode.name} at byte {position} is not for {of}", RESAVE)
        try:
            argument = None if opcode.read is None else opcode.read(file)
        except ValueError as error:
            detail = shown(str(error)[:200])
            raise damaged(f"it is not a valid pickle: {opcode.name} at byte {position}: {detail}") from error
        yield opcode, argument
    if position != len(data) - 1:
        raise damaged(f"{len(data) - 1 - position} bytes follow its end")


# --- the machine ------------------------------------------------------------------------------------------


_TOO_FEW = "an instruction wants more values than there are"


class _Machine:
    """The state of the interpreter: the stack, its parts below the marks, and the memo."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.stack: list[Any] = []
        """Values pushed since the last mark."""
        self.below: list[list[Any]] = []
        """Values beneath each mark, the last mark last."""
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        """Remove the last value and return it."""
        if not self.stack:
            raise damaged(_TOO_FEW)
        return self.stack.pop()

    def last(self) -> Any:
        """The last value, which stays on the stack."""
        if not self.stack:
            raise damaged(_TOO_FEW)
        return self.stack[-1]

    def top(self, kind: type[T]) -> T:
        """The last value, which stays on the stack and must be of exactly this type."""
        value = self.last()
        if type(value) is not kind:
            raise damaged(f"an instruction wants a {kind.__name__} and finds {what_is(value)}")
        return value

    def popped(self, kind: type[T]) -> T:
        """Remove the last value, which must be of exactly this type, and return it."""
        value = self.top(kind)
        self.stack.pop()
        return value

    def since_mark(self) -> list[Any]:
        """Remove everything since the last mark, and the mark, and return the values."""
        if not self.below:
            raise damaged("an instruction wants a mark, and there is none")
        items, self.stack = self.stack, self.below.pop()
        return items

    def fill(self, items: list[Any]) -> None:
        """Put alternating keys and values into the dictionary on the stack."""
        target = self.top(dict)
        if len(items) % 2:
            raise damaged("a dictionary is given a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, Record) and not (type(key) is int and abs(key) <= MOST_NUMBER):
                raise damaged(
                    f"a dictionary has {what_is(key)} for a key; texts and integers can be one", RESAVE
                )
            target[key] = value


Instruction = Callable[[_Machine, Any], None]
"""The effect of an opcode on the machine, given its argument."""


def _ignore(machine: _Machine, argument: Any) -> None:
    pass


def _push(machine: _Machine, argument: Any) -> None:
    machine.stack.append(argument)


def _constant(value: object) -> Instruction:
    return lambda machine, argument: machine.stack.append(value)


def _empty(kind: type[list[Any]] | type[dict[Any, Any]]) -> Instruction:
    return lambda machine, argument: machine.stack.append(kind())


def _mark(machine: _Machine, argument: Any) -> None:
    machine.below.append(machine.stack)
    machine.stack = []


def _drop(machine: _Machine, argument: Any) -> None:
    """Remove the last value, or the mark where nothing was pushed since."""
    if machine.stack:
        machine.stack.pop()
    else:
        machine.since_mark()


def _drop_to_mark(machine: _Machine, argument: Any) -> None:
    machine.since_mark()


def _duplicate(machine: _Machine, argument: Any) -> None:
    value = machine.pop()
    machine.stack += [value, value]


def _tuple_of(count: int) -> Instruction:
    def make(machine: _Machine, argument: Any) -> None:
        values = [machine.pop() for _ in range(count)]
        machine.stack.append(tuple(values[::-1]))

    return make


def _tuple(machine: _Machine, argument: Any) -> None:
    items = machine.since_mark()
    machine.stack.append(tuple(items))


def _list(machine: _Machine, argument: Any) -> None:
    items = machine.since_mark()
    machine.stack.append(items)


def _dict(machine: _Machine, argument: Any) -> None:
    items = machine.since_mark()
    machine.stack.append({})
    machine.fill(items)


def _frozen_set(machine: _Machine, argument: Any) -> None:
    machine.since_mark()
    machine.stack.append(Unsupported("a set"))


def _append(machine: _Machine, argument: Any) -> None:
    value = machine.pop()
    machine.top(list).append(value)


def _append_all(machine: _Machine, argument: Any) -> None:
    items = machine.since_mark()
    machine.top(list).extend(items)


def _add_all(machine: _Machine, argument: Any) -> None:
    machine.since_mark()
    machine.top(Unsupported)


def _set_item(machine: _Machine, argument: Any) -> None:
    value = machine.pop()
    key = machine.pop()
    machine.fill([key, value])


def _set_items(machine: _Machine, argument: Any) -> None:
    machine.fill(machine.since_mark())


def _put(machine: _Machine, argument: Any) -> None:
    machine.memo[argument] = machine.last()


def _memoize(machine: _Machine, argument: Any) -> None:
    machine.memo[len(machine.memo)] = machine.last()


def _get(machine: _Machine, argument: Any) -> None:
    if argument not in machine.memo:
        raise damaged(f"nothing was remembered as number {argument}")
    machine.stack.append(machine.memo[argument])


def _global(machine: _Machine, argument: Any) -> None:
    machine.stack.append(machine.vocabulary.find(".".join(argument)))


def _stack_global(machine: _Machine, argument: Any) -> None:
    name = machine.popped(str)
    module = machine.popped(str)
    machine.stack.append(machine.vocabulary.find(f"{module}.{name}"))


def _instance(machine: _Machine, argument: Any) -> None:
    """INST: calls a global, which no pickle does that torch writes."""
    value = machine.vocabulary.find(".".join(argument))
    raise damaged(f"it makes an instance of {what_is(value)}", RESAVE)


def _object(machine: _Machine, argument: Any) -> None:
    """OBJ: calls the global that is the first value after the mark."""
    first = next(iter(machine.since_mark()), None)
    raise damaged(f"it makes an instance of {what_is(first)}", RESAVE)


def _new(machine: _Machine, argument: Any) -> None:
    """NEWOBJ: makes an instance of the class that lies beneath a tuple of arguments."""
    arguments = machine.pop()
    factory = machine.pop()
    if not isinstance(factory, Global) or factory.name not in machine.vocabulary.records or arguments != ():
        raise damaged(f"it makes an instance of {what_is(factory)}", RESAVE)
    machine.stack.append(Record(factory.name, {}))


def _new_with_names(machine: _Machine, argument: Any) -> None:
    """NEWOBJ_EX: makes an instance of a class, with named arguments too."""
    machine.pop()
    machine.pop()
    raise damaged(f"it makes an instance of {what_is(machine.pop())}", RESAVE)


def _reduce(machine: _Machine, argument: Any) -> None:
    arguments = machine.popped(tuple)
    called = machine.pop()
    calls = machine.vocabulary.calls
    if not isinstance(called, Global) or called.name not in calls:
        raise damaged(f"it calls {what_is(called)}", RESAVE)
    machine.stack.append(calls[called.name](arguments))


def _build(machine: _Machine, argument: Any) -> None:
    """BUILD: sets attributes; those of an OrderedDict (a state dict has `_metadata`) are ignored."""
    state = machine.pop()
    target = machine.pop()
    if type(target) is Record and type(state) in (dict, tuple):
        target.fields.update(state if type(state) is dict else enumerate(state))
    elif type(target) is not dict or type(state) is not dict:
        raise damaged(f"it sets attributes of {what_is(target)} by {what_is(state)}", RESAVE)
    machine.stack.append(target)


def _extension(machine: _Machine, argument: Any) -> None:
    raise damaged(f"it asks for number {argument} of the registry of extensions", RESAVE)


def _persistent(machine: _Machine, argument: Any) -> None:
    machine.stack.append(machine.vocabulary.persistent(machine.pop()))


_INSTRUCTIONS: Mapping[str, Instruction] = {
    **dict.fromkeys(("PROTO", "FRAME"), _ignore),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _push),
    **dict.fromkeys(("FLOAT", "BINFLOAT"), _push),
    **dict.fromkeys(("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), _push),
    **dict.fromkeys(
        ("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"), _constant(Unsupported("bytes"))
    ),
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "EMPTY_TUPLE": _constant(()),
    "EMPTY_SET": _constant(Unsupported("a set")),
    "EMPTY_LIST": _empty(list),
    "EMPTY_DICT": _empty(dict),
    "MARK": _mark,
    "POP": _drop,
    "POP_MARK": _drop_to_mark,
    "DUP": _duplicate,
    "TUPLE": _tuple,
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "LIST": _list,
    "DICT": _dict,
    "FROZENSET": _frozen_set,
    "APPEND": _append,
    "APPENDS": _append_all,
    "ADDITEMS": _add_all,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    "MEMOIZE": _memoize,
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _get),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "BUILD": _build,
    "BINPERSID": _persistent,
    # The rest is refused, by the name of what it asks for.
    "INST": _instance,
    "OBJ": _object,
    "NEWOBJ": _new,
    "NEWOBJ_EX": _new_with_names,
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), _extension),
}
"""Effects of the known opcodes, by name. Any other is refused with its name."""


@dataclass(frozen=True, slots=True)
class Opcode:
    """One kind of instruction."""

    name: str
    """Name as in the standard library's pickletools."""
    read: Callable[[io.BytesIO], Any] | None
    """Reads the argument that follows; raises ValueError where it is incomplete."""
    apply: Instruction


def _two_lines(file: io.BytesIO) -> tuple[str, str]:
    """A module and a name as Python's unpickler reads them; pickletools would undo escapes in them."""
    lines = [file.readline(), file.readline()]
    if not all(line.endswith(b"\n") for line in lines):
        raise ValueError("a name does not end")
    module, name = (line[:-1].decode() for line in lines)
    return module, name


def _reader(opcode: pickletools.OpcodeInfo) -> Callable[[io.BytesIO], Any] | None:
    if opcode.name in ("GLOBAL", "INST"):
        return _two_lines
    return None if opcode.arg is None else opcode.arg.reader


_OPCODES: Mapping[bytes, Opcode] = {
    opcode.code.encode("latin-1"): Opcode(
        opcode.name,
        _reader(opcode),
        _INSTRUCTIONS.get(opcode.name, _ignore),
    )
    for opcode in pickletools.opcodes
}
"""Opcodes by their code, which is one byte."""
