"""Recipes that nobody means well with: any functions on any values, in any fields."""

import inspect

from hypothesis import strategies as st

from ckpt_surgery.functions.registry import registry
from ckpt_surgery.functions.signatures import signature_of

LEAVES = {
    "a": "float32[4,6]",
    "b/0": "bfloat16[4,6]",
    "b/1": "bfloat16[4,6]",
    "c/1/w": "int8[3]",
    "c/2/w": "int64[0,5]",
    "d": "bool[2,1,3]",
    "s": "float64[]",
    "t": "string",
}

NUMBERS = st.sampled_from(
    ["0", "1", "2", "-1", "3", "7", "64", "2**31", "2**63", "-2**63", "10**12", "10**30", "0.5", "-0.0",
     "1e308", "1e-320", "True", "None"]
)  # fmt: skip
TEXTS = st.sampled_from(
    ["''", "'a'", "'a b -> b a'", "'(a b) c -> a b c'", "'... a -> a ...'", "'ij->ji'", "'ij,jk->ik'",
     "'ii'", "'float32'", "'bfloat16'", "'int4'", "'uint64'", "'float8_e4m3fn'", "'complex64'", "'normal'",
     "'orthogonal'", "'saturate'", "'inf'", "'b/.*'", "'(a|aa)+$'", "'('", "'" + "9" * 5000 + "'", "key", "n",
     "g[1]", "g['n']", "f'{n}{key:>99}'", "f'{0.1:.99f}'", "table[n]", "r'\\d'"]
)  # fmt: skip
ARRAYS = st.sampled_from(
    ["x", "x", "x", "xs", "source['a']", "source[key]", "source['b/0']", "source['d']", "source['s']", "p"]
)


def lists(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(items, max_size=4).map(lambda parts: f"[{', '.join(parts)}]"),
        st.lists(items, min_size=1, max_size=4).map(lambda parts: f"({', '.join(parts)},)"),
        st.sampled_from(["range(3)", "range(10**6)", "range(5, -5, -2)", "x.shape", "xs", "sources", "big"]),
    )


OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "==", "<", ">=", "in", "and", "or"]
KEYWORDS = sorted(
    {
        name
        for function in registry().values()
        for name in (
            signature_of(function, function.name).keywords
            if isinstance(function, type)
            else inspect.signature(function).parameters
        )
    }
)


@st.composite
def calls(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    name = draw(st.sampled_from([*sorted(registry()), "count", "has", "get", "kind"]))
    given = draw(st.lists(st.one_of(inner, lists(inner)), max_size=4))
    given[:0] = draw(st.sampled_from([[], ["x"], ["xs"], ["x", "x"], ["source['a']"]]))
    named = draw(st.dictionaries(st.sampled_from(KEYWORDS), st.one_of(inner, lists(inner)), max_size=2))
    return f"{name}({', '.join([*given, *(f'{k}={v}' for k, v in named.items())])})"


@st.composite
def subscripts(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    bound = st.one_of(st.just(""), NUMBERS)
    item = st.one_of(
        inner, st.just("..."), NUMBERS, st.tuples(bound, bound, bound).map(":".join), st.just("None")
    )
    items = draw(st.lists(item, min_size=1, max_size=3))
    return f"({draw(inner)})[{', '.join(items)}]"


def deeper(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        calls(inner),
        calls(inner),
        subscripts(inner),
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["-", "+", "~", "not "]), inner).map(lambda t: f"({t[0]}{t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        inner.map(lambda t: f"({t}).T"),
        st.tuples(inner, st.sampled_from(["shape", "dtype", "ndim", "size"])).map(
            lambda t: f"({t[0]}).{t[1]}"
        ),
        inner.map(lambda t: f"f'{{{t.replace(chr(39), chr(34))}}}'"),
        lists(inner),
    )


EXPRESSIONS = st.recursive(st.one_of(ARRAYS, ARRAYS, NUMBERS, TEXTS), deeper, max_leaves=6)
PATTERNS = st.sampled_from(
    ["a", "s", ".*", r"b/(?P<n>\d)", r"c/(?P<n>\d)/(.*)", "(?P<n>.)(.*)", "(?:(a|aa)+)+$", "nothing", "[abs]"]
)
KEYS = st.one_of(
    st.sampled_from(
        ["z", "z/${n}", r"z/\1", r"\g<n>", "z/[0]", "${key}/q", "b", "z${i}", "[${i}]", "z/[00]"]
    ),
    EXPRESSIONS.map(lambda text: f"z/${{{text}}}"),
)
VARIABLES = st.dictionaries(
    st.sampled_from(["i", "j"]),
    st.one_of(
        st.sampled_from(["range(2)", "range(0)", "range(10**6)", "[1, 'q']", "xs", "big"]), EXPRESSIONS
    ),
    min_size=1,
    max_size=2,
)


@st.composite
def rules(draw: st.DrawFn) -> dict[str, object]:
    fields: dict[str, object] = {}
    kind = draw(st.sampled_from(["match", "match", "match", "add", "fill"]))
    fields[kind] = draw(PATTERNS if kind != "add" else KEYS)
    if kind == "match" and draw(st.booleans()):
        several = st.dictionaries(KEYS, EXPRESSIONS, min_size=1, max_size=3)
        fields["to"] = draw(st.one_of(KEYS, KEYS, several))
    if kind == "match" and draw(st.integers(0, 3)) == 0:
        fields["by"] = draw(st.one_of(EXPRESSIONS, st.sampled_from(["int(n)", "n", "int(n) * 10**15"])))
    if kind in ("match", "add") and draw(st.integers(0, 2)) == 0:
        fields["for"] = draw(VARIABLES)
    if kind == "fill" and draw(st.booleans()):
        fields["from"] = draw(KEYS)
    if draw(st.integers(0, 3)) == 0:
        fields["when"] = draw(EXPRESSIONS)
    if not isinstance(fields.get("to"), dict):
        fields["value"] = draw(EXPRESSIONS)
    fields["optional"] = draw(st.booleans())
    return fields


@st.composite
def recipes(draw: st.DrawFn) -> dict[str, object]:
    """The document of a recipe."""
    passes = draw(
        st.lists(
            st.lists(rules(), min_size=1, max_size=3).map(lambda r: {"rules": r}), min_size=1, max_size=3
        )
    )
    return {
        "version": 1,
        "params": {"p": draw(st.sampled_from([3, -1, 0.5, "float32", "a b -> b a"])), "big": [10**15, 1, 2]},
        "tables": {"table": {"0": 2**62, "1": "x" * 3000, "_": "int8"}},
        "unmatched": draw(st.sampled_from(["keep", "drop", "error"])),
        "passes": passes,
    }
