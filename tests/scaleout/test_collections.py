"""`StreamLDA.fit` of Dask collections: what a fit to the whole matrix gives, or one clear error."""

import itertools
import subprocess
import sys

import dask
import dask.array
import dask.bag
import numpy as np
import pytest
import scipy.sparse
from distributed import Client

from streamlda import StreamLDA
from streamlda.errors import (
    InsufficientDataError,
    InvalidDocumentsError,
    InvalidSettingError,
    VocabularyError,
)
from streamlda.scaleout.faults import ClusterError
from streamlda.simulate import PlantedLDA
from streamlda.stream.vocabulary_choice import VocabularyLearner
from tests.cli.conftest import LETTERS
from tests.kafka.topics import wait_until
from tests.scaleout.conftest import D, cluster_of

pytestmark = pytest.mark.long

ENDS = [0, 900, 900, 901, 2300, 4000]


@pytest.fixture
def current(cluster):
    """A client that Dask hands out, as users have one."""
    with Client(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def X(documents):
    return documents.rows(0, ENDS[-1]).to_csr()


@pytest.fixture(scope="module")
def texts():
    planted = PlantedLDA(3, D, seed=4, mean_length=12, topic_concentration=0.1)
    return [text.translate(LETTERS) for text in planted.texts(ENDS[-1])]


@pytest.fixture(scope="module")
def parts(X):
    return [X[a:b] for a, b in itertools.pairwise(ENDS)]


def delayed(parts):
    return [dask.delayed(part) for part in parts]


def new(**parameters):
    given = {"random_state": 0, "oversampling": 8, "refinement_passes": 0}
    return StreamLDA(3, **given | parameters)


def test_a_collection_gives_what_the_whole_matrix_gives(current, X, parts):
    whole = new(warmup_documents=500).fit(X)
    assert whole.diagnostics_["rounds_finished"] == 1
    array = dask.array.from_array(X.toarray(), chunks=(1100, D))
    for name, collection in (
        ("delayed", delayed(parts)),
        ("futures", current.scatter(parts)),
        ("array", array),
        ("array of csr_array", array.map_blocks(scipy.sparse.csr_array)),
    ):
        found = new(warmup_documents=500).fit(collection)
        for attribute in ("components_", "alpha_", "background_"):
            mine, wanted = getattr(found, attribute), getattr(whole, attribute)
            np.testing.assert_allclose(mine, wanted, 1e-10, 1e-14, err_msg=name)
        rows = whole.transform(collection)
        assert type(rows).__module__.startswith("dask.array")
        np.testing.assert_array_equal(rows.compute(), whole.transform(X), err_msg=name)
        assert found.n_features_in_ == D
        assert found.documents_seen_ == whole.documents_seen_, name
        for of in ("documents_skipped", "rounds_finished"):
            assert found.diagnostics_[of] == whole.diagnostics_[of], name
    # The bound is not empty.
    fewer = new(warmup_documents=500).fit(delayed(parts[:-1]))
    assert np.abs(fewer.components_ - whole.components_).max() > 1e-6


def test_texts_are_read_by_the_words_that_the_command_line_learns(current, texts):
    found = new().fit(dask.bag.from_sequence(texts, npartitions=3))
    words = VocabularyLearner.by(None, 2).learn(texts)
    assert found.vocabulary_.words == words.words
    assert found.to_model().vocabulary.analyzer == words.analyzer
    counts = words.encode(texts).batch.to_csr()
    whole = new().fit(counts)
    lists = new().fit([dask.delayed(list)(texts[a:b]) for a, b in itertools.pairwise(ENDS)])
    for fitted in (found, lists):
        np.testing.assert_allclose(fitted.components_, whole.components_, 1e-10, 1e-14)
    np.testing.assert_allclose(found.transform(texts[:5]), whole.transform(counts[:5]), atol=1e-6)
    # A fit to counts forgets the names.
    assert not hasattr(found.fit(delayed([counts])), "vocabulary_")


def test_a_fit_may_continue_with_further_rows(current, X, parts):
    found = new().fit(delayed([X[:3000]])).partial_fit(X[3000:])
    assert found.documents_seen_ == 3900
    whole = new(warmup_documents=3000).fit(X)
    np.testing.assert_allclose(found.components_, whole.components_, atol=0.02)
    one = new(refinement_passes=3).fit(delayed(parts))
    done = one.diagnostics_["refinement"]
    assert (done["passes"], done["documents"]) == (3, 3900)
    assert (one.documents_seen_, one.diagnostics_["documents_skipped"]) == (3900, 100)
    before = one.components_
    one.set_params(refinement_passes="auto").partial_fit(X[:200])
    assert one.documents_seen_ == 4095
    assert 0 < np.abs(one.components_ - before).max() < 0.05


def test_every_verb_knows_a_collection(current, X, parts, texts):
    """A model of a collection is used on one, or one of a matrix; results are as of the rows."""
    fitted = new().fit(X)
    scores = sum(fitted.score(part) for part in parts if part.shape[0] > 1)
    assert fitted.score(delayed(parts)) == pytest.approx(scores, abs=40)
    blank = X[:2] * 0
    assert fitted.score(delayed([*parts, blank])) == fitted.score(delayed(parts))
    with pytest.raises(InsufficientDataError, match="two non-empty halves"):
        fitted.score(delayed([blank]))
    assert fitted.perplexity(delayed(parts)) == pytest.approx(fitted.perplexity(X), rel=0.02)
    of_parts, of_rows = (new().partial_fit(rows) for rows in (delayed(parts), X))
    np.testing.assert_array_equal(of_parts.components_, of_rows.components_)
    bag = dask.bag.from_sequence(texts, npartitions=3)
    proportions = new().fit_transform(bag).compute()
    assert proportions.shape == (len(texts), 3)


def test_what_cannot_be_learned_from_is_refused_and_changes_nothing(current, X):
    bag, halves = dask.bag.from_sequence, dask.array.from_array(X.toarray(), chunks=(900, 30))
    estimator = new().fit(delayed([X]))
    before = estimator.components_
    for collection, error, wanted in (
        (delayed([X[1:3]]), InsufficientDataError, "usable=2 topics=3"),
        (delayed([X[:0]]), InsufficientDataError, "documents=0 shards=1"),
        (delayed([X, X[:9, :50]]), InvalidDocumentsError, "n_features=50 expected=60.*partition 1"),
        (halves, InvalidDocumentsError, "whole rows"),
        (delayed([X / 2]), InvalidDocumentsError, "whole numbers"),
        (bag([{"text": "a"}]), InvalidDocumentsError, "document=0 type='dict'; take texts out"),
        (bag(["a b c"] * 9 + [5], npartitions=1), InvalidDocumentsError, "document=9 type='int'"),
        (delayed([X[:, :2]]), VocabularyError, "words=2 n_components=3"),
        (dask.delayed(X), InvalidDocumentsError, "pass a list of partitions"),
    ):
        with pytest.raises(error, match=wanted):
            estimator.fit(collection)
    np.testing.assert_array_equal(estimator.components_, before)
    with pytest.raises(InvalidSettingError, match="no quick or thorough fit"):
        new(refinement_passes="thorough").fit(delayed([X]))
    private = StreamLDA(3, epsilon=8.0, delta=1e-6)
    with pytest.raises(InvalidSettingError, match=r"epsilon=8.*streamlda fit --dask"):
        private.fit(delayed([X]))


def test_without_a_cluster_it_says_how_to_get_one(X):
    with pytest.raises(ClusterError, match=r"make one first: distributed\.Cl"):
        new().fit(delayed([X]))
    with cluster_of(1) as own:
        client = Client(own)
    with client:
        wait_until(lambda: client.status != "running")
        with pytest.raises(ClusterError, match="Dask scheduler does not answer"):
            new().fit(delayed([X]))


def test_dask_is_not_imported_for_a_matrix():
    code = (
        "import sys, numpy as np\n"
        "from streamlda import StreamLDA\n"
        "StreamLDA(2).fit(np.ones((9, 5)))\n"
        "assert not {'dask', 'distributed'} & {*sys.modules}, 'imported'\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
