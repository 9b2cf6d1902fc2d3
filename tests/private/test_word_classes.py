"""Frequencies of private words by classes of words from public documents."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidSettingError
from streamlda.private.common_words import Frequencies
from streamlda.private.public_start import PublicTopics
from streamlda.private.word_classes import CLASSES, PublicWords, cluster_words
from streamlda.simulate import PlantedLDA
from streamlda.utils.arrays import named
from tests.private.streams import Run, wide
from tests.private.test_public_start import PublicRun, model_of

D = 2000


def drawn(rng, themes=40):
    """Return private frequencies, and public ones of other themes about the same classes."""
    classes = rng.integers(0, themes, D)
    zipf = rng.permutation(1.0 / np.arange(10, D + 10))
    private, public = (zipf * rng.gamma(1.0, size=themes)[classes] for _ in range(2))
    private *= rng.gamma(8.0, size=D)
    return private / private.sum(), public / public.sum(), classes


def surprise(true, found):
    """Return by how much found frequencies surprise more than true ones, in nats a word."""
    return float(np.sum(true * (np.log(true + 1e-300) - np.log(found))))


def released(true, public, noise, rng):
    sums = 20_000 * true + noise * rng.standard_normal(D)
    found = []
    for of in public:
        frequencies = Frequencies(D, of)
        frequencies.add(sums, noise)
        found.append(frequencies)
    return found


def test_classes_show_words_that_noise_hides():
    rng = np.random.default_rng(1)
    true, public, classes = drawn(rng)
    for noise, least in ((30.0, 0.8), (0.3, 1.0)):
        alone, known = released(true, (None, PublicWords(public, classes)), noise, rng)
        found = [surprise(true, each.distribution()) for each in (alone, known)]
        assert 0 < found[1] <= least * found[0]


def test_classes_of_chance_are_never_used():
    """The sums decide, to the last bit: 30 draws, from least noise to most."""
    rng = np.random.default_rng(2)
    for noise in np.geomspace(0.1, 300.0, 30):
        true, public, classes = drawn(rng)
        order = rng.permutation(D)
        chance = PublicWords(public[order], rng.permutation(classes))
        alone, other = released(true, (None, chance), noise, rng)
        np.testing.assert_array_equal(alone.distribution(), other.distribution())


def test_classes_are_whole_numbers_of_all_words():
    _, public, classes = drawn(np.random.default_rng(3))
    for wrong in (classes[1:], classes - 1, classes.astype(float)):
        with pytest.raises(InvalidSettingError, match=r"a saved state must hold .*classes="):
            PublicWords(public, wrong)


def test_words_of_one_topic_are_of_one_class():
    topics = np.repeat(np.eye(4), 50, axis=1) + 1e-3
    found = cluster_words(topics, np.ones(4)).reshape(4, 50)
    assert np.all(found == found[:, :1])
    assert len(set(found[:, 0])) == 4
    many = cluster_words(PlantedLDA(8, D, seed=1).components, np.ones(8))
    assert many.max() == CLASSES - 1


def test_topics_that_do_not_fit_tell_of_words_all_the_same():
    """Private documents have no topics, and other frequencies than the public ones."""
    rng, names, K = np.random.default_rng(5), [f"w{i}" for i in range(D)], 8
    true, public, classes = drawn(rng, K)
    topics = np.where(classes == np.arange(K)[:, None], public, 1e-9)
    shares = topics.sum(axis=1)
    model = model_of(topics / shares[:, None], shares, names)
    start = PublicTopics.of(model, K, D, names)
    size = {"n_features": D, "n_components": K, "documents_per_snapshot": 4000}
    config = wide(**size, epsilon=1.0, public_model=start.digest)
    rows = DocumentBatch.from_matrix(rng.multinomial(40, true, 4000))
    run, alone = PublicRun(config, start), Run(replace(config, public_model=None))
    found = [each.add(rows).snapshots[-1].topics for each in (run, alone)]
    assert run.stages[1][0] == "common words"
    errors = [surprise(true, topics.background) for topics in found]
    assert errors[0] < 0.8 * errors[1]
    assert "classes" in named(run.engine.state()[0], "public/")
