"""Input that `StreamLDA` takes, or refuses without a change or a word of a document."""

import pickle
from collections import Counter, deque
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from streamlda import StreamLDA, load
from streamlda.engine.engine import Engine
from streamlda.errors import InvalidDocumentsError
from streamlda.model.diagnostics import hellinger
from streamlda.simulate import PlantedLDA
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.texts import TokenizedText, read_texts
from tests.estimator.test_estimator import X, fitted, planted

__all__ = ["X", "fitted", "planted"]


def in_halves(rows):
    X = sp.csr_array(rows)
    halves = np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr
    return sp.csr_matrix(halves, shape=X.shape)


def ones_of(rows, dtype):
    """Return a matrix of one token an entry: more of a word than the type can hold."""
    at = np.repeat(np.argwhere(rows), rows[rows > 0].astype(int), axis=0)
    return sp.coo_matrix((np.ones(len(at), dtype), at.T), shape=rows.shape)


FORMS = {
    "fortran": np.asfortranarray,
    "uint8": lambda rows: rows.astype(np.uint8),
    "float16": lambda rows: rows.astype(np.float16),
    "csc": sp.csc_array,
    "halves": in_halves,
    "coo": lambda rows: sp.coo_matrix(rows.astype(np.int64)),
    "int8": lambda rows: ones_of(rows, np.int8),
    "bool": lambda rows: ones_of(rows, np.bool_),
    "frame": lambda rows: pd.DataFrame.sparse.from_spmatrix(sp.csr_array(rows)),
    "list": lambda rows: rows.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
def test_equal_counts_give_equal_bits_in_every_form(form):
    rows = np.random.default_rng(2).poisson(0.5, (60, 30)).astype(float)
    rows[3, 7] = 200
    matrix = FORMS[form](rows)
    before = pickle.dumps(matrix)
    wanted, found = (StreamLDA(2, random_state=0).fit(x) for x in (sp.csr_matrix(rows), matrix))
    assert np.array_equal(found.components_, wanted.components_)
    assert np.array_equal(found.transform(matrix), wanted.transform(rows))
    assert found.score(matrix) == wanted.score(rows)
    assert pickle.dumps(matrix) == before


def test_a_fit_continues_with_its_parameters(X):
    for changes, rule in (
        ({"n_components": 8}, "got n_components=8; set n_components=4 again, or call fit"),
        ({"alpha_0": 7.0, "oversampling": 9}, "got alpha_0=7.0 oversampling=9; set alpha_0=1.0, "),
        ({"refinement_passes": 0}, "got refinement_passes=0; set refinement_passes='auto' again"),
    ):
        lda = StreamLDA(4, random_state=0).partial_fit(X[:300])
        lda = pickle.loads(pickle.dumps(lda.set_params(random_state=5, **changes)))
        with pytest.raises(ValueError, match=rule):
            lda.partial_fit(X[300:])
        assert lda.documents_seen_ == 300
        lda.set_params(**StreamLDA(4).get_params()).partial_fit(X[300:400])
        assert lda.documents_seen_ == 400


def test_a_fit_that_fails_changes_nothing(fitted, X):
    lda = pickle.loads(pickle.dumps(fitted))
    before = lda.transform(X[:5])
    names = [f"word{i}" for i in range(9)]
    for learn in (lda.fit, StreamLDA(2).fit):
        for bad in (np.zeros((50, 9)), pd.DataFrame(np.zeros((50, 9)), columns=names)):
            with pytest.raises(ValueError, match="fewer than 2 documents"):
                learn(bad)
    assert np.array_equal(lda.transform(X[:5]), before)
    assert (lda.n_features_in_, hasattr(lda, "feature_names_in_")) == (120, False)
    new = StreamLDA(2)
    with pytest.raises(ValueError, match="more than 2147483648 tokens"):
        new.partial_fit(np.full((3, 9), 1e10))
    assert vars(new) == vars(StreamLDA(2))
    named = StreamLDA(2).fit(pd.DataFrame(X[:50].toarray()[:, :9], columns=names))
    assert named.feature_names_in_.tolist() == names
    assert not hasattr(named.fit(X[:50]), "feature_names_in_")


def test_an_interrupted_partial_fit_shows_topics_of_what_was_learned(X, monkeypatch):
    lda = StreamLDA(4, random_state=0).partial_fit(X[:500])
    assert lda.documents_seen_ == 500
    add = Engine.add

    def interrupted(engine, *arguments):
        add(engine, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lda.partial_fit(X[500:600])
    assert lda.documents_seen_ == 600


SEA = ["the wave-salt ship", "ship salt wave wave", "salt sea ship"] * 6
CITY = ["street house car", "the car-street street", "house car the house"] * 6


def make_frame(texts):
    return pd.DataFrame({"text": texts})


SECRET = "the patient was seen at noon"
TEXTS = [SECRET, f"{SECRET} and {SECRET}"] * 5


@pytest.mark.parametrize(
    "texts",
    [
        *(SECRET, TEXTS, np.array(TEXTS), pd.Series(TEXTS), pl.Series(TEXTS)),
        *([[1, SECRET], [2, SECRET]], {"a": TEXTS}, {SECRET: [1, 2]}),
        *([set(SECRET.split())], Path(SECRET), [Path(SECRET)] * 9),
        *(made({"n": 1, "text": TEXTS}) for made in (pd.DataFrame, pl.DataFrame)),
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_texts_are_refused_with_what_to_do_and_never_quoted(fitted, texts):
    private = StreamLDA(2, epsilon=4.0, delta=1e-6, documents_per_snapshot=100)
    calls, model = [private.fit, private.partial_fit], fitted.to_model()
    if read_texts(texts) is None:
        calls += [StreamLDA(2).fit, StreamLDA(2).partial_fit]
        for call in (model.transform, model.document_table):
            with pytest.raises(InvalidDocumentsError, match="choose the column of the text"):
                call(texts)
    for call in (*calls, fitted.transform, fitted.score, fitted.perplexity):
        with pytest.raises(ValueError, match=r"matrix of word counts.*CountVectorizer") as told:
            call(texts)
        assert told.value.__context__ is None
        assert not any(word in str(told.value) for word in ("patient", "noon"))


def test_one_that_is_no_document_is_named():
    model = StreamLDA(2, random_state=0).fit(SEA + CITY).to_model()
    for texts, says in (
        ([*TEXTS, 1.5], "document=10 type='float'; decode"),
        ([text.encode() for text in TEXTS], "document=0 type='bytes'; decode"),
        (np.array([text.encode() for text in TEXTS]), "document=0 type='bytes'; decode"),
        ([["salt", "sea"], ["salt", 7]], "document=1 type='list'; leave out the words that are no"),
        ([{"id": 1, "text": SECRET}], "document=0 type='dict'; take texts out of records"),
        ([{"sea": 2}, {"sea": 10**7}], "document=1 type='dict'; .* at most 1,000,000"),
        ([[(0, 1), (2, 1)]], r"document=0 type='list'; pass gensim's .*corpus2csc"),
    ):
        for call in (StreamLDA(2).fit, StreamLDA(2).partial_fit, model.transform, model.encode):
            with pytest.raises(InvalidDocumentsError, match=f"is no str, .*got {says}") as told:
                call(texts)
            assert "patient" not in str(told.value)


def test_no_documents_are_said():
    for call in (StreamLDA(2).fit, StreamLDA(2, random_state=0).fit(SEA + CITY).transform):
        with pytest.raises(InvalidDocumentsError, match="X has no document, got documents=0"):
            call([])


@pytest.mark.parametrize(
    "made", [list, tuple, iter, pd.Series, make_frame, pl.Series, pa.array, np.array, Counter]
)
def test_lists_and_bags_of_words_are_documents(made, tmp_path):
    tokens = [text.split() for text in ["New_York x86 of", *SEA, *CITY]]
    # Counter stands for bags; the order of words has no part in a fit.
    more = {"dtype": object} if made is np.array else {}
    documents = list(map(Counter, tokens)) if made is Counter else made(tokens, **more)
    lda = StreamLDA(2, random_state=0).fit(documents)
    words = ["New_York", "car-street", "wave-salt", "x86"]
    assert set(words) < set(lda.vocabulary_.words)
    assert "of" not in lda.vocabulary_.words
    counts = lda.vocabulary_.encode(tokens).batch.to_csr()
    assert (lda.components_ == StreamLDA(2, random_state=0).fit(counts).components_).all()
    asked = [["ship", "ship", "unknown"], None, {"car": 2}, [], "ship car"]
    theta = lda.transform(asked)
    lda.save(tmp_path / "m")
    model = load(tmp_path / "m")
    assert (model.transform(pd.Series(asked)) == theta).all()
    assert (model.transform(model.encode(asked)) == theta).all()
    assert theta[0].argmax() != theta[2].argmax()
    table = model.document_table(asked, form="dict")
    assert table["reason"] == [None, "blank", None, "blank", None]
    assert lda.score([["ship", "salt"], {"wave": 3}]) < 0
    seen = lda.documents_seen_
    assert lda.partial_fit(tokens).documents_seen_ == 2 * seen


def test_words_that_are_given_survive_a_pickle():
    text = pickle.loads(pickle.dumps(TokenizedText(["New York", "sea"])))
    assert (text, text.words) == ("New York sea", ("New York", "sea"))


def by_hyphens(text):
    if "bad" in text:
        raise ValueError(text)
    return text.replace("-", " ").split()


@pytest.mark.parametrize(
    "made",
    [
        *(list, tuple, iter, np.array, pd.Series, make_frame, pl.Series, pa.array, deque),
        lambda texts: dict(enumerate(texts)).values(),
        *(lambda texts, kind=kind: kind({"text": texts}) for kind in (pl.DataFrame, pl.LazyFrame)),
        lambda texts: pa.table({"text": texts}),
    ],
)
def test_texts_are_learned_from_by_an_analyzer(made, tmp_path):
    lda = StreamLDA(2, random_state=0).fit(made([*SEA, *CITY]), analyzer=by_hyphens)
    words = ("car", "house", "salt", "sea", "ship", "street", "wave")
    assert lda.vocabulary_.words == words
    assert not hasattr(lda, "feature_names_in_")
    learned = VocabularyLearner.by(by_hyphens, 2).learn([*SEA, *CITY])
    counts = learned.encode([*SEA, *CITY]).batch.to_csr()
    assert (lda.components_ == StreamLDA(2, random_state=0).fit(counts).components_).all()
    assert set(lda.top_words(3)[0]) <= set(words)
    theta = lda.transform(made(["wave-ship", "car car"]))
    assert (theta == lda.transform(learned.encode(["wave ship", "car car"]).batch.to_csr())).all()
    assert theta[0].argmax() != theta[1].argmax()
    copied = pickle.loads(pickle.dumps(lda))
    copied.save(tmp_path / "m")
    read = load(tmp_path / "m", analyzer=by_hyphens)
    assert (read.transform(["wave-ship", "car car"]) == theta).all()
    assert lda.partial_fit(made(SEA)).documents_seen_ == len(SEA) * 2 + len(CITY)
    assert lda.perplexity(SEA) < 8
    assert not hasattr(lda.fit(counts), "vocabulary_")


def test_a_bad_analyzer_is_refused_and_nothing_is_lost():
    lda = StreamLDA(2, random_state=0).fit(SEA + CITY)
    for texts, analyzer, says in (
        (SEA, "no.such:function", "cannot be imported"),
        (SEA, str.upper, "returns no list of words"),
        (["1 2 3"] * 9, None, "no word lies within"),
    ):
        for call in (lda.fit, StreamLDA(2).partial_fit):
            with pytest.raises(ValueError, match=says) as told:
                call(texts, analyzer=analyzer)
            assert "\n" not in str(told.value)
        assert lda.documents_seen_ == len(SEA + CITY)
        assert lda.transform(SEA[:1]).shape == (1, 2)


def test_names_come_from_a_vectorizer_too_and_must_fit():
    texts = ["cat dog cat", "dog dog fish", "fish cat cat", "dog fish fish"] * 9
    vectorizer = CountVectorizer().fit(texts)
    lda = StreamLDA(2, random_state=0).fit(vectorizer.transform(texts))
    names = ["cat", "dog", "fish"]
    for given in (vectorizer, iter(names)):
        assert lda.to_model(given).vocabulary.words == tuple(names)
    with pytest.raises(ValueError, match="one word for each column, got n_names=2 n_features=3"):
        lda.to_model(names[:2])


def test_seeded_topics_are_named_by_columns_or_by_their_numbers():
    planted = PlantedLDA(3, 60, seed=4, topic_concentration=0.1)
    X = planted.documents(1200).to_csr()
    columns = np.argsort(-planted.components[2])[:3].tolist()
    lda = StreamLDA(3, random_state=0, seed_topics={"mine": [*columns, 60]})
    with pytest.warns(UserWarning, match="unknown=1: 60; they seed nothing"):
        model = lda.fit(X).to_model()
    assert model.names == ["mine", None, None]
    assert hellinger(model.components[:1], planted.components).argmin() == 2
    frame = pd.DataFrame(X.toarray(), columns=[f"w{i}" for i in range(60)])
    words = " ".join(f"w{i}" for i in columns)
    lda = StreamLDA(3, random_state=0, seed_topics=[f"mine: {words} w60"])
    with pytest.warns(UserWarning, match="unknown=1: w60; they seed nothing"):
        named = lda.fit(frame).to_model()
    np.testing.assert_array_equal(named.components, model.components)
    part = StreamLDA(3, random_state=0, seed_topics={"mine": columns}).partial_fit(X)
    assert part.to_model().names == ["mine", None, None]
