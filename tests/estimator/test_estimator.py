"""StreamLDA as scikit-learn sees it, and as a user does."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import sklearn.utils.estimator_checks as checks
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import streamlda
import streamlda.errors
from streamlda import StreamLDA
from streamlda.documents import DocumentBatch
from streamlda.engine.settings import EngineSettings
from streamlda.errors import TopicWarning
from streamlda.model.diagnostics import hellinger
from streamlda.model.evaluation import document_completion, matched_l1_error
from streamlda.model.hierarchy import keep_rows, permute_topics
from streamlda.privacy.clipping import ClipBounds
from streamlda.private.settings import PrivateSettings
from streamlda.settings.build import fit_settings, window_settings
from streamlda.settings.load import settings_of_parameters
from streamlda.simulate import PlantedLDA
from streamlda.utils.threads import limit_threads

ONLINE = {"n_components": 2, "solver": "online-power", "n_restarts": 2, "n_iterations": 2}
FRACTIONAL = "ignore:counts are no whole numbers:UserWarning"
PRIVATE = {"epsilon": 1.0, "delta": 1e-6}
NAMELESS = "ignore:X (does not have valid|has) feature names:UserWarning"
TEXTS = ["late parcel driver", "login password code account"] * 13


@pytest.fixture(scope="module")
def planted():
    return PlantedLDA(4, 120, seed=5, topic_concentration=0.1)


@pytest.fixture(scope="module")
def X(planted):
    planted.seek(0)
    return planted.documents(4000).to_csr()


@pytest.fixture(scope="module")
def fitted(X):
    return StreamLDA(4, random_state=0).fit(X)


# scikit-learn feeds its checks with fractional numbers and fewer words than the default K, and
# skips the array API check where the environment does not switch that on.
@pytest.mark.filterwarnings(FRACTIONAL)
@pytest.mark.parametrize(
    "options",
    [{"n_components": 1}, pytest.param(ONLINE, marks=pytest.mark.long)],
    ids=["default", "online-power"],
)
def test_estimator_passes_all_checks_of_scikit_learn(options):
    results = checks.check_estimator(StreamLDA(**options), on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert failed == {}
    assert skipped <= {"check_array_api_input"}
    assert len(results) > 40


# Their output checks fit a data frame and transform an array.
@pytest.mark.filterwarnings(FRACTIONAL, NAMELESS)
@pytest.mark.parametrize(
    "check",
    [
        checks.check_set_output_transform_pandas,
        checks.check_get_feature_names_out_error,
        checks.check_transformer_get_feature_names_out_pandas,
        checks.check_dataframe_column_names_consistency,
    ],
    ids=lambda check: check.__name__,
)
def test_estimator_passes_feature_name_and_output_checks(check):
    check("StreamLDA", StreamLDA(2))


def test_fit_recovers_planted_topics_and_transform_prefers_the_true_one(fitted, planted):
    assert matched_l1_error(planted.components, fitted.components_).mean < 0.12
    np.testing.assert_allclose(fitted.components_.sum(axis=1), 1.0, rtol=1e-12)
    assert fitted.alpha_0_ == pytest.approx(1.0)
    assert np.all(np.diff(fitted.prevalence_) <= 0)
    assert fitted.diagnostics_["warnings"] == []
    before = pickle.dumps(fitted)
    counts = np.zeros((4, 120))
    for row, topic in enumerate(planted.components):
        counts[row, np.argsort(-topic)[:10]] = 8
    theta = fitted.transform(counts)
    assert pickle.dumps(fitted) == before
    assert sorted(theta.argmax(axis=1)) == [0, 1, 2, 3]
    assert theta.max(axis=1).min() > 0.8
    planted.seek(10_000)
    held_out = planted.documents(500).to_csr()
    uniform = StreamLDA(1, random_state=0).fit(held_out)
    assert fitted.perplexity(held_out) < 0.9 * uniform.perplexity(held_out)
    model, batch = fitted.to_model(), DocumentBatch.from_matrix(held_out)
    scored = document_completion(batch, model.components, model.alpha, model.background)
    found = fitted.score(held_out), fitted.perplexity(held_out)
    assert found == (scored.log_likelihood_nats, scored.perplexity)


ROUNDS = {"warmup_documents": 300, "documents_per_round": 100, "n_restarts": 3, "n_iterations": 3}


@pytest.mark.parametrize(
    "options",
    [{"warmup_documents": 300, "n_components": 8}, {"solver": "online-power", **ROUNDS}],
    ids=["refined", "online-power"],
)
def test_a_stream_gives_equal_bits_cut_read_copied_or_on_another_number_of_threads(X, options):
    rows, new = X[:1500], StreamLDA(**{"n_components": 4, "random_state": 0, **options})
    whole = clone(new).partial_fit(rows)
    assert "refinement" in whole.diagnostics_
    for cuts, threads in (([1, 8, 508, 541], 2), (range(160, 1500, 160), 1)):
        lda = clone(new)
        for number, part in enumerate(np.split(np.arange(1500), cuts)):
            given = rows[part].copy()
            with limit_threads(threads):
                lda.partial_fit(given)
            given.data[:], given.indices[:] = 1.0, 0
            if number == 2:
                assert lda.components_.shape[1] == 120
                lda = pickle.loads(pickle.dumps(lda))
            if number == 3:
                lda = copy.deepcopy(lda)
        assert np.array_equal(lda.components_, whole.components_)
        assert np.array_equal(lda.alpha_, whole.alpha_)
        assert np.array_equal(lda.transform(rows), whole.transform(rows))
        assert lda.documents_seen_ == whole.documents_seen_ == 1500


def test_a_saved_model_reads_counts_and_texts_as_the_estimator_does(fitted, X, tmp_path):
    words = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(120)]
    fitted.to_model(words).save(tmp_path / "model")
    model = streamlda.load(tmp_path / "model")
    np.testing.assert_array_equal(model.components, fitted.components_)
    assert model.vocabulary.words == tuple(words)
    assert model.privacy == {"statement": "not private"}
    assert model.settings["n_components"] == 4
    np.testing.assert_array_equal(model.transform(X[:20]), fitted.transform(X[:20]))
    counts = np.zeros((3, 120))
    counts[0, [0, 5]] = 2, 1
    texts = [f"{words[0]} {words[5]} {words[0]} unknown", "unknown", ""]
    np.testing.assert_array_equal(model.transform(texts), model.transform(counts))
    np.testing.assert_allclose(model.transform(texts)[1], model.alpha / model.alpha_0)
    with pytest.raises(streamlda.errors.VocabularyError, match="a model of matrices has no"):
        fitted.to_model().transform(texts)
    with pytest.raises(ValueError, match="119"):
        model.transform(np.ones((2, 119)))


def test_unfitted_and_cloned_estimators_say_so(fitted):
    for lda in (StreamLDA(), clone(fitted)):
        assert not hasattr(lda, "components_")
        with pytest.raises(NotFittedError):
            lda.perplexity(np.ones((2, 3)))
        for call in (lda.top_words, lda.to_model):
            with pytest.raises(NotFittedError):
                call()


def test_every_parameter_reaches_the_engine():
    topics = {"n_components": 5, "alpha_0": 2.0, "n_restarts": 4, "n_iterations": 3}
    topics |= {"oversampling": 7}
    online = {"documents_per_round": 70, "warmup_documents": 200, "solver": "online-power"}
    given = {**topics, **online, "random_state": 9, "refinement_passes": 0}
    wanted = EngineSettings(**topics, **online, seed=9, refine=False, n_features=60)
    assert fit_settings(settings_of_parameters(given), 60) == wanted
    private = {"epsilon": 2.0, "delta": 1e-6, "documents_per_snapshot": 500, "snapshots": 4}
    private |= {"clipping": ClipBounds(0.5, 0.2, 2.0, "fixed"), "solver": "simultaneous"}
    private |= {"neighboring_relation": "replace-one"}
    private |= {"privacy_unit": "user", "documents_per_user": 2}
    wanted = PrivateSettings(**topics, **private, seed=9, n_features=60)
    given = {**topics, **private, "random_state": 9}
    assert window_settings(settings_of_parameters(given), 60, None) == (wanted, None)
    del private["privacy_unit"], private["documents_per_user"]
    # Refinement is left out by 0, and chosen by the engine for "auto".
    for passes, rounds in ((0, 0), ("auto", None)):
        settings = settings_of_parameters({**private, "refinement_passes": passes})
        assert window_settings(settings, 60, 900)[0].refinement_rounds == rounds


def test_bad_parameters_are_refused_by_name(X):
    for parameters, rule in (
        ({"n_components": 0}, "n_components must be >= 1, got n_components=0"),
        ({"n_components": 10.0}, "n_components must be an integer, got n_components=10.0"),
        ({"n_components": "10"}, "n_components must be a number, got n_components='10'"),
        ({"epsilon": 1.0}, "epsilon needs delta"),
        ({"alpha_0": "automatic"}, "alpha_0 must be a number"),
        ({"refinement_passes": "slow"}, "must be a number"),
        ({"solver": "online-power", **PRIVATE}, "online-power must be left out with epsilon"),
        ({"refinement_passes": "thorough", **PRIVATE}, "must be 0 or auto with epsilon"),
        ({"refinement_passes": 1, **PRIVATE}, "epsilon: a refinement reads documents with"),
    ):
        lda = StreamLDA(**parameters)
        for learn in (lda.fit, lda.partial_fit):
            with pytest.raises(ValueError, match=rule):
                learn(X)
        assert not hasattr(lda, "components_")


def test_bad_counts_are_refused_and_fractional_ones_warned_about(X):
    for number, rule in (
        (-1.0, "Negative values in data"),
        (np.inf, "infinity"),
        (1e12, "more than 2147483648 tokens"),
        (0.0, "fewer than 2 documents have 3 known words or more"),
    ):
        with pytest.raises(ValueError, match=rule):
            StreamLDA(1).fit(np.array([[1.0, number], [2.0, 0.0]]))
    with pytest.warns(UserWarning, match="whole numbers of tokens") as caught:
        StreamLDA(2, random_state=0).fit(X[:200] * 0.5)
    assert caught[0].filename == __file__


def test_topics_keep_their_rows_in_partial_fit(X):
    """Within the warm-up, where topics are made anew each time."""
    for seeds in ((), {"mine": [1, 2, 3]}):
        lda = StreamLDA(4, random_state=0, seed_topics=seeds)
        lda.partial_fit(X[:400])
        shown = lda.components_
        for start in (400, 700, 1200):
            lda.partial_fit(X[start : start + 500])
            apart = hellinger(shown, lda.components_)
            assert linear_sum_assignment(apart)[1].tolist() == list(range(4))
            shown = lda.components_
        model = lda.to_model()
        assert model.names[0] == ("mine" if seeds else None)
        known = {**model.diagnostics, "topic_ids": [5, 6, 7, 8], "following": {"switches": 1}}
        model = replace(model, diagnostics=known)
        turned = permute_topics(model, [0, 3, 1, 2])
        assert turned.diagnostics["topic_ids"] == [5, 8, 6, 7]
        assert turned.diagnostics["topic_npmi"] != model.diagnostics["topic_npmi"]
        again = keep_rows(turned, model)
        assert again.diagnostics == model.diagnostics
        for name in ("components", "alpha", "prevalence"):
            np.testing.assert_array_equal(getattr(again, name), getattr(model, name))


def test_what_the_command_warns_of_is_a_warning_of_python():
    with pytest.warns(TopicWarning) as told:
        lda = StreamLDA(5, random_state=0).fit(TEXTS)
    assert [str(each.message) for each in told] == lda.to_model().diagnostics["warnings"]
    assert {each.filename for each in told} == {__file__}
    lda = StreamLDA(5, random_state=0).partial_fit(TEXTS)
    with pytest.warns(TopicWarning) as told:
        _ = lda.components_
    assert [str(each.message) for each in told] == lda.diagnostics_["warnings"]
    assert {each.filename for each in told} == {__file__}


def test_words_that_later_texts_alone_have_are_said_once():
    lda = StreamLDA(2, random_state=0).partial_fit(TEXTS).partial_fit(TEXTS)
    with pytest.warns(UserWarning, match="^25% of the words of these texts are not those of the"):
        lda.partial_fit([text + " harbour" for text in TEXTS[::2]])
    lda.partial_fit(["harbour ship sail"])
