"""Moments against the definition and against theory; merging, resuming, size, noise."""

import itertools

import numpy as np
import pytest
from hypothesis import given

from streamlda.simulate import PlantedLDA
from streamlda.spectral import moments as moments_module
from streamlda.spectral.moments import Moments
from tests import oracle
from tests.corpora import KINDS, batch_of, corpus, small_corpora

#: Rounding of some thousand additions, each within 1.1e-16 of a mean bounded by max(1, |W|)^3.
ROUNDING = 1e-12


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING)


def accumulate(W, *batches, t=None):
    moments = Moments(W, t)
    for batch in batches:
        moments.add(batch)
    return moments


def snapshot(moments):
    return {name: array.tobytes() for name, array in moments.state().items()}


def check_equals_oracle(documents, W):
    usable = sum(len(tokens) >= 3 for tokens in documents)
    m = W.shape[1]
    for t in {0, 1, m}:
        moments = accumulate(W, batch_of(documents, len(W)), t=t)
        assert (moments.documents, moments.skipped) == (usable, len(documents) - usable)
        if not usable:
            assert not any(a.any() for name, a in moments.state().items() if name != "tally")
            continue
        close(moments.first_moment(), oracle.mean_through(documents, W, 1))
        close(moments.pair_moment(), oracle.mean_through(documents, W, 2))
        close(moments.triple_moment(), oracle.mean_through(documents, W[:, :t], 3))


@pytest.mark.kernels
@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_moments_equal_oracle(kind, m):
    check_equals_oracle(corpus(kind), np.random.default_rng(0).uniform(-1, 1, (9, m)))


@pytest.mark.kernels
@pytest.mark.fuzz
@given(small_corpora())
def test_moments_equal_oracle_on_any_small_corpus(drawn):
    check_equals_oracle(*drawn)


@pytest.mark.kernels
@pytest.mark.parametrize("block", [1, 7, 90])
def test_stream_equals_batch(block, monkeypatch):
    """Word sums to the last bit, the sums of small matrices to rounding, however it is cut."""
    batch = PlantedLDA(3, 12, mean_length=20, seed=0).documents(90)
    W = np.random.default_rng(1).uniform(-1, 1, (12, 3))
    whole = accumulate(W, batch)
    monkeypatch.setattr(moments_module, "BLOCK_DOCUMENTS", block)
    cut = accumulate(W, *(batch.rows(a, b) for a, b in ((0, 1), (1, 1), (1, 52), (52, 90))))
    assert cut.word_totals.tobytes() == whole.word_totals.tobytes()
    assert cut.pair_cross.tobytes() == whole.pair_cross.tobytes()
    for name, array in whole.state().items():
        np.testing.assert_allclose(cut.state()[name], array, rtol=1e-12, atol=1e-12)


@pytest.mark.kernels
@pytest.mark.parametrize(("t", "cuts"), [(0, (0, 0)), (2, (1, 2)), (3, (33, 33)), (3, (31, 50))])
def test_merge_equals_one_accumulation(t, cuts):
    """Which half a document goes to may differ; that each goes to one may not."""
    documents = [*corpus("random"), [1, 1], [0, 5, 7], *corpus("random", 8), *corpus("empty")]
    W = np.random.default_rng(2).uniform(-1, 1, (9, 3))
    whole = accumulate(W, batch_of(documents, 9), t=t)
    merged = Moments(W, t)
    for start, stop in itertools.pairwise([0, *cuts, len(documents)]):
        part = accumulate(W.copy(), batch_of(documents[start:stop], 9), t=t)
        before = snapshot(part)
        merged.merge(part)
        assert snapshot(part) == before
    assert (merged.documents, merged.skipped) == (whole.documents, whole.skipped)
    for name in whole.state().keys() - {"tally"}:
        axis = 0 if name in ("gram", "cube") else ()
        one, other = (m.state()[name].sum(axis=axis) for m in (merged, whole))
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    assert merged.documents / 4 <= merged.first_half <= merged.documents * 3 / 4


@pytest.mark.statistical
@pytest.mark.parametrize("alpha", [[0.1, 0.1, 0.1], [0.2, 0.5, 1.3]])
def test_moments_of_planted_topics_agree_with_theory(alpha):
    """Every entry of the three means lies within 6 deviations of the model's, 100 groups each.

    P(|t_99| > 6) = 3e-8, over 9 + 81 + 729 entries. A wrong alpha_0 is beyond.
    """
    d, n_groups = 9, 100
    corpus_ = PlantedLDA(3, d, alpha=alpha, topic_concentration=0.3, mean_length=25, seed=7)
    sums = [accumulate(np.eye(d), corpus_.documents(1000)) for _ in range(n_groups)]
    groups = [(m.first_moment(), m.pair_moment(), m.triple_moment()) for m in sums]

    def largest_deviation(expected):
        largest = 0.0
        for found, value in zip(zip(*groups, strict=True), expected, strict=True):
            found = np.array(found)
            error = np.maximum(found.std(axis=0, ddof=1) / np.sqrt(n_groups), 1e-14)
            largest = max(largest, float(np.max(np.abs(found.mean(axis=0) - value) / error)))
        return largest

    truth = corpus_.components, np.array(alpha)
    assert largest_deviation(oracle.expected_moments(*truth)) < 6
    assert largest_deviation(oracle.expected_moments(truth[0], 1.3 * truth[1])) > 12
    # The truth, but with words drawn together with themselves left in.
    first, pairs, triples = oracle.expected_moments(*truth)
    spoilt = pairs + np.diag(first) / 25
    assert largest_deviation((first, spoilt, triples)) > 12
