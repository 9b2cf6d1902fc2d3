"""Topics that go to other programs and come back; the real libraries infer with them."""

import gc
import sys
import warnings
from dataclasses import replace

import gensim
import numpy as np
import pytest
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer

from streamlda.errors import InvalidSettingError, MissingExtraError, VocabularyError
from streamlda.model import interop as bridges
from streamlda.model.diagnostics import hellinger
from streamlda.model.hierarchy import flat_map
from streamlda.model.inference import SMOOTHING, smoothed
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.statement import not_private
from streamlda.simulate import PlantedLDA
from streamlda.text.vocabulary import Vocabulary
from tests.service.planted import model as published
from tests.service.planted import private, topics, words

#: Mean L1 distance, 0 to 2, from our proportions to those of variational Bayes with the same
#: topics: 0.009 was measured, and 0.94 with the topics in another order.
NEAR = 0.03

DOCUMENTS = 200


def planted(alpha=(0.5, 0.3, 0.2), **more):
    """Return a planted corpus, and the model that a perfect fit would give."""
    corpus = PlantedLDA(len(alpha), 150, alpha=list(alpha), topic_concentration=0.1, seed=3)
    parts = {
        "components": corpus.components,
        "alpha": corpus.alpha,
        "background": corpus.alpha @ corpus.components / corpus.alpha.sum(),
        "vocabulary": Vocabulary.given(words(150)),
        "documents_seen": 1000,
        "tokens_seen": 80_000,
    }
    parts["prevalence"] = parts["alpha"] / parts["alpha"].sum()
    return corpus, TopicModel(**(parts | more))


def texts_of(corpus, n=DOCUMENTS):
    """Return documents whose words our way of splitting, and those of others, give back."""
    renamed = dict(zip(corpus.words, words(150), strict=True))
    return [" ".join(renamed[word] for word in text.split()) for text in corpus.texts(n)]


def apart(one, other):
    """Return the mean L1 distance of proportions."""
    return float(np.abs(np.asarray(one) - np.asarray(other)).sum(axis=1).mean())


def inferred_by_gensim(lda, texts):
    bags = [lda.id2word.doc2bow(text.split()) for text in texts]
    gamma, _ = lda.inference(bags)
    return gamma / gamma.sum(axis=1, keepdims=True)


def as_used(model):
    return smoothed(model.components, model.background, SMOOTHING)


def test_gensim_infers_learns_on_and_gives_topics_back(tmp_path):
    corpus, model = planted(alpha=(0.6, 0.3, 0.1), privacy=private())
    texts = texts_of(corpus)
    lda, ours = bridges.to_gensim(model), model.transform(texts)
    found = inferred_by_gensim(lda, texts)
    assert apart(ours, found) < NEAR
    assert apart(ours, found[:, ::-1]) > 0.5
    np.testing.assert_array_equal(lda.alpha, model.alpha)
    pairs = [(word, pytest.approx(p, rel=0.02)) for word, p in model.top_words(5)[0]]
    assert lda.show_topic(0, 5) == pairs

    back = bridges.from_gensim(lda)
    np.testing.assert_allclose(back.components, as_used(model), atol=1e-8)
    np.testing.assert_array_equal(back.alpha, model.alpha)
    np.testing.assert_allclose(back.background, model.background, atol=1e-8)
    assert back.vocabulary.words == model.vocabulary.words
    assert (back.documents_seen, back.settings) == (1000, {"imported_from": "gensim"})
    assert back.versions["gensim"] == gensim.__version__
    assert back.privacy == not_private()  # what comes from elsewhere promises nothing
    assert apart(ours, back.transform(texts)) < 0.02

    lda.save(str(tmp_path / "lda"))
    again = gensim.models.LdaModel.load(str(tmp_path / "lda"))
    assert apart(found, inferred_by_gensim(again, texts)) < 0.01
    lda.update([lda.id2word.doc2bow(text.split()) for text in texts])
    # 1000 documents outweigh 200 new ones of the same kind.
    assert np.abs(lda.get_topics() - as_used(model)).sum(axis=1).max() < 0.2


@pytest.mark.long
def test_topics_that_gensim_has_learned_are_ours_to_infer_with(tmp_path):
    corpus, _ = planted()
    texts = texts_of(corpus, 1000)
    split = [text.split() for text in texts]
    dictionary = gensim.corpora.Dictionary(split)
    bags = [dictionary.doc2bow(tokens) for tokens in split]
    lda = gensim.models.LdaModel(bags, 3, dictionary, passes=5, random_state=0)
    model = bridges.from_gensim(lda)
    model.save(tmp_path / "model")
    assert apart(model.transform(texts), inferred_by_gensim(lda, texts)) < NEAR
    assert model.top_words(5)[0][0][0] == lda.show_topic(0, 1)[0][0]


@pytest.mark.parametrize("alpha", [(0.3, 0.3, 0.3), (0.6, 0.3, 0.1)])
def test_sklearn_infers_learns_on_and_gives_topics_back(alpha):
    corpus, model = planted(alpha=alpha, tokens_seen=0, privacy=private())
    texts = texts_of(corpus)
    lda, ours = bridges.to_sklearn(model), model.transform(texts)
    assert lda.doc_topic_prior_ == pytest.approx(sum(alpha) / 3)
    counts = CountVectorizer(vocabulary=list(model.vocabulary.words)).fit_transform(texts)
    assert apart(ours, lda.transform(counts)) < NEAR
    assert apart(ours, lda.transform(counts.toarray())[:, ::-1]) > 0.5
    assert lda.perplexity(counts) < model.n_features

    back = bridges.from_sklearn(lda, model.vocabulary.words)
    np.testing.assert_allclose(back.components, as_used(model), atol=1e-12)
    np.testing.assert_allclose(back.alpha, sum(alpha) / 3)
    assert (back.vocabulary, back.privacy) == (model.vocabulary, not_private())


def test_sklearn_can_go_on_learning():
    corpus, model = planted()
    lda = bridges.to_sklearn(model)
    lda.partial_fit(model.vocabulary.encode(texts_of(corpus)).batch.to_csr())
    assert lda.n_batch_iter_ > 1
    learned = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    assert 0.001 < np.abs(learned - as_used(model)).sum(axis=1).max() < 0.1


@pytest.mark.long
def test_topics_that_sklearn_has_learned_are_ours_to_infer_with():
    corpus, _ = planted()
    texts = texts_of(corpus, 1000)
    vectorizer = CountVectorizer()
    counts = vectorizer.fit_transform(texts)
    lda = LatentDirichletAllocation(3, random_state=0).fit(counts)
    model = bridges.from_sklearn(lda, vectorizer.get_feature_names_out())
    assert apart(model.transform(texts), lda.transform(counts)) < NEAR


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("tokens", [0, 80_000])
def test_pyldavis_gets_what_it_asks_for(tokens):
    _, model = planted(tokens_seen=tokens)
    # A word that nothing has, and whose logarithm would be infinite.
    components = np.column_stack([model.components, np.zeros(3)])
    background = np.append(model.background, 0.0)
    wider = TopicModel(
        components=components, alpha=model.alpha, background=background, tokens_seen=tokens
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = bridges.to_pyldavis(wider)
    wanted = ["sizes of topics are the shares of alpha: prevalence was not measured"]
    if not tokens:
        wanted.append("counts are scaled to 1,000,000 tokens: the true number is not known")
    assert [str(each.message) for each in caught] == ["; ".join(wanted)]
    assert set(given) == {
        *("topic_term_dists", "doc_topic_dists", "doc_lengths", "vocab", "term_frequency"),
        *("mds", "sort_topics", "start_index"),
    }
    # The rules by which pyLDAvis refuses input.
    topics, documents = given["topic_term_dists"], given["doc_topic_dists"]
    assert topics.shape == (3, 150) == (documents.shape[1], len(given["vocab"]))
    assert len(given["doc_lengths"]) == len(documents)
    assert len(given["term_frequency"]) == 150
    np.testing.assert_allclose(topics.sum(axis=1), 1)
    np.testing.assert_allclose(documents.sum(axis=1), 1)
    assert np.isfinite(np.log(topics)).all()
    # What it makes of them: the size of a topic, and how often a word occurs.
    sizes = documents.T @ given["doc_lengths"]
    np.testing.assert_allclose(sizes / sizes.sum(), model.alpha / model.alpha_0)
    np.testing.assert_allclose(sizes @ topics, given["term_frequency"])
    assert given["vocab"][:2] == ["0", "1"]


@pytest.mark.long
@pytest.mark.parametrize("K", [2, 30])
def test_the_documented_line_of_pyldavis_makes_a_page(K, tmp_path):
    made = replace(published(topics(K, 120)), tokens_seen=80_000)
    with warnings.catch_warnings():
        # It shows all deprecations, also those of others, and leaves its file open.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        import pyLDAvis

        given = bridges.to_pyldavis(made)
        prepared = pyLDAvis.prepare(**given)
        pyLDAvis.save_html(prepared, str(tmp_path / "topics.html"))
        gc.collect()
    assert '"tinfo"' in (tmp_path / "topics.html").read_text("utf-8")
    shown = prepared.topic_coordinates
    np.testing.assert_allclose(shown["Freq"], 100 * made.prevalence)
    # Its map is made as that of the report.
    smooth = given["topic_term_dists"]
    places = flat_map(hellinger(smooth, smooth)).positions
    np.testing.assert_allclose(shown[["x", "y"]], places, atol=1e-9)
    top = prepared.topic_info[prepared.topic_info["Category"] == "Topic1"]
    assert made.top_words(1)[1][0][0] in set(top["Term"])


def test_octis_and_tables_hold_the_top_words():
    _, model = planted()
    found = bridges.to_octis(model, 4)
    assert found["topics"] == [[word for word, _ in topic] for topic in model.top_words(4)]
    np.testing.assert_array_equal(found["topic-word-matrix"], model.components)
    assert not np.shares_memory(found["topic-word-matrix"], model.components)
    frame, table = bridges.to_pandas(model, 5), bridges.to_arrow(model, 5)
    assert list(frame.columns) == table.column_names
    assert len(frame) == table.num_rows == 15
    assert frame.equals(table.to_pandas().astype(frame.dtypes))
    second = frame[frame["topic"] == 1]
    pairs = list(zip(second["word"], second["probability"], strict=True))
    assert pairs == model.top_words(5)[1]
    assert list(second["rank"]) == [1, 2, 3, 4, 5]
    assert second["prevalence"].to_numpy() == pytest.approx(0.3)
    word = model.vocabulary.words.index(pairs[0][0])
    assert second["lift"].iloc[0] == pytest.approx(pairs[0][1] / model.background[word])
    assert len(bridges.to_pandas(model, 1000)) == 450


@pytest.mark.parametrize(
    ("module", "package"),
    [("gensim.models", "gensim"), ("pandas", "pandas"), ("pyarrow", "pyarrow")],
)
def test_a_library_that_is_not_installed_is_named(module, package, monkeypatch):
    bridge = getattr(bridges, f"to_{'arrow' if package == 'pyarrow' else package}")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"package={package}; .*extra bridges"):
        bridge(planted()[1])


def test_what_cannot_be_imported_is_refused():
    _, model = planted()
    lda = bridges.to_sklearn(model)
    with pytest.raises(InvalidSettingError, match="feature_names=2 columns=150"):
        bridges.from_sklearn(lda, ["a", "b"])
    with pytest.raises(VocabularyError, match="each word once"):
        bridges.from_sklearn(lda, ["a"] * 150)
    with pytest.raises(InvalidSettingError, match="must be fitted"):
        bridges.from_sklearn(LatentDirichletAllocation(3), ["a"])
    gap = bridges.to_gensim(model)
    del gap.id2word.token2id[words(150)[7]]
    gap.id2word.id2token = {}
    with pytest.raises(InvalidSettingError, match="column_without=7"):
        bridges.from_gensim(gap)
    for bridge in (bridges.to_octis, bridges.to_pandas, bridges.to_arrow):
        with pytest.raises(InvalidSettingError, match="must be a whole number >= 1, got n"):
            bridge(model, 0)
