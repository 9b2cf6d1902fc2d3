"""capeAGN for single-topic models: statistics, their bounds, and what is learned."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.papers.imtiaz_sarwate import single_topic
from streamlda.papers.imtiaz_sarwate.maps import chosen_projection
from streamlda.papers.imtiaz_sarwate.metrics import component_error, matched_component_error
from streamlda.papers.imtiaz_sarwate.promise import Promise
from streamlda.papers.imtiaz_sarwate.simulated import SCHEMES, SimulatedSites
from streamlda.papers.imtiaz_sarwate.single_topic import (
    SingleTopicSite,
    learn_topics,
    pair_blocks,
    triple_block,
    triple_ratio,
)
from streamlda.privacy.mechanism import Block
from streamlda.privacy.noise import SeededNoise
from streamlda.spectral.whitening import random_projection
from tests.corpora import batch_of
from tests.papers.imtiaz_sarwate.neighbours import Recorder, distinguishability, shift

D, K = 12, 3
SIZES = (3000, 4000, 5000)
WEIGHTS = np.array([0.5, 0.3, 0.2])
DOCUMENT = st.lists(st.integers(0, D - 1), max_size=6)
MAP = random_projection(D, 4, 3)


def planted(sizes=SIZES, seed=0):
    """Return topics, and for each site its documents of three words."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(D, 0.2), size=K)
    topic = rng.choice(K, size=sum(sizes), p=WEIGHTS)
    words = np.array([rng.choice(D, size=3, p=topics[i]) for i in topic])
    return topics, [part.tolist() for part in np.split(words, np.cumsum(sizes)[:-1])]


TOPICS, DOCUMENTS = planted()
SITES = [SingleTopicSite(batch_of(documents, D)) for documents in DOCUMENTS]


def site_of(*documents):
    return SingleTopicSite(batch_of(documents, D))


def learned(scheme, epsilon=50.0, route="whitened", seed=0):
    calibration = "paper" if route == "paper" else "exact"
    promise = Promise(epsilon, 1e-3, calibration)
    network = SimulatedSites(SIZES, promise, scheme, noise=SeededNoise(seed))
    return learn_topics(SITES, K, network, route=route, rng=np.random.default_rng(seed))


# How much one document moves.


@given(DOCUMENT, DOCUMENT)
def test_two_documents_differ_by_no_more_than_is_stated(a, b):
    one, other = site_of(a), site_of(b)
    assert shift(one.pairs(), other.pairs(), pair_blocks(D)) <= math.sqrt(2)
    plain = [site.plain_pairs()["pair"] for site in (one, other)]
    assert np.linalg.norm(plain[0] - plain[1]) <= math.sqrt(2)
    triples = [site.plain_triples()["triple"] for site in (one, other)]
    assert np.linalg.norm(triples[0] - triples[1]) <= math.sqrt(2) * (1 + 1e-9)
    for W in (MAP, np.eye(D), np.vstack([MAP[:6], -MAP[:6]])):
        moved = shift(one.triples(W), other.triples(W), [triple_block(W)])
        assert moved <= triple_ratio(W)


def test_documents_of_one_word_attain_the_bounds():
    one, other = site_of([0, 0, 0]), site_of([5, 5, 5])
    assert shift(one.pairs(), other.pairs(), pair_blocks(D)) == pytest.approx(math.sqrt(2))
    plain = one.plain_triples()["triple"] - other.plain_triples()["triple"]
    assert np.linalg.norm(plain) == pytest.approx(math.sqrt(2))
    # Orthogonal longest rows, and opposite ones.
    opposite = 0.5 * np.eye(D)
    opposite[0], opposite[5] = np.eye(D)[0], -np.eye(D)[0]
    for W, ratio in ((np.eye(D), math.sqrt(2)), (opposite, 2.0)):
        assert triple_ratio(W) == pytest.approx(ratio)
        moved = shift(one.triples(W), other.triples(W), [triple_block(W)])
        assert moved == pytest.approx(ratio, rel=1e-6)
        # A planted bug: the bound for contributions that never point apart.
        assert moved > 1.4


def test_a_longest_row_that_is_left_out_breaks_the_bound():
    W = np.eye(D)
    W[0] *= 3
    wrong = triple_block(np.eye(D))
    assert shift(site_of([0] * 3).triples(W), site_of([1] * 3).triples(W), [wrong]) > 20


@pytest.mark.parametrize("scheme", ["cape", "local", "pooled-private"])
@pytest.mark.parametrize("route", ["whitened", "paper"])
def test_a_document_is_as_well_hidden_as_promised_by_both_stages(scheme, route):
    _, documents = planted((300, 200))
    one, other = [list(part) for part in documents], [list(part) for part in documents]
    one[1][0], other[1][0] = [0, 0, 0], [5, 5, 5]
    promise = Promise(1.0, 1e-4, "paper" if route == "paper" else "exact")
    network = Recorder([300, 200], promise, scheme, site=1, noise=SeededNoise(0))
    mine, theirs = ([site_of(*part) for part in both] for both in (one, other))
    maps = []

    class Watched(SingleTopicSite):
        def triples(self, whitening):
            maps.append(whitening)
            return super().triples(whitening)

    mine = [Watched(site.batch) for site in mine]
    learn_topics(mine, K, network, route=route, rng=np.random.default_rng(0))
    (pairs, _, first), (triples, blocks, second) = network.stages
    # Given the first release, a neighbour sees its documents through the same map.
    if route == "whitened":
        neighbour = theirs[1].pairs(), theirs[1].triples(maps[0])
    else:
        neighbour = theirs[1].plain_pairs(), theirs[1].plain_triples()
    mu = [
        distinguishability(pairs[1], neighbour[0], first),
        distinguishability(triples[1], neighbour[1], second),
    ]
    assert isinstance(blocks[0], Block)
    if route == "whitened":
        assert math.hypot(*mu) <= 1 / promise.noise_multiplier()
        assert mu[0] >= 0.98 / promise.noise_multiplier(0.5)
    else:
        assert all(0.98 <= m * promise.noise_multiplier(0.5) <= 1 for m in mu)


# Statistics.


def test_dense_and_streamed_triples_are_the_same(monkeypatch):
    documents = [*DOCUMENTS[0][:50], [0, 1, 2, 3, 3, 3, 4], [1], [], [2] * 9]
    dense = site_of(*documents).triples(MAP)["triple"]
    monkeypatch.setattr(single_topic, "DENSE_WORDS", 0)
    streamed = site_of(*documents).triples(MAP)["triple"]
    assert streamed == pytest.approx(dense)


def test_the_map_keeps_all_topics_and_its_longest_row_is_short_where_noise_is():
    moment = (TOPICS.T * np.array([0.9, 0.08, 0.02])) @ TOPICS
    frequencies = np.array([0.9, 0.08, 0.02]) @ TOPICS

    def longest_whitened(noise):
        W = chosen_projection(moment, K, frequencies, 1e-4, noise)
        values, vectors = np.linalg.eigh(W.T @ moment @ W)
        # Whitening can be finished: no topic is lost.
        assert values.min() > 0
        V = W @ (vectors / np.sqrt(values))
        # How much noise of one size on triples grows, for the smallest topic.
        rows, back = np.linalg.norm(W, axis=1).max(), values.min() ** -0.5
        return np.linalg.norm(V, axis=1).max(), rows * back

    plain = longest_whitened(0.0)
    noisy = longest_whitened(1e-4)
    assert noisy[1] < 0.8 * plain[1]


# What is learned.


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("route", ["whitened", "paper"])
def test_topics_and_weights_are_found(scheme, route):
    # 12,000 documents of three words, little noise: errors of 0.02 to 0.05.
    found = learned(scheme, 100.0, route)
    assert found.found == K
    assert matched_component_error(TOPICS, found.components) < 0.1
    assert found.weights == pytest.approx(WEIGHTS, abs=0.1)
    assert found.components.sum(axis=1) == pytest.approx(np.ones(K))
    assert found.components.min() >= 0


def mean_error(scheme, route="whitened"):
    found = (learned(scheme, 0.3, route, seed).components for seed in range(10))
    return np.mean([component_error(TOPICS, components) for components in found])


@pytest.mark.statistical
def test_schemes_are_in_order_and_ours_is_ahead_of_the_papers_route():
    # Means over 10 fixed seeds; gaps are over three standard errors.
    pooled, cape, conventional, local = map(mean_error, ("pooled", "cape", "conventional", "local"))
    assert pooled < cape < conventional < local
    assert cape < 0.7 * mean_error("cape", "paper")


def test_topics_that_noise_hides_repeat_the_word_frequencies():
    found = learned("local", 0.01)
    assert found.found < K
    assert found.components[found.found :] == pytest.approx(
        np.tile(found.components[-1], (K - found.found, 1))
    )
    assert not found.weights[found.found :].any()
    assert found.weights.sum() == pytest.approx(1)
