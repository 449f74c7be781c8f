"""The package itself: its names, and what `dir`, `help` and signatures show of them."""

import inspect
import pydoc
import re
from types import ModuleType

import pytest

import ckpt_surgery


@pytest.mark.each
@pytest.mark.parametrize("name", ckpt_surgery.__all__)
def test_public_names_are_found_where_they_are_defined_and_spell_out_their_signatures(name: str) -> None:
    found, module = getattr(ckpt_surgery, name), f"ckpt_surgery.{ckpt_surgery._MODULES[name]}"
    if isinstance(found, ModuleType):
        assert found.__name__ == module == f"ckpt_surgery.{name}"
    else:
        assert (found.__name__, found.__module__) == (name, module)
    if inspect.isroutine(found):
        parameters = inspect.signature(found).parameters.values()
        open_ended = {"from_t5x_translator": ["options"]}  # which go to the translator's own functions
        assert [one.name for one in parameters if one.kind is one.VAR_KEYWORD] == open_ended.get(name, [])


def test_names_of_the_package() -> None:
    assert sorted(ckpt_surgery._MODULES) == ckpt_surgery.__all__ == dir(ckpt_surgery)
    assert ckpt_surgery.schema()["title"] == "ckpt-surgery recipe"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ckpt_surgery.nothing  # type: ignore[attr-defined]


def test_help_lists_public_names_with_first_sentences_and_nothing_else() -> None:
    text = pydoc.plain(pydoc.render_doc(ckpt_surgery))
    described = text.partition("\nDESCRIPTION\n")[2].partition("\n\nPACKAGE CONTENTS\n")[0]
    listed = re.findall(r"^    (\w+): (.+)\.$", described, re.MULTILINE)
    assert [name for name, _ in listed] == ckpt_surgery.__all__
    assert dict(listed)["apply"] == ("Run a recipe or a plan, and publish the result at `dst`")
    assert all(". " not in sentence for _, sentence in listed)
    inside = {*vars(ckpt_surgery)} - {*dir(ckpt_surgery)} - {"__main__"}
    assert {"_MODULES", "importlib"} <= inside
    shown = re.findall(r"^    (?:class )?(\w+)\b", text.partition("\nCLASSES\n")[2], re.MULTILINE)
    assert inside.isdisjoint(shown)
