"""StreamLDA in scikit-learn's tools: searches, pipelines, routing, outputs."""

import pickle

import numpy as np
import pytest
import sklearn.utils
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from streamlda import StreamLDA
from streamlda.documents import read_counts
from streamlda.simulate import PlantedLDA


@pytest.fixture(scope="module")
def X():
    return PlantedLDA(3, 100, seed=0).documents(400).to_csr()


def test_searches_and_pipelines_clone_set_and_show_it(X):
    assert isinstance(StreamLDA(), BaseEstimator)
    assert isinstance(StreamLDA(), TransformerMixin)
    search = GridSearchCV(StreamLDA(random_state=0), {"n_components": [1, 3]}, cv=2).fit(X)
    assert search.best_params_ == {"n_components": 3}
    pipe = make_pipeline(StreamLDA(2, random_state=0)).set_params(streamlda__n_components=3)
    assert "StreamLDA(n_components=3, random_state=0)" in repr(pipe)
    frame = pipe.set_output(transform="pandas").fit_transform(X)
    assert frame.columns.tolist() == pipe.get_feature_names_out().tolist()
    np.testing.assert_array_equal(frame, search.best_estimator_.transform(X))
    assert "StreamLDA" in pipe._repr_html_()


def test_an_output_asked_for_goes_with_clones_and_pickles(X):
    lda = StreamLDA(2, random_state=0).set_output(transform="pandas")
    for copy in (clone(lda), pickle.loads(pickle.dumps(lda))):
        assert copy.fit(X).transform(X).columns.tolist() == ["streamlda0", "streamlda1"]


def test_parameters_of_parameters_are_read_and_set():
    lda = StreamLDA(4, public_model=StreamLDA(7))
    assert lda.get_params()["public_model__n_components"] == 7
    assert "public_model__n_components" not in lda.get_params(deep=False)
    assert lda.set_params(public_model__n_components=3, epsilon=1.0).public_model.n_components == 3
    assert repr(lda) == (
        "StreamLDA(epsilon=1.0, n_components=4, public_model=StreamLDA(n_components=3))"
    )
    with pytest.raises(ValueError, match="Invalid parameter 'topics'"):
        lda.set_params(topics=3)


def test_what_fits_take_beside_rows_is_routed(X):
    with sklearn.config_context(enable_metadata_routing=True):
        lda = StreamLDA(2, random_state=0).set_fit_request(analyzer=True)
        assert clone(lda).get_metadata_routing().fit.requests == {"analyzer": True, "users": None}
        assert lda.get_metadata_routing().partial_fit.requests == {"analyzer": None, "users": None}
        # Counts have no analyzer: it came through.
        with pytest.raises(ValueError, match="analyzer"):
            make_pipeline(lda).fit(X, analyzer=str.split)


def test_notebooks_show_parameters_and_attributes_as_configured(X):
    lda = StreamLDA(2, random_state=0).fit(X)
    assert "n_components" in lda._repr_html_()
    assert lda._repr_mimebundle_()["text/plain"] == repr(lda)
    with sklearn.config_context(display="text"):
        assert not hasattr(lda, "_repr_html_")


def test_unknown_and_unfitted_attributes_are_named():
    with pytest.raises(AttributeError, match="'StreamLDA' object has no attribute 'topics'"):
        _ = StreamLDA().topics
    with pytest.raises(AttributeError, match="must be fitted before its topics are read"):
        _ = StreamLDA().components_
    with pytest.raises(NotFittedError):
        StreamLDA().get_feature_names_out()


def test_no_random_state_is_the_global_one_of_numpy_as_scikit_learn_has_it():
    seed = sklearn.utils.check_random_state(0).randint(2**31)
    with_state = StreamLDA(random_state=sklearn.utils.check_random_state(0))
    assert with_state._seed() == seed
    global_one = sklearn.utils.check_random_state(None)
    before = global_one.get_state()
    try:
        global_one.seed(0)
        assert StreamLDA()._seed() == seed
    finally:
        global_one.set_state(before)


class Halved(StreamLDA):
    """With another output."""

    def transform(self, X):
        return 0.5 * super().transform(X)


def test_what_inherits_has_its_own_name_and_output(X):
    lda = Halved(2, random_state=0).set_output(transform="pandas").fit(X)
    assert repr(lda) == "Halved(n_components=2, random_state=0)"
    shares = lda.transform(X)
    assert shares.columns.tolist() == ["halved0", "halved1"]
    np.testing.assert_allclose(shares.sum(axis=1), 0.5)


@pytest.mark.parametrize("kind", [np.uint8, np.int64, bool, np.float32, np.float64])
@pytest.mark.parametrize("dense", [False, True])
def test_rows_of_any_type_are_what_scikit_learns_checks_make_of_them(X, kind, dense):
    """A list takes the way of scikit-learn, a matrix of numbers does not."""
    counts = X.toarray().astype(kind)
    listed, ours = StreamLDA(2, random_state=0), StreamLDA(2, random_state=0)
    listed.fit(counts.tolist())
    ours.fit(counts if dense else type(X)(counts))
    np.testing.assert_array_equal(ours.components_, listed.components_)
    assert ours.n_features_in_ == listed.n_features_in_ == 100
    read = ours._validated(type(X)(counts), reset=False)
    assert np.shares_memory(read_counts(read).word_ids, read.indices)
    assert ours.transform(counts).dtype == (np.float32 if kind is np.float32 else np.float64)
