"""What a model says about its topics: their number, which repeat, which say nothing."""

import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError
from streamlda.model.diagnostics import (
    CLOSEST,
    hellinger,
    junk_topics,
    numbers,
    pair_spectrum,
    redundant_topics,
    suggest_n_components,
)
from streamlda.simulate import PlantedLDA
from tests.service.planted import model, shifted, topics

#: Seeds of a kind of corpus. In 192 fits none suggested another number than was planted, so that
#: with 95 % confidence at most 1.6 % of all do: two or more of 8 differ with probability 0.007.
SEEDS = 8


def fitted(planted, n_components, documents, seed):
    """Return the model of planted documents, in batches of 1000."""
    settings = EngineSettings(
        n_components=n_components, n_features=planted.n_features, seed=seed, alpha_0=1.0
    )
    engine = Engine.of_rounds(settings)
    for _ in range(documents // 1000):
        engine.add(planted.documents(1000))
    return engine.snapshot()


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("planted", "wanted", "words", "documents"),
    [(5, 8, 300, 2000), (10, 4, 500, 10_000), (1, 5, 300, 3000), (6, 6, 300, 12_000)],
)
def test_the_planted_number_of_topics_is_suggested(planted, wanted, words, documents):
    found = []
    for seed in range(SEEDS):
        corpus = PlantedLDA(planted, words, topic_concentration=0.05, seed=seed)
        made = fitted(corpus, wanted, documents, seed)
        found.append(suggest_n_components(made.diagnostics))
    assert sum(each.n_components == planted for each in found) >= SEEDS - 1
    assert {each.basis for each in found} == {"drop"}
    if planted < wanted == 8:  # counting what is above the floor would find too many
        spectrum = pair_spectrum(made.diagnostics)
        assert (spectrum.eigenvalues > spectrum.floor).sum() > 8


@pytest.mark.parametrize(
    ("values", "noise", "k", "basis"),
    [
        ([9.0, 8.0, 7.0, 1.2, 1.1], [1.0] * 5, 3, "drop"),
        # A drop among the topics does not end them.
        ([90.0, 8.0, 7.0, 1.2, 1.1], [1.0] * 3, 3, "drop"),
        # The rest far below the noise: the noise is what counts.
        ([9.0, 1.5, 0.1, 0.01], [1.0] * 4, 1, "drop"),
        ([3.0, 2.2, 1.6, 1.2, 0.9, 0.7], [1.0] * 6, 4, "floor"),
        ([1.4, 0.9, 0.8], [1.0] * 3, 1, "floor"),
        ([9.0, 8.0, 7.0], [1.0] * 3, 3, "all"),
        # A drop to what is no noise does not end them either.
        ([90.0, 80.0, 30.0, 28.0, 26.0], [1.0] * 5, 5, "all"),
        ([90.0, 30.0, 8.0, 4.0, 2.2, 0.9, 0.8], [1.0] * 7, 5, "drop"),
        ([0.9, 0.8], [1.0, 1.0], None, "none"),
        ([9.0, 8.0], [0.0, 0.0], None, "none"),
    ],
)
def test_suggestion_by_hand(values, noise, k, basis):
    found = suggest_n_components({"pair_eigenvalues": values, "pair_noise": noise})
    assert (found.n_components, found.basis) == (k, basis)
    # A private model suggests what the noise left.
    private = {"mixed_with_background": [0.1, 0.2], "pair_eigenvalues": values, "pair_noise": noise}
    hidden = suggest_n_components({**private, "topics_asked": 5})
    assert hidden[:2] == (2, "hidden")
    assert "2 of the 5" in hidden.reason
    assert suggest_n_components({**private, "topics_asked": 2})[:2] == (2, "all")


def test_diagnostics_of_other_versions_are_read_as_far_as_they_go():
    # The floor goes on as high as it was last measured.
    found = pair_spectrum({"pair_eigenvalues": [4.0, 3.0, 2.0, 1.0], "pair_noise": [0.5, 0.4]})
    np.testing.assert_array_equal(found.floor, [0.5, 0.4, 0.4, 0.4])
    assert pair_spectrum({"pair_eigenvalues": [4.0, 3.0], "pair_noise": [0.0, 0.0]}).floor is None
    np.testing.assert_array_equal(numbers({"x": [1, None]}, "x"), [1.0, np.inf])
    assert numbers({}, "x") is None
    for stored in (None, [], "12", ["a"], [True], {"a": 1}, [[1.0]], [1.0, float("nan")]):
        assert pair_spectrum({"pair_eigenvalues": stored}) is None
        assert suggest_n_components({"pair_eigenvalues": stored}).n_components is None


def test_hellinger_equals_its_definition():
    p, q = topics(3, 40_000), topics(2, 40_000, seed=5)
    wanted = [[np.sqrt(((np.sqrt(a) - np.sqrt(b)) ** 2).sum() / 2) for b in q] for a in p]
    np.testing.assert_allclose(hellinger(p, q), wanted, rtol=1e-12)
    assert (np.diag(hellinger(p, p)) == 0).all()
    with pytest.raises(InvalidSettingError, match="same words"):
        hellinger(p, q[:, 1:])


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
        found = redundant_topics(seen)
        assert {(pair.first, pair.second) for pair in found} == {(2, 8), (5, 9)}
        assert [pair.distance for pair in found] == sorted(pair.distance for pair in found)
        assert all(pair.distance < CLOSEST for pair in found)
        assert redundant_topics(topics(10, 200, seed=seed, concentration=1.0)) == []
    alike = redundant_topics(topics(1, 50)[[0, 0, 0]])
    assert [pair[:2] for pair in alike] == [(0, 1), (0, 2), (1, 2)]
    with pytest.raises(InvalidSettingError, match="closest=2"):
        redundant_topics(topics(), closest=2)


def test_junk_is_flagged_and_good_topics_are_not():
    good = topics(5, 300)
    background = shifted(good.mean(axis=0, keepdims=True), 0.05)
    flat = np.full((1, 300), 1 / 300)
    made = model(np.vstack([good, background, flat]), alpha=[1, 1, 1, 1, 1, 0.5, 0.2])
    assert junk_topics(made) == [()] * 5 + [("background",), ("flat",)]
    # A topic that is most of the corpus is not the background.
    made = model(topics(3, 300), alpha=[90, 5, 5])
    assert hellinger(made.components[:1], made.background[None])[0, 0] < CLOSEST
    assert junk_topics(made) == [()] * 3
    assert junk_topics(model(topics(1, 300), alpha=[1.0])) == [()]


def test_what_the_fit_knows_of_its_noise_is_told():
    notes = {"topic_supported": [True, False, True], "mixed_with_background": [0.1, 0.2, 0.7]}
    made = model(topics(3, 300), diagnostics=notes)
    assert junk_topics(made) == [(), ("noise",), ("hidden",)]
    short = model(topics(3, 300), diagnostics={"topic_supported": [False]})
    assert junk_topics(short) == [()] * 3


@pytest.mark.statistical
def test_a_fit_of_too_many_topics_flags_those_that_are_not_there():
    # The noise beyond the planted 4 becomes topics near the background, or splits one in two. In
    # 8 of 8 seeds 3 topics or more were flagged, and in none a fit of 4.
    for seed in range(4):
        corpus = PlantedLDA(4, 300, topic_concentration=0.05, seed=seed)
        made = fitted(corpus, 7, 4000, seed)
        junk = {k for k, reasons in enumerate(junk_topics(made)) if reasons}
        repeats = {pair.second for pair in redundant_topics(made.components)}
        assert len(junk | repeats) >= 3
        nearest = hellinger(corpus.components, made.components).argmin(axis=1)
        assert not junk & set(nearest.tolist())
        corpus.seek(0)
        right = fitted(corpus, 4, 4000, seed)
        assert junk_topics(right) == [()] * 4
        assert redundant_topics(right.components) == []
