"""Damaged files of every layout: each is read, or refused with a message; nothing else, in bounded memory."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import strategies as st

from ckpt_surgery.core.errors import SourceError, UsageError
from tests.fuzz.fuzzing import capped, damaged, damages, fuzz
from tests.support import checkpoints
from tests.support.directories import files_of
from tests.support.libraries import ORIGINS, Arrays
from tests.support.reading import opened, values

LAYOUTS: Mapping[str, Callable[[Arrays, Path], object]] = {
    **{name: origin.save for name, origin in ORIGINS.items() if name != "orbax"},
    **{
        f"orbax {name}": (lambda _, path, name=name: checkpoints.LAYOUTS[name](path))
        for name in ("plain-zarr2", "ocdbt-zarr3", "v1", "steps")
    },
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_damaged_checkpoint(name: str, tmp_path: Path) -> None:
    origin = ORIGINS.get(name)
    place = tmp_path / "x"
    place.mkdir()
    path = place / f"x{origin.suffix if origin else ''}"
    LAYOUTS[name](origin.arrays if origin else {}, path)
    # Large and small files take turns: most bytes of most checkpoints are elements, which mean nothing.
    files = files_of(place)
    random.Random(0).shuffle(files)
    source = path if path.exists() else place
    assert values(opened(source))

    def check(example: tuple[int, object]) -> None:
        number, changes = example
        file = files[number % len(files)]
        whole = file.read_bytes()
        file.write_bytes(damaged(whole, changes))
        try:
            values(opened(source))
        except (SourceError, UsageError) as error:
            assert str(error)
            assert len(str(error)) < 2000
        finally:
            file.write_bytes(whole)

    with capped():
        fuzz(check, st.tuples(st.integers(0, 10**6), damages()))
