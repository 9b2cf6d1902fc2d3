"""Diagnostics of topics by their model: their number, which repeat, which say nothing."""

import numpy as np
import pytest

from streamlda.engine.settings import EngineSettings
from streamlda.model.diagnostics import (
    CLOSEST,
    count_clear_topics,
    exclusivity,
    hellinger,
    junk_topics,
    pair_spectrum,
    warn_of_background,
)
from streamlda.refinement.refine import refine_model
from streamlda.simulate import PlantedLDA
from tests.corpora import LENGTHS, unigram
from tests.engine.kinds import summing
from tests.service.planted import model, shifted, topics


def fit_in_batches(planted, n_components, documents, seed):
    engine = summing(EngineSettings(n_components=n_components, n_features=300, seed=seed))
    for _ in range(documents // 1000):
        engine.add(planted.documents(1000))
    return engine.snapshot()


def suggest(values, noise, **more):
    known = {"pair_eigenvalues": values, "pair_noise": noise, "documents_behind_directions": 50}
    return count_clear_topics({**known, **more})


def test_the_suggested_number_of_topics_equals_values_by_hand():
    for values, noise, k in (
        ([9.0, 8.0, 7.0, 1.2, 1.1, 1.0, 0.9, 0.8], [3.0] * 8, 3),
        # A drop among the topics does not end them.
        ([90.0, 8.0, 7.0, 1.2, 1.1, 1.0, 0.9, 0.8], [3.0] * 3, 3),
        # A last topic that is near the noise, or whose noise was not looked at far enough.
        ([9.0, 8.0, 5.9, 1.2, 1.1, 1.0, 0.9, 0.8], [3.0] * 8, None),
        ([9.0, 8.0, 7.0, 1.2, 1.1, 1.0, 0.9], [3.0] * 7, None),
        # Text falls smoothly into the noise.
        ([9.0, 6.0, 4.5, 3.3, 2.6, 2.0, 1.5, 1.3, 1.2], [3.0] * 9, None),
        ([9.0, 8.0, 7.0], [3.0] * 3, None),
        # One direction is the word frequencies, however clear.
        ([9.0, 1.2, 1.1, 1.0, 0.9, 0.8, 0.7], [3.0] * 7, 0),
        ([1.9, 1.8], [3.0, 3.0], 0),
        ([9.0, 8.0], None, None),
    ):
        assert suggest(values, noise) == k
        # Noise that was drawn from the documents of the projection itself says nothing.
        assert suggest(values, noise, documents_behind_directions=None) is None


def test_diagnostics_of_other_versions_are_read_as_far_as_they_go():
    # The floor continues as high as it was last measured.
    found = pair_spectrum({"pair_eigenvalues": [4.0, 3.0, 2.0, 1.0], "pair_noise": [0.5, 0.4]})
    np.testing.assert_array_equal(found.floor, [0.5, 0.4, 0.4, 0.4])
    assert pair_spectrum({"pair_eigenvalues": [4.0, 3.0], "pair_noise": [0.0, 0.0]}).floor is None
    for known in ({}, {"pair_eigenvalues": None, "pair_noise": None}):
        assert pair_spectrum(known) is None
        assert count_clear_topics(known) is None


def copies(table, **more):
    return [k for k, marks in enumerate(junk_topics(model(table, **more))) if "copy" in marks]


@pytest.mark.statistical
def test_planted_duplicates_are_flagged_and_nothing_else():
    """Over 20 seeds no other pair comes nearer than 0.6: no false alarm is to be expected.

    Flat topics are the closest that chance makes: with 200 words 0.46 apart, give or take 0.02.
    0.39 is 3.4 deviations away: of these 900 pairs 0.3 are expected nearer, and none is.
    """
    for seed in range(20):
        rng = np.random.default_rng(seed)
        table = topics(8, 300, seed=seed)
        table = np.vstack([table, shifted(table[2:3], 0.1), shifted(table[5:6], 0.1)])
        seen = np.array([rng.multinomial(5000, row / row.sum()) for row in table]) / 5000
        assert copies(seen, alpha=np.arange(10.0, 0.0, -1.0)) == [8, 9]
        assert copies(topics(10, 200, seed=seed, concentration=1.0)) == []


def test_junk_is_flagged_and_good_topics_are_not():
    good = topics(5, 300)
    background = shifted(good.mean(axis=0, keepdims=True), 0.05)
    flat = np.full((1, 300), 1 / 300)
    made = model(np.vstack([good, background, flat]), alpha=[1, 1, 1, 1, 1, 0.5, 0.2])
    assert junk_topics(made) == [()] * 5 + [("background",), ("flat",)]
    # Smoothing but for a few words, of which a few tokens were, is named too.
    flat[0, :5] += 0.15
    made = model(np.vstack([good, flat / flat.sum()]), alpha=[1, 1, 1, 1, 1, 0.2])
    assert junk_topics(made) == [()] * 5 + [("flat",)]
    (said,) = warn_of_background(made).diagnostics["warnings"]
    assert "mostly smoothing, spread evenly over all words, of 6: 5;" in said
    # A topic that is most of the corpus is not the background.
    made = model(topics(3, 300), alpha=[90, 5, 5])
    assert hellinger(made.components[:1], made.background[None])[0, 0] < CLOSEST
    assert junk_topics(made) == [()] * 3
    assert junk_topics(model(topics(1, 300), alpha=[1.0])) == [()]


@pytest.mark.statistical
def test_a_fit_of_too_many_topics_flags_those_that_are_not_there():
    """In 40 such fits all 3 were marked and the 4 planted ones were found among the others."""
    for seed in range(4):
        corpus = PlantedLDA(4, 300, topic_concentration=0.05, seed=seed)
        made = fit_in_batches(corpus, 7, 4000, seed)
        good = [k for k, reasons in enumerate(junk_topics(made)) if not reasons]
        assert len(good) == 4
        assert (hellinger(corpus.components, made.components[good]).min(axis=1) < CLOSEST).all()
        corpus.seek(0)
        right = fit_in_batches(corpus, 4, 4000, seed)
        assert junk_topics(right) == [()] * 4


@pytest.mark.statistical
@pytest.mark.parametrize("passes", [0, 3])
def test_no_topic_of_documents_without_topics_is_good(passes):
    """Two directions are seen in less than 1 of 1000 such corpora, see test_support."""
    for seed, lengths in enumerate(LENGTHS):
        documents = unigram(600, 300, lengths, zipf=bool(seed % 2), seed=seed)
        settings = EngineSettings(n_components=4, n_features=300, seed=seed)
        engine = summing(settings)
        engine.add(documents)
        made = refine_model(engine.snapshot(), documents, passes=passes)
        assert all("noise" in reasons for reasons in junk_topics(made))
        assert count_clear_topics(made.diagnostics) == 0
        said = made.diagnostics["warnings"]
        assert sum("no topics beyond their word frequencies" in text for text in said) == 1
        assert not any("stand above" in text for text in said)


def test_exclusivity_is_the_part_of_its_words_that_a_topic_has():
    own = np.kron(np.eye(3), np.full(4, 0.25))
    assert exclusivity(own, n=4).tolist() == [1.0, 1.0, 1.0]
    assert exclusivity(np.tile(own[:1], (5, 1)), n=4) == pytest.approx([0.2] * 5)
    # Words that no topic has count for none.
    assert exclusivity(own[:2], n=8) == pytest.approx([1.0, 1.0])
