"""One rule for keys by what they begin and end with."""

import pytest

from ckpt_surgery.inference.endings import by_endings
from ckpt_surgery.inference.key_patterns import Universe
from ckpt_surgery.inference.parts import Kind

STATE = [f"state/{name}/{slot}" for name in ("a/kernel", "b/kernel", "c/scale") for slot in ("m", "v", "vr")]


@pytest.mark.parametrize(
    ("keys", "others", "pattern"),
    [
        ([key for key in STATE if key.endswith("/m")], ["m", "target/m"], "state/.*/m"),
        (["state/a/kernel/v", "state/b/kernel/v"], [], "state/.*/kernel/v"),
        (["state/a/kernel/v", "state/b/kernel/v", "state/c/scale/vr"], [], "state/.*/(?:kernel/v|scale/vr)"),
        (["state/a/kernel/v", "state/c/scale/vr"], [], None),  # what tells the first from others is all of it
        (["state/a/kernel/m"], [], None),  # one key is its own rule
        (["x/m", "state/m"], ["deep/state/m"], None),  # a whole key ends as another one does
    ],
)
def test_patterns(keys: list[str], others: list[str], pattern: str | None) -> None:
    universe = Universe([*STATE, *keys, *others])
    rule = by_endings(Kind.DROPPED, keys, universe)
    assert (None if rule is None else rule.pattern.regex(())) == pattern
    if rule is not None:
        assert universe.matched(rule.pattern).keys() == set(rule.claims) == set(keys)


def test_too_many_endings_are_no_rule() -> None:
    keys = [f"s/{i}/{chr(97 + i)}" for i in range(13)]
    assert by_endings(Kind.FILLED, keys, Universe(keys)) is None
    assert by_endings(Kind.FILLED, keys[1:], Universe(keys)).makes == 12
