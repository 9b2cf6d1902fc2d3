"""Topics that go to pandas."""

import sys

import pytest

from streamlda.errors import InvalidSettingError, MissingExtraError
from streamlda.model.interop import to_pandas
from streamlda.model.topic_model import TopicModel
from streamlda.simulate import PlantedLDA
from streamlda.text.vocabulary import Vocabulary
from tests.service.planted import words


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
