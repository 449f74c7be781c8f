"""Parts in groups and bundles."""

from ckpt_surgery.inference.drafts.parts import (
    KeyPlace,
    Kind,
    RulePart,
    bundles,
    components,
    prefix_of,
    united,
)
from ckpt_surgery.inference.keys.grids import KeyTemplate, grids, places_of

LAYER = KeyTemplate(("h/", "/w"))
OTHER = KeyTemplate(("g/", "/w"))


def part(target: str, *sources: KeyPlace) -> RulePart:
    return RulePart(Kind.MADE, sources, KeyPlace(KeyTemplate((target,)), ()))


def test_prefixes_have_the_numbers_of_their_keys() -> None:
    known = places_of(grids([f"a/h/{n}/b/{m}" for n in range(3) for m in range(3)]))
    assert prefix_of("a/h/2/b/1", 2, known) == KeyPlace(KeyTemplate(("a/",)), (), rest=True)
    assert prefix_of("a/h/2/b/1", 6, known) == KeyPlace(KeyTemplate(("a/h/", "/")), ("2",), rest=True)
    assert prefix_of("a/h/2/b/1", 0, known) == KeyPlace(KeyTemplate(("",)), (), rest=True)
    assert prefix_of("a/h/2/b/1", 8, known).text == "a/h/2/b/"


def test_parts_that_read_one_leaf_are_a_bundle() -> None:
    first, second, third = KeyPlace(LAYER, ("0",)), KeyPlace(LAYER, ("1",)), KeyPlace(OTHER, ("0",))
    parts = [part("x", first), part("y", first), part("y", second), part("z", third)]
    x_and_y, z = bundles(parts)
    assert [list(group) for group in x_and_y] == [[parts[0]], [parts[1], parts[2]]]
    assert z == [[parts[3]]]


def test_components_read_no_leaf_in_common() -> None:
    places = [KeyPlace(LAYER, (str(n),)) for n in range(4)]
    parts = [part("x", places[0], places[1]), part("x", places[2]), part("y", places[1])]
    (bundle,) = bundles(parts)
    alone = components(bundle)
    assert [[p for group in one for p in group] for one in alone] == [[parts[0], parts[2]], [parts[1]]]
    assert [list(group) for group in united(alone)] == [[parts[0], parts[1]], [parts[2]]]
