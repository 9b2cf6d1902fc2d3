"""Checks that every power method must pass: call `check_solver` from a test of the method.

`make_solver(dimension, n_components, *, order, seed, **settings)` makes one; it is answered
exactly, from a tensor. All checks are of the method alone.
"""

from itertools import permutations

import numpy as np
import pytest

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.papers.wang_anandkumar.tensors import DenseTensor, FactoredTensor


def orthonormal(d, k, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0][:, :k]


def symmetric_noise(d, seed, level):
    normal = np.random.default_rng(seed).standard_normal((d, d, d))
    noise = sum(map(normal.transpose, permutations(range(3))))
    return level * noise / np.linalg.norm(noise)


def noisy_array(d, seed, level=0.05):
    exact = compose(np.linspace(1, 2, d), orthonormal(d, d, seed))
    return exact + symmetric_noise(d, seed, level)


def compose(values, vectors):
    return np.einsum("n,an,bn,cn->abc", values, vectors, vectors, vectors)


def answer(solver, tensor):
    """Give a solver its next answer, as a stream would: no images where none are wanted."""
    images, values = tensor.apply(solver.probes)
    solver.advance(None if solver.wants_values_only else images, values)


def drive(solver, tensor):
    while not solver.finished:
        answer(solver, tensor)
    return solver.components()


def state_bytes(solver):
    held = vars(solver).items()
    return {name: a.tobytes() if isinstance(a, np.ndarray) else a for name, a in held}


def check_recovers(found, values, vectors, order=3, atol=1e-8):
    """Compare with the truth, largest first, equal eigenvalues in any order."""
    rank = np.argsort(-found.eigenvalues, kind="stable")
    eigenvalues, eigenvectors = found.eigenvalues[rank], found.eigenvectors[:, rank]
    np.testing.assert_allclose(eigenvalues, np.sort(values)[::-1], rtol=atol, atol=0)
    cosines = vectors.T @ eigenvectors
    # The sign of a vector counts where the order is odd.
    signed = cosines if order % 2 else np.abs(cosines)
    matched = np.argmax(signed, axis=0)
    assert sorted(matched.tolist()) == list(range(len(values)))
    signs = 1.0 if order % 2 else np.sign(cosines[matched, range(len(values))])
    np.testing.assert_allclose(eigenvectors, vectors[:, matched] * signs, rtol=0, atol=atol)
    np.testing.assert_allclose(eigenvalues, values[matched], rtol=atol, atol=0)


def check_exact(make_solver, order):
    """Orthogonal tensors without noise are decomposed to 1e-8."""
    for d, k, seed in [(1, 1, 0), (2, 2, 1), (6, 3, 2), (8, 8, 3), (20, 5, 4)]:
        vectors = orthonormal(d, k, seed)
        for values in (np.linspace(1, 3, k), np.full(k, 1.7)):
            solver = make_solver(d, k, order=order, seed=seed)
            found = drive(solver, FactoredTensor(values, vectors, order))
            check_recovers(found, values, vectors, order)


def check_refines(make_solver, order):
    """Further answers keep what is right, and follow a tensor whose vectors turn."""
    values, vectors, turn = np.linspace(1, 2, 4), orthonormal(7, 4, 5), np.eye(7)
    turn[:2, :2] = [[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]]
    solver = make_solver(7, 4, order=order, seed=5)
    drive(solver, FactoredTensor(values, vectors, order))
    for truth in (vectors, turn @ vectors):
        tensor = FactoredTensor(1.1 * values, truth, order)
        for _ in range(30):
            answer(solver, tensor)
        check_recovers(solver.components(), 1.1 * values, truth, order)
        assert solver.finished


def check_resume(make_solver):
    """A solver restored before each answer equals one that never stopped, bit for bit."""
    tensor = DenseTensor(noisy_array(6, 6))
    straight = make_solver(6, 3, order=3, seed=6)
    resumed = make_solver(6, 3, order=3, seed=6)
    after = 0
    while after < 3:
        state = resumed.state()
        resumed = type(straight).from_state(state)
        # A state is a copy, in both directions.
        for array in (*state.values(), *straight.state().values()):
            array[...] = 0
        np.testing.assert_array_equal(resumed.probes, straight.probes)
        assert resumed.wants_values_only == straight.wants_values_only
        answer(straight, tensor)
        answer(resumed, tensor)
        assert state_bytes(resumed) == state_bytes(straight)
        after += straight.finished
    one, other = (make_solver(6, 3, order=3, seed=seed) for seed in (6, 7))
    assert state_bytes(one) != state_bytes(other)


def check_degenerate(make_solver):
    """Eigenvalues of 0 or below, no tensor at all, very small and very large units."""
    vectors = orthonormal(5, 3, 9)
    for scale, values in (
        (1.0, [1.0, 0.0, 0.0]),
        (1.0, [-2.0, 1.0, -0.5]),
        (1.0, [0.0, 0.0, 0.0]),
        (1e-200, [2.0, 1.0, 0.5]),
        (1e200, [2.0, 1.0, 0.5]),
    ):
        tensor = FactoredTensor(scale * np.array(values), vectors)
        found = drive(make_solver(5, 3, order=3, seed=9), tensor)
        np.testing.assert_allclose(np.linalg.norm(found.eigenvectors, axis=0), 1, rtol=1e-12)
        # Where p is odd, -l v^p = l (-v)^p.
        np.testing.assert_allclose(
            np.sort(found.eigenvalues / scale), np.sort(np.abs(values)), rtol=0, atol=1e-8
        )


def check_bad_answers(make_solver):
    solver = make_solver(4, 2, order=3, seed=11)
    tensor = FactoredTensor([2.0, 1.0], orthonormal(4, 2, 11))
    answer(solver, tensor)
    before = state_bytes(solver)
    images, values = tensor.apply(solver.probes)
    for bad in (np.nan, np.inf):
        spoilt_images, spoilt_values = images.copy(), values.copy()
        spoilt_images[0, 0] = spoilt_values[0] = bad
        for wrong in ((spoilt_images, values), (images, spoilt_values)):
            with pytest.raises(InvalidDocumentsError, match="NaN or infinity"):
                solver.advance(*wrong)
    for wrong in ((None, values), (images[1:], values), (images, values[1:])):
        with pytest.raises(InvalidSettingError, match="does not fit the probes"):
            solver.advance(*wrong)
    assert state_bytes(solver) == before


def check_twin(make_solver, twin):
    for d, k, seed in [(4, 2, 12), (5, 5, 13)]:
        array = noisy_array(d, seed, level=0.3)
        found = drive(make_solver(d, k, order=3, seed=seed), DenseTensor(array))
        values, vectors = twin(array, k, seed)
        np.testing.assert_allclose(found.eigenvalues, values, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.eigenvectors, vectors, rtol=0, atol=1e-9)


def check_solver(make_solver, twin):
    """Check all of it; `twin(array, k, seed)` must use the default settings of `make_solver`."""
    for order in (3, 4, 5):
        check_exact(make_solver, order)
        check_refines(make_solver, order)
    check_degenerate(make_solver)
    check_bad_answers(make_solver)
    check_twin(make_solver, twin)
