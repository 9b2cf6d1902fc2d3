"""A topic of a finished model as several, by documents."""

import re
from dataclasses import replace

import numpy as np
import pytest

from streamlda import split_topic
from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.hierarchy import grouped
from streamlda.model.over_time import Interval, Timeline
from streamlda.model.topic_model import load
from streamlda.simulate import PlantedLDA
from tests.cli.conftest import refused, run
from tests.model.test_merging import OF_ONE, names_of_topics, private
from tests.service.planted import model, words

V = 60
ALPHA = np.array([0.25, 0.4, 0.25, 0.1])
PLANTED = PlantedLDA(4, V, seed=3, alpha=ALPHA, topic_concentration=0.1)


@pytest.fixture(scope="module")
def documents():
    return PLANTED.documents(1500)


@pytest.fixture(scope="module")
def joined():
    """Return a model of the planted topics with the second and the fourth as one."""
    whole = model(
        PLANTED.components,
        alpha=ALPHA,
        diagnostics={"topic_npmi": [0.1, 0.2, 0.3, 0.4], "pair_noise": [0.1]},
        settings=names_of_topics("law", "space"),
        documents_seen=1500,
    )
    return grouped(whole, [[0], [1, 3], [2]])


def test_documents_tell_two_planted_topics_apart_that_were_one(joined, documents):
    # Batches are cut as they come, and it does not matter how.
    pieces = [documents.rows(0, 700), documents.rows(700, 701), documents.rows(701, 1500)]
    found = split_topic(joined, 1, pieces)
    truth = PLANTED.components[[0, 1, 2, 3]]
    errors = matched_l1_error(truth, found.components)
    assert errors.per_topic.max() < 0.35
    assert errors.permutation[[1, 3]].tolist() == [1, 3]
    np.testing.assert_allclose(found.prevalence[[1, 3]], [0.4, 0.1], atol=0.02)
    assert split_topic(joined, 1, [documents]).digest == found.digest


def test_the_parts_together_are_the_topic_and_all_others_stay(joined, documents):
    told = replace(
        joined,
        interval=Interval(documents=3, tokens=9, prevalence=(0.5, 0.25, 0.25)),
        timeline=Timeline(unit="day", starts=[0], tokens=[[1, 2, 3]], documents=[1]),
        settings={**joined.settings, **OF_ONE},
    )
    found = split_topic(told, 1, [documents], n_topics=3)
    rows = [1, 3, 4]
    assert found.diagnostics["split"]["rows"] == rows
    assert found.components[[0, 2]].tolist() == joined.components[[0, 2]].tolist()
    shares = found.prevalence[rows]
    together = shares @ found.components[rows] / shares.sum()
    np.testing.assert_allclose(together, joined.components[1], atol=1e-12)
    assert shares[0] == shares.max() > 0
    for name in ("prevalence", "alpha"):
        new, old = getattr(found, name), getattr(joined, name)
        assert new[rows].sum() == pytest.approx(old[1])
        assert new[[0, 2]].tolist() == old[[0, 2]].tolist()
    assert found.names == ["law", "space", None, None, None]
    # What was counted of the topic is not known of its parts.
    assert found.diagnostics["topic_npmi"] == [0.1, None, 0.3, None, None]
    assert found.diagnostics["pair_noise"] == [0.1]
    assert found.interval == replace(told.interval, prevalence=None)
    assert found.timeline is None
    assert found.settings == joined.settings


def test_a_warning_of_parts_names_their_rows_in_the_model(joined, documents):
    # So few that no refinement replaces the spectral topics, which are warned of.
    found = split_topic(joined, 1, [documents.rows(0, 190)], n_topics=5)
    (said,) = [each for each in found.diagnostics["warnings"] if "sampling noise: topic" in each]
    assert said.startswith("parts of topic 1: ")
    named = re.search(r"noise: topics? ([\d, ]+);", said)[1].split(", ")
    assert set(map(int, named)) < set(found.diagnostics["split"]["rows"])


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"topic": 3}, InvalidSettingError, "topic=3"),
        ({"topic": -1}, InvalidSettingError, "topic=-1"),
        ({"topic": 0.5}, InvalidSettingError, r"topic=0\.5; pass the row"),
        ({"n_topics": 1}, InvalidSettingError, "n_topics=1; a topic"),
        ({"documents": []}, InsufficientDataError, "by must be at least one, got documents=0"),
        ({"documents": ["text"]}, InvalidSettingError, r"of_type='str'; pass \[model\.encode"),
        (
            {"documents": DocumentBatch.from_matrix(np.eye(V))},
            InvalidSettingError,
            "='Document",
        ),
        ({"documents": [DocumentBatch.from_matrix(np.eye(V))]}, InsufficientDataError, "of it"),
        ({"documents": [DocumentBatch.from_matrix(np.ones((2, 5)))]}, InvalidDocumentsError, "60"),
        ({"private": True}, InvalidSettingError, "not private"),
    ],
)
def test_what_cannot_be_split_is_refused(joined, documents, changes, error, said):
    given = {"topic": 1, "documents": [documents], "n_topics": 2} | changes
    made = replace(joined, privacy=private()) if given.pop("private", False) else joined
    with pytest.raises(error, match=said):
        split_topic(made, given["topic"], given["documents"], n_topics=given["n_topics"])


def test_the_command_splits_by_texts(joined, documents, tmp_path):
    joined.save(tmp_path / "m")
    names, rows = words(V), documents.to_csr()
    texts = [
        " ".join(np.repeat([names[i] for i in row.indices], row.data.astype(int))) for row in rows
    ]
    (tmp_path / "d.txt").write_text("\n".join(texts), "utf-8")
    arguments = ("split", tmp_path / "m", tmp_path / "d.txt", "-o", tmp_path / "n")
    said = run(*arguments, "--topic", 1).stderr.splitlines()
    found = load(tmp_path / "n")
    assert found.digest == split_topic(joined, 1, [documents]).digest
    assert said[0].endswith("documents with words of topic 1")
    assert [line.split()[0] for line in said[1:3]] == ["1", "3"]
    assert said[1].split()[1] == found.top_words(1)[1][0][0]
    assert "topic=7 topics=3; streamlda topics lists" in refused(*arguments, "--topic", 7)
    assert "'--topics'" in refused(*arguments, "--topic", 1, "--topics", 1, code=2)
    (tmp_path / "d.jsonl").write_text('{"other": "a b c"}\n' * 3)
    source = ("split", tmp_path / "m", tmp_path / "d.jsonl", "-o", tmp_path / "n", "--topic", 1)
    assert "must have a document that can be read" in run(*source, code=65).stderr
    assert "--topic" in refused(*arguments, code=2)
    same = ("split", tmp_path / "m", tmp_path / "d.txt", "-o", tmp_path / "d.txt", "--topic", 1)
    assert "must not replace" in refused(*same)
