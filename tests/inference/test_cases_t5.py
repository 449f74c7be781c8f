"""T5 under its three names, with the slots of its optimizer."""

import pytest

from tests.inference.cases import t5
from tests.inference.cases.running import assert_found

VERSIONS = pytest.mark.parametrize("version", ["1.0", "1.1"])


@VERSIONS
def test_hugging_face_and_t5x(version) -> None:
    """By hand: the rules of `@t5x-hf-t5` (10)."""
    _, ours, theirs = t5.values(version, "none")
    target = {key: array for key, array in ours.items() if key.startswith("target/")}
    assert_found(theirs, target, 10)
    assert_found(target, theirs, 10)


@VERSIONS
def test_hugging_face_and_mesh_tensorflow(version) -> None:
    """By hand: attention, relative bias, norms and mlp of two towers (8), the last norms, ends (2)."""
    mesh, _, theirs = t5.values(version, "none")
    variables = {key: array for key, array in mesh.items() if "_slot_" not in key and key != "global_step"}
    assert_found(theirs, variables, 10)
    assert_found(variables, theirs, 10)


@pytest.mark.slow("infers from whole models")
@VERSIONS
@pytest.mark.parametrize("slots", ["whole", "factored"])
def test_mesh_tensorflow_and_t5x(version, slots) -> None:
    """By hand: the rules of `@t5-to-t5x` (16), and one for slots that are not in use. The way back has two
    rules for each of ten kinds of leaves, one for it and one for its slots, and two for step and slots."""
    mesh, ours, _ = t5.values(version, slots)
    inference = assert_found(mesh, ours, 17)
    unused = {key for key, array in ours.items() if array.shape == (1,)}
    assert set(inference.findings.from_target) == unused
    back = assert_found(ours, mesh, 22)
    assert set(back.findings.dropped) == unused
