"""Documents that a model shows: a uniform sample, the best of it, cuts and resumes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.documents import DocumentBatch
from streamlda.model import representatives
from streamlda.model.representatives import TEXT_CHARACTERS, CandidateDocuments, most_of_topics
from streamlda.model.topic_model import TopicModel
from streamlda.utils.arrays import split_state

D = 6
TOPICS = np.array([[0.5, 0.3, 0.2, 0, 0, 0], [0, 0, 0, 0.2, 0.3, 0.5]])
MODEL = TopicModel(components=TOPICS, alpha=np.full(2, 0.5), background=TOPICS.mean(axis=0))


def corpus(n, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet([0.5, 0.5], n)
    rows = [rng.multinomial(rng.integers(10), mixture @ TOPICS) for mixture in theta]
    return DocumentBatch.from_matrix(np.array(rows, dtype=float).reshape(n, D))


def candidates(batch, most=2, seed=0, **options):
    made = CandidateDocuments(most, 2, seed, **options)
    names = [str(n) for n in range(batch.n_documents)]
    made.add(batch, names, [f"text {name}" for name in names])
    return made


def test_the_documents_most_of_each_topic_are_shown_in_their_order():
    batch = corpus(90)
    found = candidates(batch).show(MODEL)
    theta = MODEL.transform(batch)
    usable = np.flatnonzero(batch.lengths >= 3).tolist()
    for k, shown in enumerate(found):
        own = [n for n in usable if theta[n, k] == max(theta[n])]
        best = sorted(own, key=lambda n: (-theta[n, k], n))[:2]
        assert shown == [{"id": str(n), "proportion": theta[n, k]} for n in best]


def test_a_topic_that_is_the_largest_of_no_document_has_none():
    theta = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.2, 0.1, 0.7], [0.6, 0.2, 0.2]])
    assert most_of_topics(theta, 2) == [[0, 3], [], [2]]
    assert most_of_topics(theta, 9) == [[0, 3, 1], [], [2]]


def test_texts_come_by_their_own_setting_and_are_cut():
    batch = corpus(30)
    with_texts = CandidateDocuments(1, 2, 0, texts=True)
    with_texts.add(batch, ["x"] * 30, ["a" * TEXT_CHARACTERS, *["b" * 5000] * 29])
    shown = {each["text"] for topic in with_texts.show(MODEL) for each in topic}
    assert shown <= {"a" * TEXT_CHARACTERS, "b" * (TEXT_CHARACTERS - 1) + "…"}
    without = candidates(batch)
    assert all(set(each) == {"id", "proportion"} for t in without.show(MODEL) for each in t)
    assert b"text" not in without.state()["entries"].tobytes()


@given(st.lists(st.integers(0, 300), max_size=4), st.sets(st.integers(0, 4)))
def test_what_is_shown_depends_on_the_stream_alone(cuts, restarts):
    batch = corpus(300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(representatives, "CANDIDATES", 5)
        whole = candidates(batch, texts=True)
        parts, start = candidates(corpus(0), texts=True), 0
        for number, stop in enumerate([*sorted(cuts), 300]):
            names = [str(n) for n in range(start, stop)]
            parts.add(batch.rows(start, stop), names, [f"text {name}" for name in names])
            start = stop
            if number in restarts:
                saved = parts.state()
                parts = CandidateDocuments(2, 2, 0, texts=True)
                parts.restore(saved, D)
        assert parts.show(MODEL) == whole.show(MODEL)
        (mine, own), (theirs, other) = (split_state(each.state()) for each in (parts, whole))
    assert own == other
    assert mine.keys() == theirs.keys()
    assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)
    assert len(mine["numbers"]) == 20


def test_every_usable_document_is_as_likely_in_the_sample(monkeypatch):
    """Of 100 documents 20 stay, whatever their place: chi-square of 99 degrees below 163.6.

    A right sampler fails once in 25,000 seeds; one that takes the first half twice as often as the
    last gives about 200 with these 400 seeds. A sample without replacement varies less.
    """
    monkeypatch.setattr(representatives, "CANDIDATES", 5)
    batch = DocumentBatch.from_matrix(np.full((100, D), 1.0))
    taken = np.zeros(100)
    for seed in range(400):
        made = CandidateDocuments(2, 2, seed)
        for start in range(0, 100, 10):
            ids = [str(n) for n in range(start, start + 10)]
            made.add(batch.rows(start, start + 10), ids, ids)
            assert len(made._entries) <= 2 * 20
        made.state()
        taken[[int(entry["id"]) for entry in made._entries]] += 1
    assert taken.sum() == 8000
    assert ((taken - 80) ** 2 / 80).sum() < 163.6
