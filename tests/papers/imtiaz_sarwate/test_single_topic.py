"""capeAGN for single-topic models: statistics, their bounds, and what is learned."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.papers.imtiaz_sarwate import single_topic
from streamlda.papers.imtiaz_sarwate.simulated import SCHEMES
from streamlda.papers.imtiaz_sarwate.single_topic import (
    SingleTopicSite,
    learn_topics,
    pair_blocks,
    triple_block,
    triple_ratio,
)
from streamlda.spectral.whitening import random_projection
from tests.corpora import batch_of
from tests.papers.imtiaz_sarwate.neighbours import (
    Recorder,
    changed,
    matched_component_error,
    network_of,
    shift,
)

D, K = 12, 3
SIZES = (3000, 4000, 5000)
WEIGHTS = np.array([0.5, 0.3, 0.2])
DOCUMENT = st.lists(st.integers(0, D - 1), max_size=6)
PROJECTION = random_projection(D, 4, 3)


def planted(sizes):
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(D, 0.2), size=K)
    topic = rng.choice(K, size=sum(sizes), p=WEIGHTS)
    words = np.array([rng.choice(D, size=3, p=topics[i]) for i in topic])
    return topics, [part.tolist() for part in np.split(words, np.cumsum(sizes)[:-1])]


def site_of(*documents):
    return SingleTopicSite(batch_of(documents, D))


TOPICS, DOCUMENTS = planted(SIZES)
SITES = [site_of(*documents) for documents in DOCUMENTS]


def learn(scheme, epsilon, route="whitened"):
    network = network_of(SIZES, scheme, epsilon, route=route)
    return learn_topics(SITES, K, network, route=route, rng=np.random.default_rng(0))


@given(DOCUMENT, DOCUMENT)
def test_two_documents_differ_by_no_more_than_is_stated(a, b):
    one, other = site_of(a), site_of(b)
    assert shift(one.pairs(), other.pairs(), pair_blocks(D)) <= math.sqrt(2)
    plain = one.plain_pairs()["pair"] - other.plain_pairs()["pair"]
    assert np.linalg.norm(plain) <= math.sqrt(2)
    plain = one.plain_triples()["triple"] - other.plain_triples()["triple"]
    assert np.linalg.norm(plain) <= math.sqrt(2) * (1 + 1e-9)
    for W in (PROJECTION, np.eye(D), np.vstack([PROJECTION[:6], -PROJECTION[:6]])):
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
    # Another: a longest row that is left out.
    W = np.eye(D)
    W[0] *= 3
    assert shift(one.triples(W), other.triples(W), [triple_block(np.eye(D))]) > 20


@pytest.mark.parametrize("scheme", ["cape", "local", "pooled-private"])
@pytest.mark.parametrize("route", ["whitened", "paper"])
def test_a_document_is_as_well_hidden_as_promised_by_both_stages(scheme, route):
    _, documents = planted((300, 200))
    mine, theirs = ([site_of(*part) for part in changed(documents, [word] * 3)] for word in (0, 5))
    network = network_of((300, 200), scheme, 1.0, 1e-4, route=route, kind=Recorder)
    network.neighbours = theirs
    learn_topics(mine, K, network, route=route, rng=np.random.default_rng(0))
    promise = network.promises[0]
    if route == "whitened":
        assert math.hypot(*network.mu) <= 1 / promise.noise_multiplier()
        assert network.mu[0] >= 0.98 / promise.noise_multiplier(0.5)
    else:
        assert all(0.98 <= mu * promise.noise_multiplier(0.5) <= 1 for mu in network.mu)


def test_dense_and_streamed_triples_are_the_same(monkeypatch):
    documents = [*DOCUMENTS[0][:50], [0, 1, 2, 3, 3, 3, 4], [1], [], [2] * 9]
    dense = site_of(*documents).triples(PROJECTION)["triple"]
    monkeypatch.setattr(single_topic, "DENSE_WORDS", 0)
    streamed = site_of(*documents).triples(PROJECTION)["triple"]
    assert streamed == pytest.approx(dense)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("route", ["whitened", "paper"])
def test_topics_and_weights_are_found(scheme, route):
    # 12,000 documents of three words, little noise: errors of 0.02 to 0.05.
    found = learn(scheme, 100.0, route)
    assert found.found == K
    assert matched_component_error(TOPICS, found.components) < 0.1
    assert found.weights == pytest.approx(WEIGHTS, abs=0.1)
    assert found.components.sum(axis=1) == pytest.approx(np.ones(K))
    assert found.components.min() >= 0


def test_topics_that_noise_hides_repeat_the_word_frequencies():
    found = learn("local", 0.01)
    assert found.found < K
    assert found.components[found.found :] == pytest.approx(
        np.tile(found.components[-1], (K - found.found, 1))
    )
    assert not found.weights[found.found :].any()
    assert found.weights.sum() == pytest.approx(1)
