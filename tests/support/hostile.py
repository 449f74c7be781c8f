"""Recipes that nobody means well with: any functions of any values, in any fields, made from a number."""

from dataclasses import dataclass
from random import Random
from typing import Any

from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions.calls import LISTS, is_required, signature_of, types_of

LEAVES = {
    "a": "float32[4,6]",
    "b/0": "bfloat16[4,6]",
    "b/1": "bfloat16[4,6]",
    "c/1/w": "int8[3]",
    "c/2/w": "int64[0,5]",
    "d": "bool[2,1,3]",
    "e": "float32[4,6]",
    "s": "float64[]",
    "t": "string",
}
NUMBERS = [
    "0", "1", "2", "-1", "3", "4", "6", "24", "64", "2**31", "2**63 - 1", "-2**62", "10**12", "2**100", "0.5",
    "-0.0", "1e308", "1e-320", "True", "None", "big[0]", "p",
]  # fmt: skip
TEXTS = [
    "''", "'a'", "'a b -> b a'", "'(a b) c -> a b c'", "'... a -> a ...'", "'ij->ji'", "'ij,ij->ij'", "'ii'",
    "'float32'", "'bfloat16'", "'int4'", "'uint64'", "'int8'", "'float8_e4m3fn'", "'complex64'", "'normal'",
    "'lecun_normal'", "'orthogonal'", "'saturate'", "'inf'", "'b/.*'", "'(a|aa)+$'", "'('", "key", "n",
    "g[1]", "f'{key:>99}'", "f'{0.1:.99f}'", "table[n]", "r'\\d'", "replace(f'{1:999}', ' ', f'{1:99}')",
]  # fmt: skip
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "==", "<", ">=", "in", "and", "or"]
PATTERNS = [
    "(?P<n>a)(.*)", r"(?P<n>[be])(.*)", r"b/(?P<n>\d)(.*)", r"c/(?P<n>\d)/(.*)", "(?P<n>.)(.*)", "(?P<n>s)()",
    "(?P<n>(?:(a|aa)+)+)$", "(?P<n>nothing)()", "(?P<n>[abe]).*()",
]  # fmt: skip


@dataclass
class Hostile:
    """Makes one recipe."""

    random: Random
    arrays: tuple[str, ...] = ()
    """What stands for arrays where an expression is made."""
    texts: tuple[str, ...] = ()

    def recipe(self) -> dict[str, Any]:
        """The document."""
        count = self.random.choice([1, 1, 2, 3])
        passes = [{"rules": [self.rule() for _ in range(self.random.randint(1, 3))]} for _ in range(count)]
        return {
            "version": 1,
            "params": {"p": self.random.choice([3, -1, 0.5, "float32", "a b -> b a"]), "big": [10**15, 1, 2]},
            "tables": {"table": {"0": 2**62, "1": "x" * 300, "_": "int8"}},
            "unmatched": self.random.choice(["keep", "keep", "drop", "error"]),
            "passes": passes,
        }

    def rule(self) -> dict[str, Any]:
        if self.random.random() < 0.2:
            return self.add()
        pick = self.random.choice
        fields: dict[str, Any] = {"match": pick(PATTERNS), "optional": True}
        self.arrays, self.texts = ("x", "x", "source['a']", "source['s']"), tuple(TEXTS)
        variable = self.random.random() < 0.25
        if variable:
            fields["for"] = {"i": self.values()}
        shape = self.random.random()
        if shape < 0.25:
            fields["to"] = "z" + ("/${i}" if variable else "")
            fields["value"] = self.gathering()
            if self.random.random() < 0.3:
                fields["by"] = pick(["n", "int(n)", "int(n) * 10**15", "len(n)", self.expression(2)])
        elif shape < 0.4:
            ends = "/${i}" if variable else ""
            fields["to"] = {
                f"z{j}/${{key}}{ends}": self.expression() for j in range(self.random.randint(1, 3))
            }
        else:
            ends = "/${i}" if variable else ""
            fields["to"] = (
                pick(["\\g<n>\\2", "z/\\2", "${key}/q", f"z/${{{self.expression(2)}}}", "[0]/\\2"]) + ends
            )
            fields["value"] = self.expression()
            if self.random.random() < 0.3:
                fields |= self.named()
        if self.random.random() < 0.2:
            fields["when"] = self.expression(2)
        return fields

    def named(self) -> dict[str, Any]:
        """A value, and names that it may use."""
        arrays, let = self.arrays, {}
        for name in ("u", "v"):
            let[name] = self.expression(2)
            self.arrays += (name, name)
        value = self.expression()
        self.arrays = arrays
        return {"let": let, "value": value}

    def add(self) -> dict[str, Any]:
        self.arrays = ("source['a']", "source['b/0']", "source['d']", "zeros((2, 3), 'float32')")
        self.texts = tuple(text for text in TEXTS if "n" not in text.split("[") and text not in ("key", "n"))
        self.texts = tuple(t for t in self.texts if not any(w in t for w in ("g[", "key", "[n]")))
        fields: dict[str, Any] = {"add": f"new{self.random.randint(0, 9)}", "value": self.expression()}
        if self.random.random() < 0.5:
            fields["for"] = {"i": self.values(), "j": self.values()}
            fields["add"] += "/${i}/${j}"
        return fields

    def values(self) -> str:
        if self.random.random() < 0.2:
            return self.expression(1)
        return self.random.choice(["range(2)", "range(0)", "range(10**6)", "[1, 'q', '']", "big", "sources"])

    def gathering(self) -> str:
        """An expression of `xs`."""
        inner = self.random.choice(["xs", "xs", "[xs[0], xs[0]]", "xs[1:]"])
        name = self.random.choice(["stack", "stack", "concat", "mean", "sum", "max", "len", "minimum"])
        more = self.random.choice(["", "", ", axis=1", ", axis=-1", ", fill=0, count=10**12", ", fill=0.5"])
        return f"{name}({inner}{more})" + self.random.choice(["", "", ".T", "[0]", " * 2", "[1:]"])

    def expression(self, depth: int = 3) -> str:
        pick, chance = self.random.choice, self.random.random()
        if depth == 0 or chance < 0.15:
            return pick([pick(self.arrays), pick(self.arrays), pick(NUMBERS), pick(self.texts)])
        if chance < 0.55:
            return self.call(depth)
        if chance < 0.7:
            return self.subscript(depth)
        one, other = self.array(depth - 1), self.expression(depth - 1)
        return pick(
            [
                f"({one} {pick(OPERATORS)} {other})",
                f"({one} {pick(OPERATORS)} {other})",
                f"({other} {pick(OPERATORS)} {one})",
                f"({pick(['-', '+', '~', 'not '])}{other})",
                f"({one} if {other} else {one})",
                f"({one}).T",
                f"({other}).{pick(['shape', 'dtype', 'ndim', 'size'])}",
                self.listed(depth),
            ]
        )

    def array(self, depth: int) -> str:
        return self.random.choice(self.arrays) if self.random.random() < 0.5 else self.expression(depth)

    def listed(self, depth: int) -> str:
        items = [self.expression(depth - 1) for _ in range(self.random.randint(0, 3))]
        return self.random.choice(
            [f"[{', '.join(items)}]", f"({''.join(i + ', ' for i in items)})", "range(3)", "range(10**6)",
             "range(5, -5, -2)", f"({self.array(0)}).shape", "[0, 1]", "(1, 0)", "(10**9, 10**9)", "(2, 3)",
             "big"]
        )  # fmt: skip

    def subscript(self, depth: int) -> str:
        bound = lambda: self.random.choice(["", "0", "1", "-1", "3", "2**62", "-2"])  # noqa: E731
        items = [
            self.random.choice([f"{bound()}:{bound()}:{bound()}", bound() or "0", "...", "None", ":"])
            for _ in range(self.random.randint(1, 3))
        ]
        return f"({self.array(depth - 1)})[{', '.join(items)}]"

    def call(self, depth: int) -> str:
        """A call whose arguments are as many as the function takes, and of the right kind, mostly."""
        name = self.random.choice(sorted(registry()))
        function = registry()[name]
        given = []
        for parameter in signature_of(function).parameters:
            required, types = is_required(parameter), types_of(parameter.annotation)
            if not required and self.random.random() < 0.6:
                continue
            if self.random.random() >= 0.9:
                value = self.static(depth - 1)
            elif parameter.annotation is Any:
                value = self.expression(depth - 1)
            elif Array in types:
                value = self.array(depth - 1)
            elif not LISTS.isdisjoint(types):
                value = f"[{self.array(depth - 1)}, {self.array(depth - 1)}]"
            else:
                value = self.static(depth - 1)
            given.append(value if required else f"{parameter.name}={value}")
        if signature_of(function).free is not None and self.random.random() < 0.5:
            given.append(
                f"{self.random.choice(['a', 'b', 'stddev', 'in_axis'])}={self.random.choice(NUMBERS)}"
            )
        return f"{name}({', '.join(given)})"

    def static(self, depth: int) -> str:
        pick = self.random.choice
        kinds = [pick(NUMBERS), pick(["0", "1", "-1", "2"]), pick(self.texts), self.listed(max(1, depth))]
        return pick(
            [*kinds, pick(["'float32'", "'bfloat16'", "'int8'"]), pick(["'ij->j'", "'a b -> (a b)'"])]
        )


def hostile_recipe(number: int) -> dict[str, Any]:
    """The document of a recipe, the same for the same number."""
    return Hostile(Random(number)).recipe()
