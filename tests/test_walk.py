"""How far one has to read to follow a recipe, and that CONTRIBUTING.md tells this walk."""

import re
from pathlib import Path

from tests.support.ci_scripts import script

ROOT = Path(__file__).parent.parent
MOST_MODULES = 8
MOST_CLIMBS = 30
MODULE = re.compile(r"`((?:inputs|runs|api)/\w+\.py)`")


def test_a_recipe_is_followed_through_few_modules(tmp_path: Path) -> None:
    walk = script("walk").walk_of_apply(tmp_path)
    assert (tmp_path / "out").is_dir()
    assert len(walk.modules) <= MOST_MODULES
    assert walk.climbs <= MOST_CLIMBS
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert set(MODULE.findall(page)) == set(walk.modules)
    named = re.findall(r"`((?:inputs|runs|api|engine|planner|verification)/[\w/]+\.py)`", page)
    assert len(named) >= 8
    assert [name for name in named if not (ROOT / "ckpt_surgery" / name).is_file()] == []
