"""How far neighbouring tensors move an answer: never farther than proven, and as far as that."""

import itertools
import math

import numpy as np
import pytest

from streamlda.papers.wang_anandkumar.neighbours import NOTIONS, DocumentTensor, Neighbours
from streamlda.papers.wang_anandkumar.perturbation import perturb_tensor
from streamlda.papers.wang_anandkumar.tensors import DenseTensor
from streamlda.privacy.accounting import noise_multiplier
from streamlda.privacy.noise import SecureNoise, SeededNoise
from tests import oracle
from tests.corpora import batch_of
from tests.papers.wang_anandkumar.test_noisy import ALARM, scale_p_value

D, DELTA = 6, 1e-6


def unit(seed, d=D):
    u = np.random.default_rng(seed).standard_normal((d, 1))
    return u / np.linalg.norm(u)


def symmetrised(i, j, k, d=D):
    """Return the sum over all orders of three indices, as Definition 4.2 prints it."""
    found = np.zeros((d, d, d))
    for a, b, c in itertools.permutations((i, j, k)):
        found[a, b, c] += 1
    return found


def answers(tensor, u):
    images, values = tensor.apply(u)
    return np.linalg.norm(images, axis=0)[0], abs(values[0])


def moved(here, there, u):
    """Return how far two tensors' answers lie apart."""
    (first, a), (second, b) = here.apply(u), there.apply(u)
    return float(np.linalg.norm(first - second)), float(abs(a - b)[0])


def stated(neighbours, u):
    return [float(neighbours.sensitivities(u, values=values)[0]) for values in (False, True)]


@pytest.mark.parametrize("seed", range(3))
def test_entries_attain_the_bound_and_never_pass_it(seed):
    u = unit(seed)
    triples = itertools.combinations_with_replacement(range(D), 3)
    found = np.array([answers(DenseTensor(symmetrised(*triple)), u) for triple in triples])
    wanted = stated(Neighbours("entry", magnitude=1.0), u)
    assert found.max(axis=0) == pytest.approx(wanted, rel=1e-12)


def test_documents_attain_the_bound_of_add_remove():
    u = unit(1)
    word = int(np.argmax(np.abs(u)))
    rest = [[0, 1, 2, 2], [3, 3, 4, 5, 5]]
    with_document = DocumentTensor(batch_of([*rest, [word] * 3], D), 50)
    with_blank = DocumentTensor(batch_of([*rest, []], D), 50)
    wanted = stated(Neighbours("add-remove", n_documents=50), u)
    assert moved(with_document, with_blank, u) == pytest.approx(wanted, rel=1e-9)


def test_documents_attain_the_bound_of_replace_one():
    u = np.array([[0.5], [-0.5], [0.5], [0.5], [0.0], [0.0]])
    here, there = (DocumentTensor(batch_of([d], D), 1) for d in ([0, 0, 0], [0, 0, 1]))
    neighbours = Neighbours("replace-one")
    assert moved(here, there, u)[0] == pytest.approx(stated(neighbours, u)[0], rel=1e-9)
    there = DocumentTensor(batch_of([[1, 1, 1]], D), 1)
    assert moved(here, there, u)[1] == pytest.approx(stated(neighbours, u)[1], rel=1e-9)


def test_replace_one_is_largest_at_corners_where_it_is_sqrt_26_over_3():
    # The finite part of the proof: all pairs of three words among six, all signs of y and z.
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=6)))
    largest = 0.0
    for first in ((0, 0, 0), (0, 0, 1), (0, 1, 2)):
        for second in itertools.combinations_with_replacement(range(6), 3):
            difference = (symmetrised(*first) - symmetrised(*second)) / 6
            at = np.einsum("ijk,yj,zk->yzi", difference, signs, signs, optimize=True)
            largest = max(largest, float(np.linalg.norm(at, axis=-1).max()))
    assert largest == pytest.approx(math.sqrt(26) / 3, rel=1e-12)


def test_documents_through_a_projection_attain_the_bounds():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((D, 3))
    W[4] *= 3 / np.linalg.norm(W[4]) + 3
    W[2] = -W[4]
    u = W[4][:, None] / np.linalg.norm(W[4])
    document, other, blank = (
        DocumentTensor(batch_of([d], D), 1, W) for d in ([4, 4, 4], [2, 2, 2, 2], [])
    )
    added = Neighbours("add-remove", whitening=W)
    replaced = Neighbours("replace-one", whitening=W)
    assert moved(document, blank, u) == pytest.approx(stated(added, u), rel=1e-9)
    assert moved(document, other, u) == pytest.approx(stated(replaced, u), rel=1e-9)


@pytest.mark.parametrize("notion", ["add-remove", "replace-one"])
@pytest.mark.parametrize("mapped", [False, True])
def test_no_document_moves_an_answer_farther(notion, mapped):
    rng = np.random.default_rng(5)
    for _ in range(150):
        W = rng.standard_normal((D, 3)) if mapped else None
        u = unit(int(rng.integers(1000)), 3 if mapped else D)
        first, second = (rng.integers(0, D, rng.integers(0, 9)).tolist() for _ in range(2))
        here = DocumentTensor(batch_of([first], D), 1, W)
        there = DocumentTensor(batch_of([second if notion == "replace-one" else []], D), 1, W)
        bounds = stated(Neighbours(notion, whitening=W), u)
        assert all(a <= b * (1 + 1e-12) for a, b in zip(moved(here, there, u), bounds, strict=True))


@pytest.mark.parametrize("mapped", [False, True])
def test_a_document_tensor_equals_the_oracle(mapped):
    rng = np.random.default_rng(7)
    documents = [[], [0, 1], *(rng.integers(0, D, n).tolist() for n in (3, 4, 9)), []]
    W = rng.standard_normal((D, 4)) if mapped else None
    tensor = DocumentTensor(batch_of(documents, D), 8, W)
    dense = oracle.mean_through(documents, np.eye(D) if W is None else W, 3) * 3 / 8
    vectors = rng.standard_normal((tensor.dimension, 3))
    images, values = tensor.apply(vectors)
    np.testing.assert_allclose(
        images, np.einsum("abc,bn,cn->an", dense, vectors, vectors), atol=1e-12
    )
    np.testing.assert_allclose(values, np.einsum("an,an->n", vectors, images), atol=1e-12)


# Input perturbation


#: Frobenius norm of the largest difference, by notion.
NORMS = {"entry": 6.0, "add-remove": 1.0, "replace-one": math.sqrt(2)}


def test_norms_of_differences_are_those_of_the_table():
    triples = itertools.combinations_with_replacement(range(D), 3)
    norms = {triple: np.linalg.norm(symmetrised(*triple)) for triple in triples}
    assert norms[0, 1, 2] == pytest.approx(math.sqrt(6))
    assert norms[0, 0, 2] == pytest.approx(math.sqrt(12))
    assert max(norms.values()) == pytest.approx(NORMS["entry"])
    three, other = symmetrised(0, 0, 0) / 6, symmetrised(1, 1, 1) / 6
    assert np.linalg.norm(three) == pytest.approx(NORMS["add-remove"])
    assert np.linalg.norm(three - other) == pytest.approx(NORMS["replace-one"])


@pytest.mark.statistical
@pytest.mark.parametrize("notion", NOTIONS)
def test_every_entry_gets_the_stated_noise_once(notion):
    # Nine looks of false-alarm rate 1e-5 over the notions.
    d = 40
    n = 1 if notion == "entry" else 20
    neighbours = Neighbours(notion, 1.0, n)
    found = perturb_tensor(np.zeros((d, d, d)), 2.0, DELTA, neighbours, SeededNoise(5))
    noise, z = found.tensor, noise_multiplier(2.0, DELTA)
    for axes in itertools.permutations(range(3)):
        np.testing.assert_array_equal(noise, noise.transpose(axes))
    i, j, k = (x.reshape(-1) for x in np.indices((d, d, d)))
    kinds = {6: (i < j) & (j < k), 3: (i <= j) & (j <= k) & ((i < j) ^ (j < k))}
    kinds[1] = (i == j) & (j == k)
    for orders, chosen in kinds.items():
        moves = NORMS[notion] / (orders if notion == "entry" else math.sqrt(orders))
        values = noise.reshape(-1)[chosen] / (z * moves / n)
        assert scale_p_value(values, 1.0) > ALARM
        if orders > 1:
            assert scale_p_value(values, 2 / 3) < ALARM
            assert scale_p_value(values, 3 / 2) < ALARM
    assert found.event.noise_multiplier == pytest.approx(z)
    assert not found.private


def test_a_perturbed_tensor_is_the_tensor_and_its_noise():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((D, 2))
    tensor = np.einsum("an,bn,cn->abc", vectors, vectors, vectors)
    neighbours = Neighbours("entry", float(np.linalg.norm(tensor)))
    found = perturb_tensor(tensor, 1e5, DELTA, neighbours, SecureNoise())
    np.testing.assert_allclose(found.tensor, tensor, atol=0.3)
    assert found.private
    assert (found.tensor != tensor).any()
