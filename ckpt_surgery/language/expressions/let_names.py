"""Names that include those of `let`, each evaluated on first use and at most once."""

from collections.abc import Callable, Mapping
from typing import Any

from ckpt_surgery.language.expressions.compiler import errors_at
from ckpt_surgery.language.expressions.parsing import Expression
from ckpt_surgery.language.expressions.scope import ExpressionError, LetError, Scope
from ckpt_surgery.language.expressions.values import bounded_together


class LetNames(dict[str, Any]):
    """The names that the value of one output sees. Looking up a name of `let` evaluates it."""

    def __init__(
        self,
        names: Mapping[str, Any],
        let: Mapping[str, Expression],
        leaf_key: str,
        count: Callable[[str], int] | None,
    ):
        """`leaf_key` and `count`: those of the output's `Scope`."""
        super().__init__(names)
        self._let = let
        self._leaf_key = leaf_key
        self._count = count

    def __missing__(self, name: str) -> Any:
        """Raises KeyError for an unknown name, LetError where an entry fails."""
        expression = self._let[name]
        evaluate = errors_at(
            (0, len(expression.text)), lambda scope: bounded_together(expression.evaluate(scope))
        )
        try:
            value = self[name] = evaluate(Scope(self, self._leaf_key, self._count))
        except LetError:
            raise
        except ExpressionError as error:
            raise LetError(name, error) from None
        return value
