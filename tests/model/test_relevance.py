"""Words of topics ranked by relevance: one setting, wherever they are shown."""

import json
import re

import numpy as np
import pytest

from streamlda import StreamLDA
from streamlda.errors import InvalidSettingError
from streamlda.model.topic_model import load
from streamlda.report import render_report
from streamlda.simulate import PlantedLDA
from streamlda.storage.snapshots import Snapshots
from tests.cli.conftest import run
from tests.service.planted import model, topics


def ranked(made, k, n, weight):
    p, usual = made.components[k], made.weights @ made.components
    rank = weight * np.log(p) + (1 - weight) * np.log(p / usual)
    return [made.feature_name(i) for i in np.argsort(-rank, kind="stable")[:n]]


def test_all_that_shows_words_ranks_them_by_one_setting(tmp_path):
    common = np.repeat([1 / 8, 0], [8, 52])
    made = model(0.6 * common + 0.4 * topics(4)).rank_words(0.4)
    wanted = [ranked(made, k, 10, 0.4) for k in range(4)]
    assert [[word for word, _ in own] for own in made.top_words()] == wanted
    assert wanted != [[word for word, _ in own] for own in made.rank_words(1).top_words()]
    made.save(tmp_path / "m")
    assert load(tmp_path / "m").relevance == 0.4
    shown = json.loads(run("topics", tmp_path / "m", "--json").stdout)["topics"]
    for topic in shown:
        assert [each["word"] for each in topic["words"]] == wanted[topic["topic"]]
        chances = made.components[topic["topic"]]
        columns = [made.vocabulary.words.index(each["word"]) for each in topic["words"]]
        assert [each["probability"] for each in topic["words"]] == chances[columns].tolist()
    again = json.loads(run("topics", tmp_path / "m", "--relevance", 1, "--json").stdout)["topics"]
    assert [each["word"] for each in again[0]["words"]] == [
        word for word, _ in made.rank_words(1).top_words()[again[0]["topic"]]
    ]
    cards = render_report(made).split('<article id="topic-')[1:]
    for card in cards:
        listed = re.findall(r'class="word"[^>]*>(\w+)<', card)
        assert listed == wanted[int(card.split('"')[0])]
    snapshots = Snapshots(tmp_path / "s")
    snapshots.publish(1, made)
    told = snapshots.topics(1)["topics"]
    assert [[word for word, _ in topic["words"]] for topic in told] == wanted
    table = made.document_table([wanted[2][0]] * 2, form="dict", n_words=10)
    assert table["words"][0] == " ".join(wanted[table["topic"][0]])


def test_words_that_a_topic_has_not_are_not_shown():
    rows = np.zeros((2, 5))
    rows[0, :2], rows[1] = 0.5, 0.2
    assert [len(own) for own in model(rows).rank_words(0.5).top_words(4)] == [2, 4]


def test_an_estimator_ranks_words_and_may_change_its_mind_at_any_time():
    X = PlantedLDA(3, 60, alpha_0=3.0, topic_concentration=0.1, seed=0).documents(400).to_csr()
    lda = StreamLDA(3, random_state=0, relevance=0.3).fit(X)
    assert lda.to_model().relevance == 0.3
    by_relevance = lda.top_words(5)
    assert by_relevance == [
        [word for word, _ in own] for own in lda.to_model().rank_words(0.3).top_words(5)
    ]
    assert lda.set_params(relevance=1.0).partial_fit(X).top_words(5) != by_relevance
    private = StreamLDA(3, random_state=0, relevance=0.3, epsilon=8, delta=1e-6).fit(X)
    assert [model.relevance for model in (private.to_model(), *private.snapshots_)] == [0.3] * 2
    with pytest.raises(InvalidSettingError, match=r"relevance.*got relevance=2"):
        StreamLDA(relevance=2).fit(X)
