"""Which leaves `inspect` and `diff` are about: those whose keys match, those below a part of a key."""

from collections.abc import Mapping

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.language.patterns import Watch, compile_pattern
from ckpt_surgery.language.scope import ExpressionError

_WHOLE_KEY = "The expression has to match the whole key, as in recipes"


def matching(leaves: Mapping[str, Leaf], match: str | None) -> dict[str, Leaf]:
    """The leaves whose whole keys match a regular expression, as in recipes; all of them if it is None.

    Raises UsageError for what is no regular expression, and RecipeError for one that takes too long.
    """
    if match is None:
        return dict(leaves)
    try:
        pattern = compile_pattern(match)
    except ExpressionError as error:
        raise UsageError(
            f"`match`: {error.message} (at character {error.start + 1} of `{shown(match)}`)"
        ) from None
    watch = Watch()
    return {key: leaf for key, leaf in leaves.items() if watch.fullmatch(pattern, key)}


def below(leaves: Mapping[str, Leaf], under: str | None) -> dict[str, Leaf]:
    """The leaves of the subtree with this key, or the leaf itself; all of them if it is None.

    Raises UsageError where there is none.
    """
    if under is None:
        return dict(leaves)
    start = under.rstrip(SEPARATOR) + SEPARATOR
    found = {key: leaf for key, leaf in leaves.items() if f"{key}{SEPARATOR}".startswith(start)}
    if found or not leaves:
        return found
    level = start.count(SEPARATOR)
    known = dict.fromkeys(SEPARATOR.join(key.split(SEPARATOR)[:level]) for key in leaves)
    raise UsageError(
        f"`under`: no key is below `{shown(under)}`{did_you_mean(start.rstrip(SEPARATOR), known)}",
        hint="Name the first components of keys, such as `params/decoder`.",
    )


def check_matched(match: str | None, found: int, searched: Mapping[str, Leaf]) -> None:
    """Refuse a regular expression that matches none of the keys that were searched. Raises UsageError."""
    if match is None or found or not searched:
        return
    wider = f".*(?:{match}).*" if "|" in match else f".*{match}.*"
    part = matching(searched, wider)
    hint = f"; `{shown(wider)}` matches {len(part):,}." if part else "."
    raise UsageError(
        f"`match`: `{shown(match)}` matches none of {len(searched):,} keys", hint=f"{_WHOLE_KEY}{hint}"
    )
