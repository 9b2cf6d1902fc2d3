"""Public topics as the start of a private window: what documents say of them, and how they move."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from streamlda import StreamLDA
from streamlda.errors import InvalidSettingError, TopicWarning, VocabularyError
from streamlda.guarantee.noise import SeededNoise
from streamlda.learner import feed
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.inference import SMOOTHING
from streamlda.model.topic_model import TopicModel, load
from streamlda.private.learner import PrivateLearner
from streamlda.private.public_start import FitsStatistic, PublicTopics
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import PrivateSettings
from streamlda.private.snapshot_model import notes_of
from streamlda.simulate import PlantedLDA
from streamlda.text.vocabulary import Vocabulary
from tests.private.streams import Run, assert_same_snapshots, check_resumes, sums_of, view_of

K, WORDS = 4, 300
NAMES = [f"word{i}" for i in range(WORDS)]
SLOTS = 3000


@pytest.fixture(scope="module")
def planted():
    return PlantedLDA(K, WORDS, seed=2, topic_concentration=0.1)


@pytest.fixture(scope="module")
def documents(planted):
    planted.seek(0)
    return planted.documents(SLOTS)


def model_of(components, alpha=None, names=NAMES):
    alpha = np.full(len(components), 1 / len(components)) if alpha is None else alpha
    return TopicModel(
        components=components,
        alpha=alpha,
        background=alpha / alpha.sum() @ components,
        vocabulary=None if names is None else Vocabulary.given(names),
    )


@pytest.fixture(scope="module")
def public(planted):
    """The planted topics as 400 public documents would show them."""
    rng = np.random.default_rng(0)
    seen = rng.poisson(8000 * planted.components) + 0.05
    return model_of(seen / seen.sum(axis=1, keepdims=True))


@pytest.fixture(scope="module")
def other_field():
    return model_of(PlantedLDA(K, WORDS, seed=8, topic_concentration=0.1).components)


def settings_for(start, epsilon=1.0, n_components=K, **more):
    return PrivateSettings(
        n_components=n_components,
        n_features=WORDS,
        epsilon=epsilon,
        delta=1e-6,
        documents_per_snapshot=SLOTS,
        public_model=None if start is None else start.digest,
        **more,
    )


def start_of(model, n_components=K):
    return PublicTopics.of(model, n_components, WORDS, NAMES)


class PublicRun(Run):
    def __init__(self, config, start, script=()):
        super().__init__(replace(config, public_model=None), script=script)
        self.learner = PrivateLearner(config, public=start)


def run_of(model, documents, **more):
    start = start_of(model, more.get("n_components", K))
    return PublicRun(settings_for(start, **more), start).add(documents)


def names_of(run):
    return [name for name, _, _ in run.stages]


def topics_of(run):
    return run.snapshots[-1].topics


def test_what_fits_is_the_entropy_less_the_surprise_of_hidden_words():
    start = PublicTopics(np.array([[0.5, 0.2, 0.1, 0.1, 0.1]]), np.ones(1), np.full(5, 0.2), "")
    # One topic: proportions are known. Tokens 0 0 1 1 2 3, of which the second, fourth and sixth
    # are hidden.
    found = sums_of(FitsStatistic(start), view_of([{0: 2, 1: 2, 2: 1, 3: 1}]))
    expected = np.mean(np.log([0.5, 0.2, 0.1])) + np.log(5)
    assert float(found["public_fits"]) == pytest.approx(expected, abs=3e-3)


def test_words_are_found_by_name_and_others_are_as_probable_as_the_median():
    model = model_of(np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]), names=["a", "b", "c"])
    start = PublicTopics.of(model, 5, 4, ["c", "new", "a", "b"])
    words = np.array([0.45, 0.4, 0.4, 0.15])
    background = words / words.sum()
    np.testing.assert_allclose(start.background, background)
    first = np.array([0.1, 0.4, 0.7, 0.2])
    expected = (1 - SMOOTHING) * first / first.sum() + SMOOTHING * background
    np.testing.assert_allclose(start.components[0], expected)
    np.testing.assert_allclose(start.components.sum(axis=1), 1.0)
    assert start.digest == model.digest


@pytest.mark.parametrize(
    ("names", "wanted", "words", "error", "rule"),
    [
        (["a", "b"], 2, ["x"] * 8, VocabularyError, "less than 10% of the words, got share='0.0%'"),
        (["a", "b"], 1, ["a", "b"], InvalidSettingError, "topics=2 n_components=1"),
        (None, 2, ["a", "b"], VocabularyError, "has no words"),
        (["a", "b"], 2, None, VocabularyError, "has other columns"),
        (1, 2, ["a", "b"], VocabularyError, "but hashed or nameless columns, got vocabulary='h"),
    ],
)
def test_a_model_that_is_of_no_use_is_refused(names, wanted, words, error, rule):
    """A number in place of names is of the bits of a hash."""
    components = np.array([[0.9, 0.1], [0.1, 0.9]])
    model = model_of(components, names=names if isinstance(names, list) else None)
    if isinstance(names, int):
        model = replace(model, vocabulary=Vocabulary.hashed(names))
    with pytest.raises(error, match=rule):
        PublicTopics.of(model, wanted, 3 if words is None else len(words), words)


def test_the_digest_tells_models_apart(public):
    others = [
        replace(public, alpha=2 * public.alpha),
        replace(public, components=public.components[::-1].copy()),
        replace(public, vocabulary=Vocabulary.given(NAMES[::-1])),
        replace(public, vocabulary=None),
    ]
    assert len({public.digest, *(other.digest for other in others)}) == 5
    assert replace(public, documents_seen=7).digest == public.digest


def moved(start, sums, noise, n_components):
    released, stddevs = {"shares": sums}, {"shares": noise}
    return start.move_topics(released, stddevs, n_components, None, 100)


def released_sums(start, tokens, topics):
    """Return what a release would hold of that many tokens of each topic, a tenth background."""
    from streamlda.private.responsibilities import weights_of_words

    background = tokens.sum() / 10 * start.background
    sums = np.vstack([tokens[:, None] * topics, background]).T
    return weights_of_words(start.background)[:, None] * sums


def test_topics_are_those_of_the_documents_without_noise_and_public_where_it_hides_all(
    public, planted
):
    start, tokens = start_of(public), np.array([4e6, 3e6, 2e6, 1e6])
    sums = released_sums(start, tokens, planted.components)
    clear = moved(start, sums, 1e-3, K)
    np.testing.assert_allclose(clear.components, planted.components, atol=1e-3)
    np.testing.assert_allclose(clear.prevalence, [0.4, 0.3, 0.2, 0.1], rtol=1e-3)
    hidden = moved(start, sums, 1e8, K)
    errors = [np.abs(found.components - start.components).sum(axis=1) for found in (clear, hidden)]
    assert np.all(errors[1] < 0.05)
    assert np.all(errors[0] > 2 * errors[1])
    # In between, they are nearer to the documents' than the public ones, and than the sums.
    noise = 200.0
    noisy = sums + np.random.default_rng(1).normal(0, noise, sums.shape)
    raw = np.maximum(noisy[:, :K], 0.0).T
    raw /= raw.sum(axis=1, keepdims=True)
    found = moved(start, noisy, noise, K).components
    mean = [np.abs(c - planted.components).sum() for c in (found, raw, start.components)]
    assert mean[0] < 0.8 * min(mean[1:])


def test_a_use_that_noise_may_have_decided_is_warned_of(public, planted):
    start = start_of(public)
    found = moved(start, released_sums(start, np.full(K, 1e6), planted.components), 1e-3, K)
    for fits, doubted in ((60.0, False), (40.0, True)):
        notes = notes_of(replace(found, fits=np.array([fits, 25.0])), K)
        assert notes["public_model"] == {"used": True, "fits": fits, "noise": 25.0}
        assert ["noise may have decided" in each for each in notes["warnings"]] == [True] * doubted


def test_further_topics_are_what_public_ones_do_not_explain(public, planted):
    """Two of four topics are known; the tokens of another went to the first."""
    start = start_of(replace(public, components=public.components[:2], alpha=np.ones(2)))
    seen = (planted.components[0] + planted.components[2]) / 2
    sums = released_sums(start, np.array([2e6, 1e6]), np.vstack([seen, planted.components[1]]))
    found = moved(start, sums, 1e-3, 3)
    whole = moved(start, sums, 1e-3, 2)
    assert matched_l1_error(planted.components[:3], found.components).per_topic.max() < 0.6
    # The same tokens in other parts.
    np.testing.assert_allclose(
        found.prevalence @ found.components, whole.prevalence @ whole.components, atol=1e-9
    )
    assert np.all(found.prevalence > 0)
    assert len(moved(start, sums, 1e-3, 9).components) == 4


def test_a_public_model_that_fits_takes_one_release_and_is_better_than_none(
    public, planted, documents
):
    run, without = run_of(public, documents), Run(settings_for(None)).add(documents)
    assert names_of(run) == ["norms", "public"]
    first, last = run.stages[1][1:]
    assert (run.stages[0][2], last) == (first, SLOTS)
    found = matched_l1_error(planted.components, topics_of(run).components)
    assert found.mean < matched_l1_error(planted.components, public.components).mean
    alone = matched_l1_error(planted.components, topics_of(without).components)
    assert alone.mean > 2 * found.mean


def test_a_public_model_of_another_field_is_left_out(other_field, documents):
    run = run_of(other_field, documents, epsilon=10.0)
    without = Run(settings_for(None, epsilon=10.0)).add(documents)
    assert names_of(run) == names_of(without) == ["norms", "pairs", "triple norms", "triples"]
    assert topics_of(run).fits[0] < 0
    found, expected = (len(topics_of(each).components) for each in (run, without))
    assert found == expected == K


def test_runs_continue_bit_for_bit_and_are_made_of_released_sums_alone(public, documents):
    start, whole = start_of(public), run_of(public, documents)
    for at in (20, 100, 2000):
        check_resumes([PublicRun(settings_for(start), start) for _ in range(2)], documents, at)
    blank = PublicRun(settings_for(start), start, whole.released)
    for _ in whole.released:
        blank.learner.skip(blank.learner.stage.slots_left)
        blank.settle()
    assert_same_snapshots(blank, whole)


def test_an_engine_must_have_the_public_model_of_its_settings(public, other_field):
    config = settings_for(start_of(public))
    for start in (None, start_of(other_field)):
        with pytest.raises(InvalidSettingError, match="not that of the settings"):
            PublicRun(config, start)


def test_the_statement_names_the_model_and_the_bounds_of_what_was_released(public, documents):
    start = start_of(public)
    # At epsilon 8 documents fit by 11 deviations of the noise; at 1 it would hide that once in 400.
    settings = settings_for(start, epsilon=8.0)
    learner = PrivateLearner(settings, ReleaseManager(), vocabulary="public", public=start)
    feed(learner, documents, last=True)
    model = learner.snapshot(Vocabulary.given(NAMES))
    assert model.privacy["public_model"] == model.settings["public_model"] == public.digest
    assert model.privacy["clip_bounds"] == {"shares": {"l2_clip_norm": 1.0, "source": "fixed"}}
    assert [stage["name"] for stage in model.privacy["stages"]] == ["norms", "public"]
    assert model.diagnostics["public_model"]["used"]
    assert model.diagnostics["warnings"] == []
    # Post-processing: a private model may be the start of others.
    assert start_of(model).digest == model.digest


def estimator(**more):
    return StreamLDA(K, epsilon=1.0, delta=1e-6, random_state=0, **more)


def test_an_estimator_begins_with_a_file_a_model_or_a_fit(
    public, planted, documents, tmp_path, monkeypatch
):
    monkeypatch.setattr(StreamLDA, "_new_noise", staticmethod(lambda: SeededNoise(1)))
    public.save(tmp_path / "public")
    planted.seek(SLOTS)
    fitted = StreamLDA(K, random_state=0).fit(planted.documents(400).to_csr())
    X, given = documents.to_csr(), [str(tmp_path / "public"), tmp_path / "public"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", TopicWarning)
        by_file = [estimator(public_model=path).fit(X).components_ for path in given]
        by_model = estimator(public_model=load(given[0])).fit(X)
        by_fit = estimator(public_model=fitted).fit(X)
        by_model_of_fit = clone(estimator(public_model=fitted.to_model())).fit(X)
    for found in by_file:
        np.testing.assert_array_equal(found, by_model.components_)
    np.testing.assert_array_equal(by_fit.components_, by_model_of_fit.components_)
    assert by_fit.diagnostics_["public_model"]["used"]
    with pytest.raises(NotFittedError):
        clone(estimator(public_model=fitted)).fit(X)
    with pytest.raises(InvalidSettingError, match="public_model needs epsilon"):
        StreamLDA(K, public_model=fitted).fit(X)
    with pytest.raises(VocabularyError, match="has other columns"):
        estimator(public_model=fitted).fit(X[:, :200])
