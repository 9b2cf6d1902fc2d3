"""Columns that get other words: arrays, documents, samples and topics by the dense rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.documents import DocumentBatch
from streamlda.engine.recent_documents import RecentDocuments
from streamlda.refinement.sample import Sample
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.text.columns import ColumnChange

CHANGE = ColumnChange(np.array([1, 4]), 6, 8, np.array([0.1, 0.05, 0.05, 0.2]))


def counts(n, seed, columns=6):
    return np.random.default_rng(seed).poisson(0.8, (n, columns)).astype(float)


def change(dense):
    """Return counts where words 1 and 4 have left, and 6 and 7 have entered."""
    found = np.hstack([dense, np.zeros((len(dense), 2))])
    found[:, [1, 4]] = 0
    return found


def arrays_of(batch):
    return {name: array.tolist() for name, array in batch.arrays.items()}


@given(st.integers(0, 10**6), st.integers(0, 12))
def test_documents_lose_the_words_that_left(seed, n):
    dense = counts(n, seed)
    bins = np.arange(n)
    found = CHANGE.documents(DocumentBatch.from_matrix(dense).dated(bins))
    assert arrays_of(found) == arrays_of(DocumentBatch.from_matrix(change(dense)).dated(bins))
    assert found.n_features == 8
    np.testing.assert_array_equal(found.lengths, change(dense).sum(axis=1))


def test_rows_of_words_that_enter_are_empty_and_have_their_shares_in_frequencies():
    rows = np.arange(1.0, 13).reshape(6, 2)
    np.testing.assert_array_equal(CHANGE.rows(rows), change(rows.T).T)
    assert CHANGE.entered_columns.tolist() == [1, 4, 6, 7]
    kept = [0, 2, 3, 5]
    for frequencies in (rows / rows.sum(axis=0), rows[:, 0] / rows[:, 0].sum()):
        found = CHANGE.distribution(frequencies)
        np.testing.assert_allclose(found.sum(axis=0), 1)
        scale = found[0] / frequencies[0]
        np.testing.assert_allclose(found[kept], frequencies[kept] * scale)
        shares = CHANGE.shares.reshape(-1, *[1] * (found.ndim - 1)) * scale
        np.testing.assert_allclose(found[CHANGE.entered_columns], shares)


@pytest.mark.parametrize("of_tokens", [True, False])
def test_a_sample_continues_alike_over_a_change_and_a_state(of_tokens):
    first, second = counts(60, 1), counts(200, 2, 8)
    first[::2] = [3, 0, 0, 0, 0, 0]
    sample = Sample(10, 40, of_tokens=of_tokens)
    sample.add(DocumentBatch.from_matrix(first))
    again, third = (Sample(10, 40, of_tokens=of_tokens) for _ in range(2))
    again.restore(sample.state(), 6)
    for one in (sample, again):
        one.change_words(CHANGE)
    assert sample.collect().documents.nonempty.all()
    third.restore(again.state(), 8)
    again = third
    for one in (sample, again):
        one.add(DocumentBatch.from_matrix(second))
    mine, other = sample.collect(), again.collect()
    for name in mine.documents.arrays:
        assert getattr(mine.documents, name).tolist() == getattr(other.documents, name).tolist()
    assert mine.hits.tolist() == other.hits.tolist()


def test_recent_documents_continue_alike_over_a_change_and_a_state():
    recent = RecentDocuments(50)
    for seed in range(3):
        recent.add(DocumentBatch.from_matrix(counts(35, seed)))
    again = RecentDocuments(50).restore(recent.state(), 6)
    for one in (recent, again):
        one.change_words(CHANGE)
    assert arrays_of(recent.latest()) == arrays_of(again.latest())
    assert recent.latest().n_features == 8
    assert recent.latest().usable.all()


def test_topics_forget_words_that_left_and_words_that_enter_have_their_shares():
    rng = np.random.default_rng(5)
    settings = StepwiseEMSettings(batch_documents=30)
    topics = rng.dirichlet(np.ones(6), 3)
    stepwise = StepwiseEM.of_topics(topics, np.full(3, 0.3), topics.mean(axis=0), settings)
    stepwise.add(DocumentBatch.from_matrix(counts(80, 3)))
    assert stepwise.n_waiting == 20
    before = stepwise.copy()
    stepwise.change_words(CHANGE)
    kept, entered = [0, 2, 3, 5], CHANGE.entered_columns
    mine, other = stepwise.components, before.components
    ratio = mine[:, kept] / other[:, kept]
    # What stays keeps its proportions, but for the smoothing.
    np.testing.assert_allclose(ratio, ratio.mean(axis=1, keepdims=True) * np.ones(4), rtol=0.05)
    share = mine[:, entered] / mine[:, kept].sum(axis=1, keepdims=True)
    expected = CHANGE.shares / other[:, kept].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(share, expected, rtol=0.05)
    assert stepwise.n_waiting == 20
    twin = StepwiseEM.from_state(stepwise.state())
    for one in (stepwise, twin):
        one.add(DocumentBatch.from_matrix(counts(60, 4, 8)))
    np.testing.assert_array_equal(stepwise.components, twin.components)
    np.testing.assert_allclose(stepwise.components.sum(axis=1), 1)
