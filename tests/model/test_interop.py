"""Topics that go to pyLDAvis and pandas."""

import gc
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError, MissingExtraError
from streamlda.model.diagnostics import hellinger
from streamlda.model.hierarchy import flat_map
from streamlda.model.interop import to_pandas, to_pyldavis
from streamlda.model.topic_model import TopicModel
from streamlda.simulate import PlantedLDA
from streamlda.text.vocabulary import Vocabulary
from tests.service.planted import model as published
from tests.service.planted import topics, words


def planted(tokens_seen=80_000):
    """Return the model that a perfect fit of a planted corpus would give."""
    corpus = PlantedLDA(3, 150, alpha=[0.5, 0.3, 0.2], topic_concentration=0.1, seed=3)
    return TopicModel(
        components=corpus.components,
        alpha=corpus.alpha,
        background=corpus.alpha @ corpus.components,
        vocabulary=Vocabulary.given(words(150)),
        documents_seen=1000,
        tokens_seen=tokens_seen,
        prevalence=corpus.alpha,
    )


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("tokens", [0, 80_000])
def test_pyldavis_gets_what_it_asks_for(tokens):
    model = planted(tokens)
    # A word that nothing has, and whose logarithm would be infinite.
    components = np.column_stack([model.components, np.zeros(3)])
    background = np.append(model.background, 0.0)
    wider = TopicModel(
        components=components, alpha=model.alpha, background=background, tokens_seen=tokens
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = to_pyldavis(wider)
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

        given = to_pyldavis(made)
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


def test_a_table_holds_the_top_words(monkeypatch):
    model = planted()
    frame = to_pandas(model, 5)
    assert len(frame) == 15
    second = frame[frame["topic"] == 1]
    pairs = list(zip(second["word"], second["probability"], strict=True))
    assert pairs == model.top_words(5)[1]
    assert list(second["rank"]) == [1, 2, 3, 4, 5]
    assert second["prevalence"].to_numpy() == pytest.approx(0.3)
    word = model.vocabulary.words.index(pairs[0][0])
    assert second["lift"].iloc[0] == pytest.approx(pairs[0][1] / model.background[word])
    assert len(to_pandas(model, 1000)) == 450
    with pytest.raises(InvalidSettingError, match="must be a whole number >= 1, got n"):
        to_pandas(model, 0)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"package=pandas; .*extra bridges"):
        to_pandas(model)
