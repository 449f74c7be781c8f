"""The expression language: what it computes, what it refuses, and the column that it points at."""

import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.functions.arrays import Apply, Array, Series
from ckpt_surgery.functions.contractions import product
from ckpt_surgery.functions.create import Init
from ckpt_surgery.functions.dtypes import Bitcast, Rounded
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.joining import Stack
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.functions.quantization import Quantize
from ckpt_surgery.functions.reductions import ListReduction
from ckpt_surgery.language.expressions.parsing import LetNames, check, parse
from ckpt_surgery.language.expressions.scope import ExpressionError, Groups, Scope, Table, Unavailable
from tests.support.effort import examples
from tests.support.lazy_arrays import ArrayLeaves, lazy


@dataclass(frozen=True)
class WithString(ArrayLeaves):
    """A source with a leaf that is no array."""

    def lookup(self, text: str) -> Array | None:
        if text == "a/string":
            raise SurgeryError("`a/string` is a string, not an array", hint="It can be kept.")
        return super().lookup(text)

    def kind(self, text: str) -> str | None:
        return "string" if text == "a/string" else super().kind(text)

    def keys(self) -> Collection[str]:
        return {*self.arrays, "a/string"}


class FakeHooks:
    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        return name, list(arguments)


X = lazy()
ITEMS = tuple(lazy((2, 3), key=f"layer_{i}") for i in range(3))
MATCH = regex.compile(r"(?P<n>\d+)/(?P<m>[qkv])(?:/(?P<none>z))?").fullmatch("12/q")
assert MATCH is not None
NAMES: dict[str, Any] = {
    "x": X,
    "b": lazy(dtype=ml_dtypes.bfloat16),
    "xs": Series(ITEMS, (0, 1, 2)),
    "gaps": Series(ITEMS, (0, 1, 3)),
    "plain_xs": Series(ITEMS, None),
    "key": "params/layer_12/q",
    "n": "12",
    "m": "q",
    "i": 3,
    "rate": 0.5,
    "flag": True,
    "shape": (2, 3),
    "matrix": Table("matrix", {"q": "query", "k": "key", 7: "seven"}),
    "sizes": Table("sizes", {"q": 64, "_": 128}),
    "depths": Table("depths", {0: "first", "1": "second", "_": "other"}),
    "g": Groups(MATCH),
    "source": WithString({"a/b": lazy(), "a/c": lazy((6, 4))}),
    "target": Unavailable("no target is given"),
    "hooks": FakeHooks(),
}


def scope(**names: Any) -> Scope:
    return Scope({**NAMES, **names}, "out/key", {r"a/\d": 5}.__getitem__)


def value(text: str, **names: Any) -> Any:
    return parse(text).evaluate(scope(**names))


def function_of(text: str) -> Any:
    array = value(text)
    assert isinstance(array, Array)
    assert isinstance(array.node, Apply)
    return array.node.function


def refusal(text: str) -> ExpressionError:
    """The first error of an expression, from parsing, from the static check, or from evaluating."""
    with pytest.raises(ExpressionError) as caught:
        expression = parse(text)
        for error in check(expression, NAMES, pattern=MATCH.re):
            raise error
        expression.evaluate(scope())
    return caught.value


# --- text, numbers, lists -------------------------------------------------------------------------------


def test_values() -> None:
    for text, expected in (
        ("1 + 2 * 3", 7),
        ("  1 + 2  ", 3),
        ("(1 +\n 2)", 3),
        ("-7 // 2 - 7 % 4", -7),
        ("2 ** 10 / 4", 256.0),
        ("-2 ** 2", -4),
        ("6 & 3 | 8", 10),
        ("~flag", False),
        ("0x10 + 1_000", 1016),
        ("'a' + 'b'", "ab"),
        (r"r'\d' + '\n'", "\\d\n"),
        ("[1, 2] + [3]", [1, 2, 3]),
        ("[1, 2, 3][-2:]", [2, 3]),
        ("key[:6]", "params"),
        ("1 < 2 <= 2", True),
        ("1 < 2 > 5", False),
        ("m == 'q'", True),
        ("(1, 2) == [1, 2]", True),
        ("None == None", True),
        ("'layer' in key", True),
        ("m in matrix", True),
        ("'z' in matrix", False),
        ("3 in range(5)", True),
        ("not m", False),
        ("m and i", 3),
        ("'' or 'else'", "else"),
        ("flag and i > 2 or rate / 0 > 1", True),
        ("'even' if int(n) % 2 == 0 else 'odd'", "even"),
        ("1 / 0 if False else 2", 2),
        ("f'{m}-{int(n):03d}'", "q-012"),
        ("f'{rate:.2f}|{m:>3}|{i}'", "0.50|  q|3"),
        ("f'{m:{i}}|'", "q  |"),
        ("f'{{{m}}}'", "{q}"),
        ("int('7') + len('abc') + len(xs)", 13),
        ("upper(replace(m, 'q', 'query')) + str(1)", "QUERY1"),
        ("matrix[m]", "query"),
        ("depths[int('0')] + depths['1'] + depths['_'] + depths['x']", "firstsecondotherother"),
        ("0 in depths and '1' in depths and 2 not in depths and '2' not in depths", True),
        ("sizes[m] + sizes['anything']", 192),
        ("g[1] + g['m']", "12q"),
        ("g['none']", ""),
        ("count(r'a/\\d')", 5),
        ("has(source['a/b'])", True),
        ("has(source[f'a/{m}'])", False),
        ("has(source['a/string'])", True),
        ("kind(source['a/b'])", "array"),
        ("get(source['a/b'], 1).shape", (4, 6)),
        ("get(source['a/z'], 1)", 1),
        ("source['a/' + 'b'].dtype", "float32"),
        ("(source['a/b']).ndim + source['a/b'].size + len(source['a/b'].shape[:1])", 27),
        ("x.shape[0] + x.ndim + x.size", 30),
        ("b.dtype", "bfloat16"),
        ("sqrt(16) + abs(-2)", 6.0),
    ):
        found = value(text)
        assert found == expected
        assert type(found) is type(expected)


# --- arrays ---------------------------------------------------------------------------------------------


def test_operators_and_calls_on_arrays_become_nodes() -> None:
    assert function_of("1 - x") == Binary("-", 1, None)
    assert function_of("x >= 0.5") == Binary(">=", None, 0.5)
    assert function_of("x @ x.T") == product(2, 2)
    assert function_of("~(x > 0)").op == "not"
    assert value("+x") is X
    assert function_of("transpose(x, axes=[1, 0])") == Transpose((1, 0))
    assert value("rearrange(x, 'a (b c) -> a b c', c=i)").spec.shape == (4, 2, 3)
    assert function_of("mean([x, x * 2])") == ListReduction("mean")
    assert value("take(x, range(0, 4, 2), 0)").spec.shape == (2, 6)
    assert value("(b * 2).dtype") == "bfloat16"


def test_bits_are_cast_from_what_the_user_sees() -> None:
    outer = value("bitcast(b * 2, 'int16')").node
    assert isinstance(outer.function, Bitcast)
    assert outer.inputs[0].function == Rounded(np.dtype(ml_dtypes.bfloat16))
    wide = value("cast(b * 2, 'float32')").node
    assert isinstance(wide.inputs[0].function, Binary)  # an explicit cast sees the wide value


def test_subscripts_of_arrays() -> None:
    for text, items, shape in (
        ("x[-1, 2]", (-1, 2), ()),
        ("x[:, 1:3]", ((None, None, None), (1, 3, None)), (4, 2)),
        ("x[..., None]", (..., None), (4, 6, 1)),
        ("x[:x.shape[0] // 2]", ((None, 2, None),), (2, 6)),
    ):
        assert function_of(text) == Index(items)
        assert value(text).spec.shape == shape


def test_a_call_with_parts_gives_a_list() -> None:
    found = value("quantize(x, 'int8', 1)")
    assert [array.node.function for array in found] == [
        Quantize(np.dtype(np.int8), 1, part) for part in ("values", "scale")
    ]
    assert value("quantize(x, 'int8', 1)[1]").spec.shape == (4, 1)


def test_init_knows_the_key_that_is_made() -> None:
    function = function_of("init('normal', (2, 3), 'float32', 0)")
    assert isinstance(function, Init)
    assert function.leaf_key == "out/key"


def test_xs_is_stacked_with_its_places() -> None:
    assert function_of("stack(xs)") == Stack(places=(0, 1, 2))
    assert function_of("stack(plain_xs, axis=1)") == Stack(axis=1, places=None)
    assert function_of("stack(gaps, fill=0.0)") == Stack(fill=0.0, places=(0, 1, 3))
    assert value("stack(gaps, fill=0.0)").spec.shape == (4, 2, 3)
    assert value("stack(gaps, 0, 0.0, 8)").spec.shape == (8, 2, 3)
    assert value("concat(xs)").spec.shape == (6, 3)
    assert value("xs[1]") is ITEMS[1]
    assert value("xs[1:]") == list(ITEMS[1:])


@pytest.mark.parametrize(
    "text",
    ["stack(gaps, fill=None)", "mean(gaps)", "gaps[0]", "len(gaps)", "concat([x, gaps[0]])"],
)
def test_a_gap_is_an_error_wherever_it_is_not_filled(text: str) -> None:
    error = refusal(text)
    assert error.message == "no leaf is at place 2; `by` gives 0, 1, 3"
    assert "fill=0.0" in (error.hint or "")


def test_hooks_are_called_where_they_are_allowed() -> None:
    assert value("hooks.blend(x, 2)") == ("blend", [X, 2])
    expression = parse("hooks.blend(x)")
    assert "hooks" in expression.names
    with pytest.raises(ExpressionError, match="`hooks` needs a line"):
        expression.evaluate(Scope({"x": X}))


# --- static checks --------------------------------------------------------------------------------------


# --- errors while evaluating ----------------------------------------------------------------------------


def test_errors_point_at_what_they_mean() -> None:
    for text, start, end, message in (
        ("x + m", 0, 5, "`+` does not take an array and the text 'q'"),
        ("[0] * 3", 0, 7, "`*` does not take a list of 1 value and the number 3"),
        ("'%099d' % 1", 0, 11, "`%` does not take"),
        ("n == 12", 0, 7, "`==` cannot compare the text '12' with the number 12"),
        ("n in [12]", 0, 9, "`in` looks for the text '12' in a list of values such as the number 12"),
        ("1 in n", 0, 6, "`in` cannot look for"),
        ("m < None", 0, 8, "cannot compare"),
        ("1 // 0", 0, 6, "1 // 0 divides by zero"),
        ("rate ** -9999", 0, 13, "0.5 ** -9999 is beyond what a float holds"),
        ("(-1) ** 0.5", 0, 11, "-1 ** 0.5 is not a real number"),
        ("f'{1e200 * 1e200}'", 0, 18, "inf cannot be part of a text"),
        ("rate & 1", 0, 8, "`&` does not take"),
        ("~i", 0, 2, "`~` does not take"),
        ("flag and x", 9, 10, "is neither true nor false"),
        ("not x", 4, 5, "is neither true nor false"),
        ("0 < x < 1", 0, 9, "is neither true nor false"),
        ("x[m]", 0, 4, "an array is not indexed with the text 'q'"),
        ("x[[0, 1]]", 0, 9, "an array is not indexed with a list"),
        ("x[rate:]", 0, 8, "the bounds of a slice have to be integers"),
        ("shape[2]", 0, 8, "index 2 is out of bounds for a list of 2 values"),
        ("shape[True]", 0, 11, "a list of 2 values is indexed with an integer, not True"),
        ("i[0]", 0, 4, "the number 3 has no elements"),
        ("'0' in depths", 0, 13, "table `depths` has the entry 0 as an integer, not as text"),
        ("source[1:]", 0, 10, "has to be text, not a slice"),
        ("has(target['a'])", 4, 10, "no target is given"),
        ("kind(matrix['a'])", 0, 17, "`kind` looks into a source"),
        ("1 + kind(source['a/d'])", 4, 23, "`source` has no leaf 'a/d'; did you mean"),
        ("m.shape", 0, 7, "`.shape` is for arrays"),
        ("xs.T", 0, 4, "`.T` is for arrays, not a list of 3 arrays"),
        ("transpose(source)", 0, 17, "a source cannot be an argument"),
        ("f'{x}'", 0, 6, "an array float32[4,6] cannot be part of a text"),
        ("f'{i:.2q}'", 0, 10, "the format '.2q' is not accepted"),
        ("f'{m:d}'", 0, 8, "does not fit"),
        ("count(1)", 0, 8, "takes a regular expression as text"),
        ("'é' + (1 + m)", 7, 12, "`+` does not take"),
    ):
        error = refusal(text)
        assert message in error.message
        assert (error.start, error.end) == (start, end)
        assert error.exit_code == 2


def test_hints_say_what_to_write() -> None:
    for text, hint in (
        ("xs + 1", "stack(xs), concat(xs), mean(xs) and sum(xs) make one array of it."),
        ("x[[0, 1]]", "take(x, [0, 2], axis) takes several elements."),
        ("xs.T", "xs[0] is the first of them."),
    ):
        assert (refusal(text).hint or "").startswith(hint)


# --- escape attempts ------------------------------------------------------------------------------------

AT_THE_START = (
    # Python's own objects
    *("x.__class__", "''.__class__.__base__.__subclasses__()", "x.node", "x.rounded_to_declared()"),
    *(
        "key.format(x)",
        "'a'.join([])",
        "hooks.__class__",
        "hooks._private(x)",
        "hooks.a.b(x)",
        "hooks['f'](x)",
    ),
    *("source.keys()", "matrix.entries", "g.match", "f'{key=}'", "f'{x!s}'"),
    # its functions and modules
    *(
        f"{name}(x, 'node')"
        for name in ("eval", "exec", "open", "getattr", "setattr", "type", "print", "bytes")
    ),
    *("__import__('os').system('id')", "__builtins__", "map(len, xs)", "os.system('id')", "import os"),
    # syntax that is not in the language
    *("lambda: 1", "[i for i in xs]", "{i: i for i in xs}", "del x", "{1, 2}", "{**matrix}", "await x"),
    *("x is not x", "x ^ x", "1 << 9", "b'bytes'", "1j", "transpose", "x()", "xs[0](1)"),
    *("has('a')", "has(source['a'], 1)", "has()", "kind(x)", "count('a', 'b')", "count(pattern='a')"),
    # sizes
    *("9 ** 9 ** 9", "2 ** 4096", "(2 ** 100) * (2 ** 100)", "10.0 ** 999", "0 ** -1", "9" * 4000),
    *("'a' * 1000000000", "[0] * 1000000000", "range(10 ** 12)", "[range(1000000), range(1000000)]"),
    *("f'{1:>1000000000}'", "f'{1:.1000000000f}'", "f'{1:{10 ** 9}}'", "f'{rate:.999f}'"),
    *("einsum('i', range(1000000), range(1000000))", f"int('{'9' * 4000}')", "1" + "+1" * 2000),
    *("-" * 4000 + "1", "not " * 1000 + "x", "(" * 1500 + "1" + ")" * 1500, "[" * 1500 + "]" * 1500),
    *("x" + "[0]" * 1300, "x" + ".T" * 2000, "x" * 5000, "f'{" * 50, "f'{" + "1+" * 500 + "1}'"),
    # not even text
    *("", "   ", "x\x00", "'\ud800'", "'unclosed", "'\\d'"),
)
FURTHER_ON = {
    "f'{x.__class__}'": 3,
    "f'{key:{x.__class__}}'": 8,
    "stack(x for x in xs)": 5,
    "y = x": 2,
    "stack(**matrix)": 6,
    "x[*shape]": 2,
    "1 <> 2": 2,
    "1 + ...": 4,
    "-1e999": 1,
    "len('a' + str(9) + replace('a', 'a', 'b' * 9))": 37,
    "replace(" * 9 + "'aa'" + ", 'a', 'aaaaaaaaaa')" * 9: 24,
    "x +": 2,
    "x[": 1,
}
ESCAPES = {**dict.fromkeys(AT_THE_START, 0), **FURTHER_ON}


@pytest.mark.parametrize(("text", "column"), ESCAPES.items(), ids=[repr(text[:40]) for text in ESCAPES])
def test_escape_attempts_are_refused_with_their_column(text: str, column: int) -> None:
    error = refusal(text)
    assert len(error.message) < 300
    assert 0 <= error.start < error.end <= max(1, len(text))
    if len(text) < 60:
        assert error.start == column


def test_escapes_do_not_reach_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the names are bound to, only the attributes of the language are read."""

    class Trap:
        def __getattribute__(self, name: str) -> Any:
            assert name == "__class__", name
            return super().__getattribute__(name)

    trap = Trap()
    texts = ("trap.T", "trap.node", "trap + 1", "trap[0]", "f'{trap}'", "not trap", "len(trap)", "trap == 1")
    for text in texts:
        with pytest.raises(ExpressionError):
            value(text, trap=trap)


ATOMS = (
    *("x", "xs", "key", "n", "1", "-2", "0.5", "'a'", "None", "(", ")", "[", "]", ",", ":", "+", "*", "**"),
    *("@", "==", "<", " in ", " and ", " not ", " if ", " else ", "f'{", "}'", ".T", ".shape", "stack("),
    *("cast(", "'"),
)


@examples(300)
@given(st.lists(st.sampled_from(ATOMS), max_size=10).map("".join) | st.text(max_size=20))
def test_any_text_gives_a_value_or_an_expression_error(text: str) -> None:
    try:
        expression = parse(text)
        check(expression, NAMES)
        expression.evaluate(scope())
    except ExpressionError as error:
        assert 0 <= error.start < error.end <= max(1, len(text))


def test_an_expression_knows_its_names_and_is_equal_by_its_text() -> None:
    assert parse("x + 1") == parse("x + 1")
    assert hash(parse("x + 1")) == hash(parse("x + 1"))
    assert parse("x + 1") != parse("x+1")
    assert parse("stack(xs) + x.T").names == {"xs", "x"}
    assert [parse(text).single_name for text in (" x ", "x.T")] == ["x", None]


def test_the_names_of_an_output_go_without_a_collection_of_garbage() -> None:
    names = LetNames(Scope({"n": 2}), {"twice": parse("2 * n")})
    assert names["twice"] == 4
    gone = weakref.ref(names)
    del names
    assert gone() is None
