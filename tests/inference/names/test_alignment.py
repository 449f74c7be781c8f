"""Words of names that mean the same: those that both sides have, short forms, and what pairs teach."""

import numpy as np

from ckpt_surgery.inference.keys.concepts import meaning
from ckpt_surgery.inference.names.alignment import Alignment


def alignment(sources: list[str], targets: list[str]) -> Alignment:
    return Alignment([meaning(one) for one in sources], [meaning(one) for one in targets])


def best(names: Alignment, count: int) -> list[int]:
    """For each source, the number of the target that its name fits best."""
    every = range(count)
    return [int(at) for at in names.compare(every, every).ratios.argmax(axis=1)]


def test_rare_words_that_both_sides_have_tell_most() -> None:
    names = [f"tower/thing/{word}/w" for word in ("ab", "cd", "ef")]
    ratios = alignment(names, names[::-1]).compare(range(3), range(3)).ratios
    assert [int(at) for at in ratios.argmax(axis=1)] == [2, 1, 0]
    np.testing.assert_allclose(ratios, ratios.T)


def test_a_word_that_all_names_have_tells_nothing() -> None:
    plain = alignment(["ab", "cd"], ["ab", "cd"]).compare([0], [0, 1]).ratios
    more = alignment(["tower/ab", "tower/cd"], ["tower/ab", "tower/cd"]).compare([0], [0, 1]).ratios
    assert abs((more - plain).max()) < 0.6


def test_what_one_pair_teaches_counts_for_all() -> None:
    sources, targets = ["fc/kernel", "fc/bias", "ln/bias"], ["linear/kernel", "linear/bias", "norm/bias"]
    names = alignment(sources, targets)
    before = names.compare([1], [1]).ratios[0, 0]
    names.learn([(meaning(sources[0]), meaning(targets[0]))])
    after = names.compare(range(3), range(3)).ratios
    assert after[1, 1] > before
    assert best(names, 3) == [0, 1, 2]


def test_short_forms_are_the_words_that_they_begin() -> None:
    sources, targets = ["G/w", "D/w"], ["discriminator/w", "generator/w"]
    assert best(alignment(sources, targets), 2) == [1, 0]
    two = alignment(["g/w", "h/w"], ["generator/w", "gate_keeper/w"])  # it could be either
    assert two.compare([0], [0]).ratios == two.compare([1], [0]).ratios


def test_names_that_say_different_things_contradict_each_other() -> None:
    names = alignment(["attn/q_proj", "ln/scale", "x/m"], ["attn/key", "dense/kernel", "x/m"])
    assert names.contradict(0, 0)
    assert names.contradict(1, 1)
    assert not names.contradict(2, 2)


def test_words_that_are_elsewhere_are_missed() -> None:
    said = alignment(["a/foo", "b/bar"], ["a/foo", "b/bar"]).compare(range(2), range(2))
    assert said.lacking.tolist() == [[False, True], [True, False]]
    assert (np.diag(said.unexplained) == 0).all()
    assert said.shares.min() >= 0
    assert said.shares.max() < 1
