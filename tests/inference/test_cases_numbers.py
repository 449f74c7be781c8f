"""Numbers in names: what counts from 1, by kind, or stands for a slot of Adam's."""

import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest

from ckpt_surgery import infer
from tests.inference.renames import Renamed
from tests.inference.test_renames import fresh, wrong
from tests.support.trees import nested

Row = tuple[str, str, tuple[int, ...], bool]
"""Keys in the source and in the target, the source's shape, and whether the array is turned."""
TORCH = ("weight", "bias")


def linear(old: str, new: str, rows: int, columns: int, last: tuple[str, str]) -> Iterator[Row]:
    """A matrix and a bias; `last`: their words in the source."""
    torch = last[0] == "weight"
    shape = (columns, rows) if torch else (rows, columns)
    yield f"{old}{last[0]}", f"{new}/kernel", shape, torch
    yield f"{old}{last[1]}", f"{new}/bias", (columns,), False


def norm(old: str, new: str, last: tuple[str, ...]) -> Iterator[Row]:
    """The four leaves of a batch norm; two of a layer norm."""
    for word, other in zip(last, ("scale", "bias", "mean", "var"), strict=False):
        tree = "batch_stats" if other in ("mean", "var") else "params"
        yield f"{old}{word}", f"{tree}/{new}/{other}", (8,), False


def later(name: str, number: int) -> str:
    """The name of a layer in Haiku and Keras."""
    return f"{name}_{number}" if number else name


def keras() -> Iterator[Row]:
    """A CNN of Keras."""
    stats = ("/gamma:0", "/beta:0", "/moving_mean:0", "/moving_variance:0")
    for n in range(3):
        name = later("conv2d", n)
        yield f"{name}/kernel:0", f"params/Conv_{n}/kernel", (3, 3, 8 if n else 3, 8), False
        yield f"{name}/bias:0", f"params/Conv_{n}/bias", (8,), False
        yield from norm(later("batch_normalization", n), f"BatchNorm_{n}", stats)
    for n in range(2):
        yield from norm(later("layer_normalization", n), f"LayerNorm_{n}", stats[:2])
    for n, (rows, columns) in enumerate(((8, 24), (24, 24), (24, 10))):
        name = later("dense", n)
        yield from linear(f"{name}/", f"params/Dense_{n}", rows, columns, ("kernel:0", "bias:0"))


def haiku() -> Iterator[Row]:
    """A transformer of Haiku."""
    for n in range(3):
        for word in ("query", "key", "value", "linear"):
            name = "out" if word == "linear" else word
            yield f"net/h{n}_attn/{word}/w", f"params/block_{n}/attn/{name}/kernel", (8, 8), False
        for number, (rows, columns) in enumerate(((8, 24), (24, 8))):
            old, new = f"net/h{n}_mlp/{later('linear', number)}/", f"params/block_{n}/mlp/Dense_{number}"
            yield from linear(old, new, rows, columns, ("w", "b"))
        for number in (1, 2):
            yield from norm(f"net/h{n}_ln_{number}", f"block_{n}/ln_{number}", ("/scale", "/offset"))


def sequential() -> Iterator[Row]:
    """A CNN in one `Sequential` of PyTorch, whose convolutions and norms Flax counts apart."""
    stats = (".weight", ".bias", ".running_mean", ".running_var")
    for n, channels in enumerate((3, 8, 8)):
        yield f"features.{3 * n}.weight", f"params/conv_{n}/kernel", (8, channels, 3, 3), True
        yield f"features.{3 * n}.bias", f"params/conv_{n}/bias", (8,), False
        yield from norm(f"features.{3 * n + 1}", f"bn_{n}", stats)


def one_list() -> Iterator[Row]:
    """Convolutions and matrices in one list: their biases are alike, and lie beside them."""
    for n, channels in enumerate((3, 8)):
        yield f"net.{2 * n}.weight", f"params/Conv_{n}/kernel", (8, channels, 3, 3), True
        yield f"net.{2 * n}.bias", f"params/Conv_{n}/bias", (8,), False
    for n in range(2):
        yield from linear(f"net.{5 + 2 * n}.", f"params/Dense_{n}", 12, 8, TORCH)


def adam() -> Iterator[Row]:
    """Adam's state as the tuple that it is."""
    trees = {"params": "params", "opt_state/0/1": "opt_state/0/mu", "opt_state/0/2": "opt_state/0/nu"}
    for old, new in trees.items():
        for n in range(2):
            yield f"{old}/fc_{n}/kernel", f"{new}/dense_{n}/kernel", (8, 24), False
            yield f"{old}/fc_{n}/bias", f"{new}/dense_{n}/bias", (24,), False


def encoder() -> Iterator[Row]:
    """PyTorch's encoder of transformers, in words of one's own."""
    for n in range(2):
        old, new = f"encoder.layers.{n}", f"params/layers_{n}"
        yield from linear(f"{old}.linear1.", f"{new}/mlp_in", 8, 24, TORCH)
        yield from linear(f"{old}.linear2.", f"{new}/mlp_out", 24, 8, TORCH)
        for word, other in (("norm1", "norm_attn"), ("norm2", "norm_mlp")):
            yield from norm(f"{old}.{word}", f"layers_{n}/{other}", (".weight", ".bias"))


def critics() -> Iterator[Row]:
    """Two critics and the copies that follow them."""
    modules = {"q1": "critic/qf_0", "q2": "critic/qf_1"}
    modules |= {f"{old}_target": f"target_{new}" for old, new in modules.items()}
    for old, new in modules.items():
        for at, (rows, columns) in enumerate(((8, 32), (32, 32), (32, 1))):
            yield from linear(f"{old}.l{at + 1}.", f"params/{new}/Dense_{at}", rows, columns, TORCH)


def convolutions() -> Iterator[Row]:
    """Convolutions and linear layers in one list."""
    for at, shape in enumerate(((8, 3, 3, 3), (8, 8, 3, 3))):
        yield f"net.{2 * at}.weight", f"params/Conv_{at}/kernel", shape, True
        yield f"net.{2 * at}.bias", f"params/Conv_{at}/bias", (8,), False
        yield from linear(f"net.{2 * at + 5}.", f"params/Dense_{at}", 8, 8, TORCH)


@pytest.mark.each
@pytest.mark.parametrize(
    ("rows", "lost", "gone"),
    [
        (critics, r"q\d\.l\d\.bias", r"params/target_critic/.*/bias"),
        (convolutions, r"net\.[02]\.bias", r"params/Dense_\d/kernel"),
    ],
)
def test_what_the_source_lacks_is_not_made_of_what_the_target_lacks(
    rows: Callable[[], Iterator[Row]], lost: str, gone: str
) -> None:
    one = case(rows())
    source = {key: array for key, array in one.source.items() if not re.fullmatch(lost, key)}
    target = {key: array for key, array in one.target.items() if not re.fullmatch(gone, key)}
    assert wrong(one, infer(nested(source), nested(fresh(target, 0)))) == []


def test_parts_of_a_fused_leaf_do_not_silently_keep_their_own_values() -> None:
    """Two of three, so that sizes alone show nothing."""
    random = np.random.default_rng(0)
    old, new = {}, {}
    for n in range(2):
        mine, theirs = f"layers.{n}.attn.in_proj", f"layers_{n}/attn"
        old |= {f"{mine}_weight": random.random((24, 8)), f"{mine}_bias": random.random(24)}
        new |= {f"{theirs}/{part}/bias": random.random((2, 4)) for part in ("query", "key", "value")}
        new |= {f"{theirs}/{part}/kernel": random.random((8, 2, 4)) for part in ("query", "value")}
    undecided = infer(nested(old), nested(new)).findings.undecided
    assert {key for leaves in undecided for key in leaves.targets} == {key for key in new if "kernel" in key}


def turned(array: np.ndarray) -> np.ndarray:
    """The array as Flax has it where PyTorch has the output first."""
    return array.T if array.ndim == 2 else array.transpose(2, 3, 1, 0)


def case(rows: Iterable[Row]) -> Renamed:
    """Random values in both layouts."""
    random = np.random.default_rng(0)
    source: dict[str, np.ndarray] = {}
    target: dict[str, np.ndarray] = {}
    for old, new, shape, turn in rows:
        source[old] = random.standard_normal(shape).astype(np.float32)
        target[new] = np.ascontiguousarray(turned(source[old]) if turn else source[old])
    return Renamed("", source, target, {})


@pytest.mark.each
@pytest.mark.parametrize("rows", [keras, haiku, sequential, one_list, adam, encoder])
def test_numbers_are_read_as_their_library_means_them(rows: Callable[[], Iterator[Row]]) -> None:
    one = case(rows())
    inference = infer(nested(one.source), nested(fresh(one.target, 0)))
    assert wrong(one, inference) == []
    assert [leaves.targets for leaves in inference.findings.undecided] == []
    assert inference.findings.from_target == ()


def test_a_leaf_is_not_taken_from_a_module_that_is_another_one() -> None:
    vector = np.ones(8)
    old = {"left/w": np.ones((5, 8)), "left/b": vector, "left/c": vector}
    old |= {"right/w": np.ones((7, 8)), "right/c": vector}
    new = {"north/w": np.ones((5, 8)), "north/c": vector}
    new |= {"south/w": np.ones((7, 8)), "south/b": vector, "south/c": vector}
    inference = infer(nested(old), nested(new), values="ignore")
    assert [leaves.targets for leaves in inference.findings.undecided] == [("south/b",)]
