"""The grid search of version 2: its grid, what it costs, its statistics, what it keeps."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from bench.papers import dplda_search as search
from bench.papers.dplda_search import (
    UNIFORM,
    parts_grid,
    search_parts,
    sufficient_statistics,
)
from streamlda.documents import DocumentBatch
from streamlda.guarantee.noise import SeededNoise
from streamlda.papers.dplda.configurations import DPLDASettings, Edges
from streamlda.papers.dplda.flow import CONFIGURATIONS
from streamlda.papers.dplda.moments import LDAMoments
from streamlda.papers.dplda.spectral import SpectralSteps
from streamlda.privacy.costs import epsilon_spent
from streamlda.privacy.events import GaussianRelease
from tests.oracle_variational import variational_responsibilities
from tests.papers.corpora import planted

SETTINGS = DPLDASettings(n_components=2, epsilon=1.0, delta=1e-5, alpha_0=0.5)


@pytest.fixture(scope="module")
def corpus():
    documents = planted(5000)[1]
    return documents, SpectralSteps(LDAMoments(documents, 0.5), 2)


@pytest.mark.parametrize("number", CONFIGURATIONS)
def test_the_grid_is_every_way_to_divide_a_budget(number):
    chosen = CONFIGURATIONS[number]
    names = (*chosen.bounds, *chosen.edges)
    sixths = itertools.product(range(1, 7), repeat=len(names))
    wanted = {tuple(part) for part in sixths if sum(part) == 6}
    grid = parts_grid(number)
    assert len(grid) == len(wanted)
    assert {tuple(round(6 * part[name]) for name in names) for part in grid} == wanted


@pytest.mark.parametrize("number", ["1", "3"])
def test_everything_is_paid_for_or_it_is_said(corpus, number):
    chosen = CONFIGURATIONS[number]
    settings, m = replace(SETTINGS, configuration=number), len(parts_grid(number, 5))
    found = {
        charge: search_parts(corpus[0], settings, steps=corpus[1], resolution=5, charge=charge)
        for charge in ("all", "kept")
    }
    for one_search in found.values():
        assert len(one_search.tried) == len(one_search.log_likelihoods) == m
        # Of every candidate its own releases, and one of statistics.
        assert len(one_search.event.events) == m + m
        inner = [e for e in one_search.event.events if not isinstance(e, GaussianRelease)]
        releases = len(chosen.edges) + len(chosen.bounds)
        assert sum(len(e.events) for e in inner) == m * releases
    all_paid, kept = found["all"], found["kept"]
    # What may fail of candidates is in their deltas, the rest of delta is of the noise.
    spent_on_failures = sum(one.delta for one in all_paid.tried)
    assert epsilon_spent(all_paid.event, 1e-5 - spent_on_failures) == all_paid.epsilon <= 1.0
    assert all_paid.epsilon > 0.97
    assert kept.epsilon > 1.4 * all_paid.epsilon
    assert kept.tried[0].epsilon > 1.2 * all_paid.tried[0].epsilon


def test_statistics_are_those_of_the_slow_twin_and_bounded(corpus):
    documents = corpus[0]
    few = DocumentBatch.from_matrix(documents.to_csr()[:200])
    topics = np.random.default_rng(0).dirichlet(np.full(few.n_features, 0.3), 2)
    alpha = np.array([0.3, 0.2])
    found = sufficient_statistics(few, topics, alpha)
    slow = np.zeros_like(found)
    for row in few.to_csr():
        own = DocumentBatch.from_matrix(row[None].tocsr() if row.ndim == 1 else row)
        part, _ = variational_responsibilities(
            own.counts, own.word_ids, own.row_pointers, topics.T, alpha, 20, 1e-3
        )
        if own.counts.sum() >= 3:
            weights = own.counts / own.counts.sum()
            np.add.at(slow.T, own.word_ids, weights[:, None] * part)
    np.testing.assert_allclose(found, slow / len(few), atol=1e-6)
    # A document moves them by no more than two numbers that sum to 1.
    one_less = sufficient_statistics(DocumentBatch.from_matrix(few.to_csr()[1:]), topics, alpha) * (
        199 / 200
    )
    assert np.abs(found - one_less).sum() <= 1 / 200 * (1 + 1e-6)


def test_noise_of_the_statistics_is_that_of_two_documents(corpus, monkeypatch):
    made = []

    class Recorded(Edges):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(search, "Edges", Recorded)
    found = search_parts(corpus[0], SETTINGS, steps=corpus[1], resolution=4)
    z = next(e for e in found.event.events if isinstance(e, GaussianRelease)).noise_multiplier
    least = z * math.sqrt(2) / len(corpus[0])
    assert least <= made[0].scales["statistics"] <= 1.02 * least


def test_the_best_parts_are_kept_where_noise_is_small(corpus):
    loud = replace(SETTINGS, epsilon=12.0, delta=1e-3)
    found = search_parts(
        corpus[0], loud, steps=corpus[1], resolution=4, charge="kept", noise=SeededNoise(1)
    )
    best = int(np.argmax(found.log_likelihoods))
    assert found.topics.settings is found.tried[best]
    smoothed = (1 - UNIFORM) * found.topics.components + UNIFORM / corpus[0].n_features
    exact = sufficient_statistics(corpus[0], smoothed, found.topics.alpha)
    likelihood = float((exact * np.log(smoothed)).sum())
    assert found.log_likelihoods[best] == pytest.approx(likelihood, abs=0.05)
    # Where nothing is published words are uniform.
    quiet = replace(SETTINGS, epsilon=0.01, configuration="3")
    none = search_parts(corpus[0], quiet)
    assert not len(none.topics.components)
    assert set(none.log_likelihoods) == {-math.log(corpus[0].n_features)}
