"""Refined topics beside those they began with: what documents say, and what is published of it.

That neighbours differ by no more than the sensitivity is tested in `test_sensitivity`, and what
stages release in `test_rounds`.
"""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from streamlda.documents import DocumentBatch
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.inference import SMOOTHING, smoothed, topic_proportions
from streamlda.private import comparison, refinement
from streamlda.private.comparison import TOLERANCE, ComparisonStatistic
from streamlda.private.published import notes_of
from streamlda.private.refinement import RefinementRounds
from streamlda.simulate import PlantedLDA
from tests import oracle_text
from tests.private.streams import (
    COMPARED,
    POOL,
    assert_same_snapshots,
    batch_of_counts,
    filled,
    replayed,
    run,
    settings_of,
    stage_of,
    sums_of,
    topics_of,
    view_of,
    wide,
)

SMALL = {name: row for name, row in POOL.items() if 3 <= sum(row.values()) < 1000}


def said_by(view, which="mixed"):
    return sums_of(ComparisonStatistic(*COMPARED[which]), view)


def slow(row, refined, start, long):
    """What one document adds, from its tokens one by one."""
    tokens = [word for word, count in sorted(row.items()) for _ in range(count)]
    seen, held = tokens[::2], tokens[1::2]
    added, probabilities = {}, []
    for name, topics in (("tokens", refined), ("start_tokens", start)):
        words = smoothed(topics.components, topics.background, SMOOTHING).T
        for part in (tokens, seen):
            ids, counts = np.unique(part, return_counts=True)
            (theta,) = oracle_text.fold_in(
                counts, ids, [0, len(ids)], words, topics.alpha, 100, TOLERANCE
            )
            if part is tokens:
                added[name] = min(1, len(tokens) / long) * np.array(theta)
        probabilities.append([words[word] @ theta for word in held])
    gains = [(p - q) / (p + q) for p, q in zip(*probabilities, strict=True)]
    added["preferred"] = np.clip(comparison.SCALE * np.mean(gains), -1, 1)
    return added


@pytest.mark.parametrize("which", COMPARED)
@pytest.mark.parametrize("name", SMALL)
def test_what_a_document_adds_is_that_of_its_tokens_one_by_one(name, which):
    found, expected = said_by(view_of([SMALL[name]]), which), slow(SMALL[name], *COMPARED[which])
    assert found.keys() == expected.keys()
    for block, values in expected.items():
        np.testing.assert_allclose(found[block], values, rtol=2e-6, atol=1e-9)


def test_documents_are_added_and_blanks_are_not():
    rows = list(SMALL.values())
    whole, parts = said_by(view_of([*rows, {}, {0: 2}])), [said_by(view_of([row])) for row in rows]
    for block, values in whole.items():
        np.testing.assert_allclose(values, sum(part[block] for part in parts), rtol=1e-12)
    assert not any(np.any(values) for values in said_by(view_of([{}, {1: 1}])).values())


@pytest.mark.parametrize("count", [3, 4, 2**31 - 2])
def test_no_document_moves_what_another_says(count):
    """To the last bit, and which of its tokens is the second."""
    rows = [{0: 1, 1: 2, 3: 3}, {0: 1, 2: 1, 4: 1}, {1: 5, 2: 2}]
    said = []
    for first in ({}, {0: 1, 2: count}):
        batch = batch_of_counts([first, *rows] if first else rows)
        seen, held = comparison.halves(batch)
        theta = [
            topic_proportions(seen, found.components, found.alpha)
            for found in COMPARED["mixed"][:2]
        ]
        documents = np.repeat(np.arange(len(batch)), np.diff(batch.row_pointers))
        probabilities = [
            np.einsum("ek,ke->e", t[documents], found.components[:, batch.word_ids])
            for t, found in zip(theta, COMPARED["mixed"][:2], strict=True)
        ]
        said.append(comparison.preferences(batch, held, *probabilities)[-3:])
    np.testing.assert_array_equal(*said)


def test_what_is_no_number_adds_exactly_nothing(monkeypatch):
    batch = batch_of_counts([{0: 2, 1: 2}, {2: 3}])
    held, ones = np.ones(3), np.ones(3)
    broken = np.array([np.nan, 1.0, 3.0])
    np.testing.assert_array_equal(comparison.preferences(batch, held, broken, ones), [0.0, 1.0])
    proportions = comparison.topic_proportions

    def spoiled(*arguments, **options):
        theta = proportions(*arguments, **options)
        theta[0] = np.nan
        return theta

    def added(documents):
        stage = stage_of([ComparisonStatistic(*COMPARED["mixed"])], settings_of(), 2)
        return filled(stage, documents).sums.aggregates

    rows = [SMALL["all words"], SMALL["one word"]]
    expected = added(rows[1:])
    monkeypatch.setattr(comparison, "topic_proportions", spoiled)
    for block, values in added(rows).items():
        np.testing.assert_array_equal(values, expected[block])


# Which topics are published, by released sums alone.


def rounds_after(preferred, K=3, d=40):
    """Rounds that were answered, the last with documents that prefer refined topics so much."""
    config = wide(n_features=d, n_components=K, refinement_rounds=2)
    rng = np.random.default_rng(0)
    start = topics_of(rng.dirichlet(np.full(d, 0.3), 2), np.array([0.6, 0.4]), np.full(d, 1 / d))
    rounds = RefinementRounds(config, start)
    n = len(rounds.components)
    noise = dict.fromkeys(("shares", "preferred", "tokens", "start_tokens", "length_norms"), 2.0)
    for last in (False, True):
        sums = {"shares": 1e3 * rng.dirichlet(np.full(d, 0.3), n).T}
        if last:
            sums |= {"preferred": np.array(preferred), "tokens": np.linspace(100, 300, n)}
            sums["start_tokens"] = np.array([100.0, 900.0])
        rounds.answer(sums, noise)
    return start, rounds


@pytest.mark.parametrize("preferred", [-40.0, 0.0])
def test_the_start_stays_unless_documents_prefer_the_refined_topics(preferred):
    start, rounds = rounds_after(preferred)
    found = rounds.topics()
    assert found.refinement.tolist() == [0.0, preferred, 2.0]
    # The most prevalent first, by the tokens that documents gave the start.
    np.testing.assert_array_equal(found.components, start.components[::-1])
    np.testing.assert_allclose(found.prevalence, [0.9, 0.1], rtol=1e-3)
    notes = notes_of(found, 2)
    assert notes["refinement_choice"] == {"kept": "start", "preferred": preferred, "noise": 2.0}
    assert any("those of the moments, which are published" in line for line in notes["warnings"])
    assert len(notes["topic_supported"]) == 2


def test_refined_topics_are_kept_where_documents_prefer_them():
    _, rounds = rounds_after(40.0)
    found = rounds.topics()
    assert found.refinement.tolist() == [1.0, 40.0, 2.0]
    np.testing.assert_array_equal(found.components, rounds.components[::-1])
    n = len(rounds.components)
    np.testing.assert_allclose(found.prevalence, np.linspace(300, 100, n) / (200 * n), rtol=1e-3)
    notes = notes_of(found, n)
    assert notes["refinement_choice"] == {"kept": "refinement", "preferred": 40.0, "noise": 2.0}
    # What the moments said of the start is not said of them.
    assert notes["warnings"] == []
    of_topics = {"topic_supported", "eigenvalues", "eigenvalue_noise"}
    assert not of_topics & notes.keys()
    assert of_topics < notes["start"].keys()


@pytest.mark.statistical
@pytest.mark.parametrize("flattened", [False, True])
def test_planted_topics_are_not_made_worse(flattened, monkeypatch):
    """Rounds find them better than moments do, but not from topics that are half flattened.

    Over 10 seeds, errors are .065 to .071 by moments, .052 to .055 by rounds, .213 to .217 by those
    that flatten; `preferred` is 50 to 78 and -475 to -500 with noise of 5.5: a false alarm is rarer
    than 1e-10.
    """
    if flattened:
        monkeypatch.setattr(refinement, "FLATNESS_HIDDEN", 1e9)
    corpus = PlantedLDA(4, 1100, seed=5)
    config = wide(n_features=1100, n_components=4, epsilon=10.0, delta=1e-6, alpha_0=1.0)
    config = replace(config, documents_per_snapshot=20_000, refinement_rounds=3)
    own = run(config, corpus.documents(20_000))
    (snapshot,) = own.snapshots
    kept, preferred, noise = snapshot.topics.refinement
    assert bool(kept) != flattened
    assert abs(preferred) > 6 * noise
    assert matched_l1_error(corpus.components, snapshot.topics.components).mean < (
        0.08 if flattened else 0.06
    )
    assert_same_snapshots(own, replayed(own, config))


@pytest.mark.statistical
@pytest.mark.parametrize("rounds", [0, 3])
def test_prevalence_is_the_share_of_tokens(rounds):
    """Topics of long documents against those of short ones.

    Shares of tokens are .13 to .41, and 1.5 and 2.1 times those of equal documents, which is all
    that word frequencies tell without rounds. Over 20 seeds the largest factor was 1.1.
    """
    n, d, alpha = 10_000, 1100, np.array([0.05, 0.15, 0.3, 0.5])
    parts = [
        PlantedLDA(4, d, alpha=shares, mean_length=length, seed=5).documents(n).to_csr()
        for shares, length in ((alpha, 150), (alpha[::-1], 30))
    ]
    mixed = np.arange(2 * n).reshape(2, n).T.ravel()
    batch = DocumentBatch.from_matrix(scipy.sparse.vstack(parts).tocsr()[mixed].astype(np.float64))
    config = wide(n_features=d, n_components=4, epsilon=10.0, delta=1e-6, alpha_0=1.0)
    config = replace(config, documents_per_snapshot=2 * n, refinement_rounds=rounds)
    (snapshot,) = run(config, batch).snapshots
    found = snapshot.topics
    words = smoothed(found.components, found.background, SMOOTHING)
    theta = topic_proportions(batch, words, found.alpha)
    shares = np.average(theta, axis=0, weights=batch.lengths if rounds else None)
    assert np.all(np.diff(found.prevalence) <= 0)
    np.testing.assert_allclose(np.log(found.prevalence / shares), 0, atol=np.log(1.2))
