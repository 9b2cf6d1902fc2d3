"""Windows that begin with the pairs of common words."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError
from streamlda.model.evaluation import matched_l1_error
from streamlda.private import common_words
from streamlda.private.common_words import Frequencies, OfCommon, topics_of
from streamlda.private.contributions import PairStatistic
from streamlda.private.learner import PrivateLearner
from streamlda.private.public_start import PublicTopics
from streamlda.private.refinement import Refinement
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import DENSE_FEATURES
from streamlda.private.snapshot_model import clip_bounds, notes_of
from streamlda.private.window import PrivateSnapshot
from streamlda.private.word_classes import PublicWords
from streamlda.simulate import PlantedLDA
from tests.oracle import pack_pairs
from tests.private.streams import Run, check_resumes, run, slot_of, sums_of, view_of, wide
from tests.private.test_public_start import PublicRun, model_of

N, V, K = 12_000, 1100, 3
CORPUS = PlantedLDA(K, V, topic_concentration=0.02, mean_length=40, seed=5)
ROWS = CORPUS.documents(N)


SIZE = {"n_features": V, "n_components": K, "documents_per_snapshot": N}
config_of = partial(wide, **SIZE, epsilon=2.0, delta=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"n_features": 500},
        {"refinement_rounds": 0},
        {"solver": "simultaneous"},
        {"mode": "prefix", "snapshots": 3},
    ],
    ids=str,
)
def test_common_words_are_refined_in_large_vocabularies_only(change):
    names = ["norms", "common words", "common pairs", "refine", "choice"]
    assert list(config_of().stages) == names
    assert sum(config_of().stages.values()) == pytest.approx(1.0)
    assert list(config_of(clipping="worst-case").stages) == names[1:]
    off = config_of(**change)
    assert "common pairs" not in off.stages
    assert (config_of().refines, off.refines) == (True, False)
    if change == {"refinement_rounds": 0}:
        assert off.noise_multiplier == pytest.approx(config_of().noise_multiplier, rel=1e-6)


def test_the_statement_says_what_documents_are_clipped_by():
    words = np.arange(4)
    blocks = common_words.statistics(common_words.PAIRS, words, V)
    norms = {block.name: block.l2_clip_norm for of in blocks for block in of.blocks()}
    (first,) = common_words.statistics(common_words.WORDS, None, V)
    (snapshot,) = run(config_of(), ROWS).snapshots
    said = clip_bounds(config_of(), snapshot.bounds)
    assert said.keys() == {"first", "pair", "shares"}
    assert said["first"] == (norms["first"], "fixed") == (first.blocks()[0].l2_clip_norm, "fixed")
    assert said["pair"] == (norms["pair"], "fixed")
    assert said["shares"] == (1.0, "fixed")


def test_pairs_are_those_of_documents_without_their_other_words():
    words = np.array([1, 3, 4])
    whole = [{0: 9, 1: 2, 4: 3}, {3: 3}, {0: 5, 2: 5, 4: 2}, {1: 1, 3: 1, 4: 1}]
    without = [{0: 2, 2: 3}, {1: 3}, {2: 2}, {0: 1, 1: 1, 2: 1}]
    sums = []
    for rows, wrap in ((view_of(whole), True), (view_of(without, 3), False)):
        statistic = PairStatistic(3, None, 0.2, 0.9)
        sums.append(sums_of(OfCommon(statistic, words) if wrap else statistic, rows))
    for name, values in sums[0].items():
        np.testing.assert_array_equal(values, sums[1][name])
    assert sums[0]["pair"].any()


def test_common_words_are_the_most_frequent_ones():
    config = config_of()
    rng = np.random.default_rng(3)
    frequencies = rng.permutation(1.0 / np.arange(1, V + 1) ** 1.5)
    frequencies /= frequencies.sum()
    found = common_words.common_words(frequencies, config)
    assert np.all(np.diff(found) > 0)
    others = np.delete(frequencies, found)
    assert frequencies[found].min() >= others.max()
    assert 5 * K <= len(found) < V
    # More noise, fewer words; not less than there are for the topics, nor more than fit.
    assert len(common_words.common_words(frequencies, config_of(epsilon=0.5))) < len(found)
    assert len(common_words.common_words(frequencies, config_of(epsilon=0.01))) == 5 * K
    large = config_of(n_features=9000, documents_per_snapshot=100_000)
    assert len(common_words.common_words(np.full(9000, 1 / 100), large)) == DENSE_FEATURES


def test_frequencies_are_drawn_together_by_their_noise():
    """Standard error of one estimate over that of two; false-alarm rate below 1e-6."""
    rng = np.random.default_rng(7)
    true = rng.dirichlet(np.full(V, 0.3))
    errors = []
    for noises in ([3.0], [3.0, 1.0], [3.0, 1.0, 1000.0]):
        frequencies = Frequencies(V)
        for noise in noises:
            frequencies.add(20_000 * true + noise * rng.standard_normal(V), noise)
        found = frequencies.distribution()
        assert found.min() > 0
        assert found.sum() == pytest.approx(1.0)
        errors.append(np.abs(found - true).sum())
    assert errors[1] < 0.6 * errors[0]
    assert errors[2] < 1.2 * errors[1]
    with pytest.raises(InsufficientDataError):
        Frequencies(V).add(-np.ones(V), 1.0)


def sums_of_pairs(noise):
    """Pairs of four topics of 20 words each, and noise as it is released."""
    rng = np.random.default_rng(1)
    topics = np.kron(np.eye(4), rng.dirichlet(np.ones(20)))
    packed = pack_pairs(1000 * (topics.T @ topics))
    return topics, packed + noise * rng.standard_normal(len(packed))


def test_topics_of_pairs_are_found_as_far_as_they_stand_out_of_the_noise():
    config, frequencies = config_of(n_components=6), np.full(V, 1 / V)
    words = np.arange(100, 180)
    for noise, least, most in ((0.5, 4, 4), (100.0, 1, 1)):
        topics, packed = sums_of_pairs(noise)
        found = topics_of(packed, noise, words, frequencies, config, 500)
        assert least <= len(found.components) <= most
        np.testing.assert_allclose(found.components.sum(axis=1), 1.0)
        # All that is not common is as in the word frequencies.
        np.testing.assert_allclose(np.delete(found.components, words, axis=1), 1 / V)
        own = found.components[:, words] * V / len(words)
        if most == 4:
            assert matched_l1_error(topics, own).mean < 0.15
        again = topics_of(packed, noise, words, frequencies, config, 500)
        np.testing.assert_array_equal(again.components, found.components)


def test_noise_alone_is_one_topic():
    """Of 40 draws; the largest eigenvalue exceeds the floor by 15 % with probability < 1e-6."""
    config, words = config_of(), np.arange(80)
    rng = np.random.default_rng(2)
    for _ in range(40):
        packed = 3.0 * rng.standard_normal(80 * 81 // 2)
        found = topics_of(packed, 3.0, words, np.full(V, 1 / V), config, 500)
        assert len(found.components) == 1


@pytest.mark.parametrize(
    ("epsilon", "alpha_0", "of_topics", "of_centring"),
    [
        (2.0, 1.0, 1.0, 1.0),
        (2.0, None, 0.12, 0.5),
        (0.3, 1.0, 0.12, 0.5),
        (0.3, 0.3, 0.12, 0.3),
        (0.3, 0.05, 0.05, 0.05),
        (0.3, None, 0.12, 0.5),
    ],
)
def test_a_given_alpha_0_counts_for_less_where_noise_is_loud(
    epsilon, alpha_0, of_topics, of_centring
):
    config = config_of(epsilon=epsilon, alpha_0=alpha_0)
    assert (config.word_noise > 1) == (epsilon == 0.3)
    assert common_words.concentrations(config) == (of_topics, of_centring)
    _, packed = sums_of_pairs(0.5)
    rest = np.arange(80), np.full(V, 1 / V)
    found = topics_of(packed, 0.5, *rest, config, 500)
    assert found.alpha.sum() == pytest.approx(of_topics)
    # Of pairs of independent words a / (a + 1) is taken off.
    quiet = topics_of(packed, 0.5, *rest, config_of(epsilon=2.0, alpha_0=of_centring), 500)
    np.testing.assert_array_equal(found.spectral.pair_eigenvalues, quiet.spectral.pair_eigenvalues)


def test_no_more_topics_than_rounds_can_tell_apart():
    config = config_of(n_components=6, epsilon=0.5)
    _, packed = sums_of_pairs(0.5)
    assert common_words.most_topics(config) == 2
    found = topics_of(packed, 0.5, np.arange(80), np.full(V, 1 / V), config, 500)
    assert len(found.components) == 2


def error_of(snapshot):
    found = snapshot.topics
    missing = np.tile(found.background, (K - len(found.components), 1))
    return matched_l1_error(CORPUS.components, np.vstack([found.components, missing])).mean


def test_topics_are_nearer_than_those_of_moments_where_noise_is_large():
    config, moments = (config_of(epsilon=1.0, refinement_rounds=rounds) for rounds in (1, 0))
    (snapshot,), (other,) = (run(each, ROWS).snapshots for each in (config, moments))
    assert len(snapshot.topics.components) == K
    assert error_of(snapshot) < min(0.35, 0.8 * error_of(other))
    assert snapshot.topics.prevalence.sum() == pytest.approx(1.0)
    assert [record.name for record in snapshot.stages] == list(config.stages)


@pytest.mark.parametrize("stage", ["common words", "common pairs", "refine", "choice"])
def test_a_saved_engine_continues_bit_for_bit(stage):
    config = config_of()
    check_resumes([Run(config), Run(config)], ROWS, slot_of(config, stage))


def useful(preferred, noise, slots=100):
    """Rounds after released sums of all words, and documents that prefer topics so much."""
    config = config_of()
    rng, frequencies = np.random.default_rng(4), Frequencies(V)
    frequencies.add(10_000 * rng.dirichlet(np.full(V, 0.3)) + noise * rng.standard_normal(V), noise)
    words = frequencies.distribution()
    _, packed = sums_of_pairs(1.0)
    start = topics_of(packed, 1.0, np.arange(80), words, config, 500)
    rounds = Refinement(config, start, frequencies)
    said = {"preferred": preferred, "tokens": np.full(len(start.alpha), 9.0)}
    rounds.compare(
        {name: np.array(sums) for name, sums in said.items()}, dict.fromkeys(said, 8.0), slots
    )
    return rounds.topics()


@pytest.mark.parametrize("preferred", [5.0, -5.0])
def test_word_frequencies_are_published_where_documents_prefer_them(preferred):
    found = useful(preferred, 0.1)
    warnings = " ".join(notes_of(found, K)["warnings"])
    assert (len(found.components) > 1) == (preferred > 0)
    assert ("better than word frequencies" in warnings) == (preferred < 0)
    if preferred < 0:
        np.testing.assert_array_equal(found.components[0], found.background)
    assert found.prevalence.sum() == pytest.approx(1.0)


def test_a_model_says_how_its_topics_are_expected_to_predict():
    """Noise of frequencies makes documents less likely, and what they prefer makes them more so."""
    for noise, least, most in ((0.1, 1.0, 1.01), (10.0, 1.12, 1.8)):
        alone, some, many = (useful(preferred, noise) for preferred in (-50.0, 40.0, 80.0))
        notes = [notes_of(found, K) for found in (alone, some, many)]
        said = [each["perplexity_over_frequencies"] for each in notes]
        assert least < said[0]["expected"] < most
        for each, gain in zip(said[1:], (0.1, 0.2), strict=True):
            assert each["expected"] == pytest.approx(said[0]["expected"] * np.exp(-gain))
            assert each["noise"] == pytest.approx(0.02 * each["expected"])
        for found, each, of in zip((alone, some, many), notes, said, strict=True):
            marked = any("no better than their word frequencies" in w for w in each["warnings"])
            assert marked is found.is_useless is (of["expected"] >= 1)
        assert alone.is_useless
        assert some.is_useless is (noise > 1)


def test_the_loss_by_noise_is_what_is_expected():
    """Over 20 draws, of frequencies as the prior has them."""
    rng, losses = np.random.default_rng(6), []
    for _ in range(20):
        true, frequencies = rng.dirichlet(np.full(V, 0.5)), Frequencies(V)
        frequencies.add(20_000 * true + 8 * rng.standard_normal(V), 8.0)
        actual = np.sum(true * np.log(np.maximum(true, 1e-300) / frequencies.distribution()))
        losses.append((frequencies.denoise().surprise, actual))
    expected, actual = np.mean(losses, axis=0)
    assert expected == pytest.approx(actual, rel=0.3)


def test_topics_without_use_give_no_model_unless_it_is_wanted():
    for allowed in (True, False):
        learner = PrivateLearner(
            config_of(), ReleaseManager(), vocabulary="public", publish_useless=allowed
        )
        before = learner.last
        topics = useful(-50.0, 10.0)
        learner.last = PrivateSnapshot(1, topics, (), common_words.BOUNDS)
        learner.model_of = lambda *_: "a model"
        assert (learner.new_model(before) is not None) is allowed
        assert ("privacy.publish_useless" in learner.private.missed) is not allowed
        assert learner.new_model(learner.last) is None


D = 2000


def draw_frequencies(rng, themes=40):
    """Return private frequencies, and public ones of other themes about the same classes."""
    classes = rng.integers(0, themes, D)
    zipf = rng.permutation(1.0 / np.arange(10, D + 10))
    private, public = (zipf * rng.gamma(1.0, size=themes)[classes] for _ in range(2))
    private *= rng.gamma(8.0, size=D)
    return private / private.sum(), public / public.sum(), classes


def test_classes_of_chance_are_never_used():
    """The sums decide, to the last bit: 30 draws, from least noise to most."""
    rng = np.random.default_rng(2)
    for noise in np.geomspace(0.1, 300.0, 30):
        true, public, classes = draw_frequencies(rng)
        order = rng.permutation(D)
        chance = PublicWords(public[order], rng.permutation(classes))
        alone, other = Frequencies(D), Frequencies(D, chance)
        sums = 20_000 * true + noise * rng.standard_normal(D)
        for each in (alone, other):
            each.add(sums, noise)
        np.testing.assert_array_equal(alone.distribution(), other.distribution())


def test_topics_that_do_not_fit_tell_of_words_all_the_same():
    """Private documents have no topics, and other frequencies than the public ones."""
    rng, names, K = np.random.default_rng(5), [f"w{i}" for i in range(D)], 8
    true, public, classes = draw_frequencies(rng, K)
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
    # Surprise over that of the true frequencies, in nats a word.
    errors = [stats.entropy(true, topics.background) for topics in found]
    assert errors[0] < 0.8 * errors[1]
    assert "classes" in start.arrays("")
