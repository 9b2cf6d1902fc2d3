"""Topics that have names, and chosen topics as one."""

import json
from dataclasses import replace

import numpy as np
import pytest

from streamlda import StreamLDA
from streamlda.errors import InvalidSettingError
from streamlda.model.matching import match_topics
from streamlda.model.naming import carry_names
from streamlda.model.topic_model import load
from streamlda.report import render_report
from streamlda.simulate import PlantedLDA
from streamlda.storage.snapshots import NewestModel, Snapshots
from tests.cli.conftest import refused, run
from tests.model.test_merging import names_of_topics
from tests.service.planted import model, private, shifted, topics


def test_names_stay_in_the_file_and_are_shown_with_the_words(tmp_path):
    made = model(topics(4), settings=names_of_topics("law", "space"))
    named = made.rename({3: "sport", 1: "space flight"})
    assert made.names == ["law", "space", None, None]
    assert named.names == ["law", "space flight", None, "sport"]
    assert named.digest == made.digest
    named.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.names == named.names
    assert again.rename({3: None, 1: None}).names == made.names
    assert "[sport]" in run("topics", tmp_path / "m").stdout
    shown = json.loads(run("topics", tmp_path / "m", "--json").stdout)["topics"]
    assert {topic["topic"]: topic["name"] for topic in shown} == dict(enumerate(named.names))
    text = " ".join(word for word, _ in named.top_words(9)[3])
    assert "sport" in again.document_table([text], form="dict")["label"]
    page = render_report(again)
    assert '<a href="#topic-3">Topic 3</a>: <span dir="auto">sport</span>' in page
    assert '"name":"sport"' in page


def test_names_follow_topics_by_their_ids_and_else_by_their_words():
    rows = topics(3)
    ids = {"diagnostics": {"topic_ids": [0, 1, 2]}}
    named = model(rows, **ids).rename({0: "law", 1: "sport"})
    # Topic 1 is gone, another one has its row; then it comes back.
    turned = model(topics(3, seed=9), diagnostics={"topic_ids": [0, 3, 2]})
    assert carry_names(turned, named).names == ["law", None, None]
    back = carry_names(model(rows, **ids), carry_names(turned, named))
    assert back.names == ["law", "sport", None]
    for earlier, later in ((model(rows), model(rows[[2, 0, 1]])), (model(rows), named)):
        found = carry_names(later, earlier.rename({0: "law", 1: "sport"}))
        assert sorted(filter(None, found.names)) == ["law", "sport"]
        (law,) = [i for i, j, _ in match_topics(later, earlier) if j == 0]
        assert found.names[law] == "law"
    assert carry_names(model(topics(3, seed=9)), model(rows).rename({0: "law"})).names == 3 * [None]


def test_names_stay_with_their_topics_in_partial_fit(tmp_path):
    planted = PlantedLDA(3, 60, mean_length=30, seed=1)
    X = planted.documents(1500).to_csr()
    lda = StreamLDA(3, random_state=0).partial_fit(X[:500])
    lda.set_topic_names({2: "sport"})
    before = lda.to_model()
    lda.partial_fit(X[500:1000]).partial_fit(X[1000:])
    after = lda.to_model()
    assert after.names == [None, None, "sport"]
    assert (2, 2) in [pair[:2] for pair in match_topics(before, after)]
    lda.save(tmp_path / "m")
    assert load(tmp_path / "m").names == after.names
    assert lda.set_topic_names(["a", None, "b"]).to_model().names == ["a", None, "b"]
    assert lda.fit(X).to_model().names == 3 * [None]


def test_names_stay_with_topics_of_private_windows():
    X = PlantedLDA(3, 60, mean_length=30, seed=1).documents(8000).to_csr()
    given = {"epsilon": 9.0, "delta": 1e-4, "documents_per_snapshot": 4000, "stream": "names"}
    lda = StreamLDA(3, random_state=0, **given)
    before = lda.partial_fit(X[:4000]).set_topic_names({0: "law"}).to_model()
    after = lda.partial_fit(X[4000:]).to_model()
    assert after.digest != before.digest
    (k,) = [pair.second for pair in match_topics(before, after) if pair.first == 0]
    assert [name for row, name in enumerate(after.names) if row == k] == ["law"]
    assert after.privacy["statement"] == "private"


def test_chosen_topics_become_one(tmp_path):
    first = model(topics(4), alpha=[1, 2, 3, 4], privacy=private())
    made = first.rename({1: "law", 3: "court"}).merge_topics([[3, 1]])
    assert made.alpha.tolist() == [1, 6, 3]
    assert made.names == [None, "law + court", None]
    mixed = (2 * first.components[1] + 4 * first.components[3]) / 6
    np.testing.assert_allclose(made.components[1], mixed, atol=1e-12)
    assert made.diagnostics["reduced_from"] == [[0], [1, 3], [2]]
    assert made.privacy == first.privacy
    for groups in ([], [[1]], [[0, 0]], [[0, 1], [1, 2]], [[0, 4]], [[-1, 0]], [[0, 1.0]]):
        with pytest.raises(InvalidSettingError, match="topics to merge"):
            first.merge_topics(groups)
    first.save(tmp_path / "m")
    said = run("reduce", tmp_path / "m", "--merge", "3,1", "-o", tmp_path / "few").stderr
    assert "3 topics of 4\njoined: 1, 3\n" in said
    assert load(tmp_path / "few").digest == made.digest
    for more in ((), ("--merge", "1,2", "-k", 2), ("--merge", "1;2")):
        refused("reduce", tmp_path / "m", *more, "-o", tmp_path / "x", code=2)


def test_models_that_are_merged_keep_names():
    rows = topics(3)
    one = model(rows[:2], documents_seen=5).rename({0: "law", 1: "sport"})
    other = model(shifted(rows, 0.01), documents_seen=5).rename({0: "courts", 2: "sea"})
    # Two people call one topic differently: it is one topic.
    assert one.merge(other).names == ["law + courts", "sport", "sea"]
    third = model(shifted(rows, 0.02), documents_seen=5).rename({0: "law", 1: "s" * 100})
    assert one.merge(other, third).names == ["law + courts", f"sport + {'s' * 92}", "sea"]


def test_a_function_labels_topics_by_words_and_documents(tmp_path):
    shown = [[{"id": "a", "proportion": 0.9, "text": "the court"}], []]
    made = model(topics(2), representative_documents=shown)
    met = []

    def label(words, documents):
        met.append((words, documents))
        return documents[0]["text"] if documents else ""

    assert made.label_topics(label, n_words=3).names == ["the court", None]
    words = [[word for word, _ in own] for own in made.top_words(3)]
    assert met == [*zip(words, shown, strict=True)]
    secret = replace(made, privacy=private())
    assert secret.label_topics(label).names == [None, None]
    assert [documents for _, documents in met[2:]] == [[], []]


def test_names_given_for_the_page_of_a_daemon_stay_in_later_snapshots(tmp_path):
    rows = topics(3)
    made = Snapshots(tmp_path)
    made.publish(1, model(rows))
    assert run("rename", tmp_path, "2=sport", "3=law").stderr == "2 names set\n"
    made.publish(2, model(shifted(rows[[1, 0, 2]], 0.05)))
    shown = Snapshots(tmp_path).topics(2)["topics"]
    assert {topic["id"]: topic["name"] for topic in shown} == {1: None, 2: "sport", 3: "law"}
    assert NewestModel(tmp_path).find().model.names == ["sport", None, "law"]
    assert load(made.path(2)).names == 3 * [None]
    for path in (tmp_path, made.path(2)):
        assert {"[sport]", "[law]"} <= {*run("topics", path).stdout.split()}
        run("report", path, "-o", tmp_path / "page.html")
        assert ">sport<" in (tmp_path / "page.html").read_text("utf-8")
        (tmp_path / "page.html").unlink()
    run("rename", tmp_path, "3=")
    assert [topic["name"] for topic in made.topics(2)["topics"]] == ["sport", None, None]
    assert "topic=4 there=[1, 2, 3]" in refused("rename", tmp_path, "4=x")
    (tmp_path / "topic-names.json").write_text("[1]")
    assert [topic["name"] for topic in made.topics(2)["topics"]] == 3 * [None]
