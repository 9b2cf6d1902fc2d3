"""Refined topics beside those they began with: what documents say, and what is published of it.

That neighbours differ by no more than the sensitivity is tested in `test_sensitivity`, and what
stages release in `test_rounds`.
"""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from streamlda.documents import DocumentBatch
from streamlda.model.inference import SMOOTHING, smoothed, topic_proportions
from streamlda.private import comparison
from streamlda.private.comparison import TOLERANCE, ComparisonStatistic
from streamlda.simulate import PlantedLDA
from tests import oracle_text
from tests.private.streams import (
    COMPARED,
    POOL,
    batch_of_counts,
    filled,
    run,
    settings_of,
    stage_of,
    sums_of,
    view_of,
    wide,
)

SMALL = {name: row for name, row in POOL.items() if 3 <= sum(row.values()) < 1000}


def said_by(view, which="mixed"):
    return sums_of(ComparisonStatistic(*COMPARED[which]), view)


def slow(row, topics, long):
    """What one document adds, from its tokens one by one."""
    tokens = [word for word, count in sorted(row.items()) for _ in range(count)]
    words = smoothed(topics.components, topics.background, SMOOTHING).T

    def proportions(part):
        ids, counts = np.unique(part, return_counts=True)
        given = counts, ids, [0, len(ids)], words, topics.alpha, 100, TOLERANCE
        return np.array(oracle_text.fold_in(*given)[0])

    theta, q = proportions(tokens[::2]), topics.background
    gains = [(words[w] @ theta - q[w]) / (words[w] @ theta + q[w]) for w in tokens[1::2]]
    return {
        "tokens": min(1, len(tokens) / long) * proportions(tokens),
        "preferred": np.clip(comparison.SCALE * np.mean(gains), -1, 1),
    }


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
        found, _ = COMPARED["mixed"]
        theta = topic_proportions(seen, found.components, found.alpha)
        documents = np.repeat(np.arange(len(batch)), np.diff(batch.row_pointers))
        likely = np.einsum("ek,ke->e", theta[documents], found.components[:, batch.word_ids])
        by_frequency = found.background[batch.word_ids]
        said.append(comparison.preferences(batch, held, likely, by_frequency)[-3:])
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


@pytest.mark.statistical
@pytest.mark.parametrize("rounds", [0, 1])
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
