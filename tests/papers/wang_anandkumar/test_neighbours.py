"""Answers of neighbouring tensors: never farther than proven, and as far as that."""

import itertools

import numpy as np
import pytest

from streamlda.guarantee.accounting import noise_multiplier
from streamlda.guarantee.noise import SecureNoise, SeededNoise
from streamlda.papers.wang_anandkumar.neighbours import DocumentTensor, Neighbours
from streamlda.papers.wang_anandkumar.noisy import perturb_tensor
from streamlda.papers.wang_anandkumar.tensors import DenseTensor
from tests import oracle
from tests.corpora import batch_of
from tests.privacy.chance import fits_scale, has_scale

D, DELTA = 6, 1e-6
TRIPLES = list(itertools.combinations_with_replacement(range(D), 3))


def unit(seed, d=D):
    u = np.random.default_rng(seed).standard_normal((d, 1))
    return u / np.linalg.norm(u)


def symmetrised(*triple):
    """Return the sum over all orders of three indices, as Definition 4.2 prints it."""
    found = np.zeros((D, D, D))
    for order in itertools.permutations(triple):
        found[order] += 1
    return found


def tensor_of(*documents, n=1, whitening=None):
    return DocumentTensor(batch_of(documents, D), n, whitening)


def moved(here, there, u):
    (first, a), (second, b) = here.apply(u), there.apply(u)
    return float(np.linalg.norm(first - second)), float(abs(a - b)[0])


def stated(notion, u, **options):
    neighbours = Neighbours(notion, **options)
    return [float(neighbours.sensitivities(u, values=values)[0]) for values in (False, True)]


@pytest.mark.parametrize("seed", range(3))
def test_entries_attain_the_bound_and_never_pass_it(seed):
    u, zero = unit(seed), DenseTensor(np.zeros((D, D, D)))
    found = [moved(DenseTensor(symmetrised(*triple)), zero, u) for triple in TRIPLES]
    assert np.max(found, axis=0) == pytest.approx(stated("entry", u, magnitude=1.0), rel=1e-12)


def test_documents_attain_the_bounds():
    u, rest = unit(1), [[0, 1, 2, 2], [3, 3, 4, 5, 5]]
    word = int(np.argmax(np.abs(u)))
    found = moved(tensor_of(*rest, [word] * 3, n=50), tensor_of(*rest, [], n=50), u)
    assert found == pytest.approx(stated("add-remove", u, n_documents=50), rel=1e-9)


def test_documents_through_a_projection_attain_the_bounds():
    W = np.random.default_rng(0).standard_normal((D, 3))
    W[4] *= 3 / np.linalg.norm(W[4]) + 3
    u = W[4][:, None] / np.linalg.norm(W[4])
    here, blank = (tensor_of(d, whitening=W) for d in ([4, 4, 4], []))
    bounds = stated("add-remove", u, whitening=W)
    assert moved(here, blank, u) == pytest.approx(bounds, rel=1e-9)


@pytest.mark.parametrize("projected", [False, True])
def test_no_document_moves_an_answer_farther(projected):
    rng = np.random.default_rng(5)
    for _ in range(150):
        W = rng.standard_normal((D, 3)) if projected else None
        u = unit(int(rng.integers(1000)), 3 if projected else D)
        document = rng.integers(0, D, rng.integers(0, 9)).tolist()
        found = moved(tensor_of(document, whitening=W), tensor_of([], whitening=W), u)
        assert (found <= np.multiply(stated("add-remove", u, whitening=W), 1 + 1e-12)).all()


@pytest.mark.parametrize("projected", [False, True])
def test_a_document_tensor_equals_the_oracle(projected):
    rng = np.random.default_rng(7)
    documents = [[], [0, 1], *(rng.integers(0, D, n).tolist() for n in (3, 4, 9)), []]
    W = rng.standard_normal((D, 4)) if projected else np.eye(D)
    tensor = tensor_of(*documents, n=8, whitening=W if projected else None)
    dense = oracle.mean_through(documents, W, 3) * 3 / 8
    vectors = rng.standard_normal((tensor.dimension, 3))
    images, values = tensor.apply(vectors)
    expected = np.einsum("abc,bn,cn->an", dense, vectors, vectors)
    np.testing.assert_allclose(images, expected, atol=1e-12)
    np.testing.assert_allclose(values, np.einsum("an,an->n", vectors, images), atol=1e-12)


@pytest.mark.statistical
def test_every_entry_gets_the_stated_noise_once():
    # Three looks of false-alarm rate 1e-5.
    d = 40
    neighbours = Neighbours("entry", 1.0)
    found = perturb_tensor(np.zeros((d, d, d)), 2.0, DELTA, neighbours, SeededNoise(5))
    noise, z = found.tensor, noise_multiplier(2.0, DELTA)
    for axes in itertools.permutations(range(3)):
        np.testing.assert_array_equal(noise, noise.transpose(axes))
    i, j, k = (x.reshape(-1) for x in np.indices((d, d, d)))
    kinds = {6: (i < j) & (j < k), 3: (i <= j) & (j <= k) & ((i < j) ^ (j < k))}
    kinds[1] = (i == j) & (j == k)
    for orders, chosen in kinds.items():
        # A neighbour moves such an entry by 6 / m.
        looks = has_scale if orders > 1 else fits_scale
        assert looks(noise.reshape(-1)[chosen], z * 6 / orders)
    assert found.event.noise_multiplier == pytest.approx(z)
    assert not found.private


def test_a_perturbed_tensor_is_the_tensor_and_its_noise():
    vectors = np.random.default_rng(0).standard_normal((D, 2))
    tensor = np.einsum("an,bn,cn->abc", vectors, vectors, vectors)
    neighbours = Neighbours("entry", float(np.linalg.norm(tensor)))
    found = perturb_tensor(tensor, 1e5, DELTA, neighbours, SecureNoise())
    np.testing.assert_allclose(found.tensor, tensor, atol=0.3)
    assert found.private
    assert (found.tensor != tensor).any()
