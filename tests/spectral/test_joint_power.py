"""Many components at once: exact, as its slow twin, and the same of documents as of their sums."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.model.evaluation import matched_l1_error
from streamlda.simulate import PlantedLDA
from streamlda.spectral import joint_power as module
from streamlda.spectral.joint_power import apply_pairs, exact, joint_power
from streamlda.spectral.kept_documents import topics_of_documents
from streamlda.spectral.moments import Moments
from streamlda.spectral.topics import RoundMoments, recover_topics
from streamlda.spectral.whitening import random_projection
from tests.spectral import twins
from tests.spectral.checks import check_recovers, compose, noisy_array, orthonormal


def answers(values, vectors):
    """Return T(I, u, u) of an orthogonal tensor that is not formed."""
    return exact(lambda u: vectors @ (values[:, None] * (vectors.T @ u) ** 2))


def test_orthogonal_tensors_are_decomposed_exactly_from_random_starts():
    for d, values in (
        (200, np.full(200, 1.7)),
        (200, np.geomspace(0.1, 10, 200)),
        (30, np.geomspace(1e-8, 1e-6, 30)),
        (1, np.array([-3.0])),
    ):
        vectors = orthonormal(d, d, 1)
        start = np.random.default_rng(2).standard_normal((d, d))
        found = joint_power(answers(values, vectors), start)
        assert (np.diff(found.eigenvalues) <= 0).all()
        signs = np.sign(values)
        check_recovers(found, values * signs, vectors * signs, atol=1e-8 * np.abs(values).max())


@pytest.mark.fuzz
@given(
    d=st.integers(1, 7),
    data=st.data(),
    seed=st.integers(0, 2**32),
    scale=st.sampled_from([1e-200, 1e-9, 1.0, 1e9, 1e200]),
)
def test_any_small_orthogonal_tensor_is_decomposed_exactly(d, data, seed, scale):
    """At any scale, and with eigenvalues a factor of 100 apart."""
    k = data.draw(st.integers(1, d))
    rng = np.random.default_rng(seed)
    values, vectors = scale * 10 ** rng.uniform(-1, 1, k), orthonormal(d, k, seed + 1)
    tensor = compose(values, vectors)
    found = joint_power(exact(partial(apply_pairs, tensor)), rng.standard_normal((d, k)))
    check_recovers(found, values, vectors)


def test_joint_power_equals_its_slow_twin(monkeypatch):
    tensor = noisy_array(6, 3)
    start = np.random.default_rng(4).standard_normal((6, 5))
    monkeypatch.setattr(module, "STILL", 1.0)
    monkeypatch.setattr(module, "MOST_STEPS", 12)
    found = joint_power(exact(partial(apply_pairs, tensor)), start)
    values, vectors = twins.joint(tensor, start, 12, module.N_REFINEMENTS)
    np.testing.assert_allclose(found.eigenvalues, values, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.eigenvectors, vectors, rtol=0, atol=1e-9)


def test_a_tensor_of_fewer_components_has_them_and_zeros():
    vectors, values = orthonormal(9, 9, 6)[:, :4], np.array([5.0, 3.0, 2.0, 1.0])
    start = np.random.default_rng(7).standard_normal((9, 9))
    found = joint_power(answers(values, vectors), start)
    np.testing.assert_allclose(found.eigenvalues, [5, 3, 2, 1, *[0] * 5], rtol=0, atol=1e-9)
    across = np.abs(vectors.T @ found.eigenvectors[:, :4])
    np.testing.assert_allclose(across, np.eye(4), rtol=0, atol=1e-8)
    nothing = joint_power(exact(np.zeros_like), start)
    assert not nothing.eigenvalues.any()
    assert np.isfinite(nothing.eigenvectors).all()


def test_steps_end_within_the_noise_of_their_images():
    """Components a tenth of a radian from the exact ones take half of the calls."""
    tensor, calls = noisy_array(30, 3), []
    start = np.random.default_rng(5).standard_normal((30, 20))
    noise = noisy_array(30, 9)

    def apply(vectors, scale=0.0):
        calls.append(scale)
        return apply_pairs(tensor, vectors), scale * apply_pairs(noise, vectors)

    found, near = (joint_power(partial(apply, scale=scale), start) for scale in (0.0, 0.3))
    assert 2 * calls.count(0.3) <= calls.count(0.0)
    cosines = np.abs(found.eigenvectors.T @ near.eigenvectors).max(axis=0)
    assert cosines.mean() > 0.995
    np.testing.assert_allclose(found.noise, 0)


K, V = 6, 80


def sums(documents, columns, triple_columns):
    moments = Moments(random_projection(V, columns, seed=1), triple_columns)
    moments.add(documents)
    return moments


def test_documents_give_the_topics_of_their_triple_sums():
    planted = PlantedLDA(K, V, topic_concentration=0.1, seed=3)
    documents = planted.documents(3000)
    dense = recover_topics(RoundMoments.of(sums(documents, 12, 12)), K, 1.0)
    found = topics_of_documents(documents, sums(documents, 12, 0), K, 1.0)
    # Steps end at the noise of documents, which sums do not show them.
    np.testing.assert_allclose(found.topics, dense.topics, rtol=0, atol=5e-4)
    np.testing.assert_allclose(found.eigenvalues, dense.eigenvalues, rtol=1e-2)
    np.testing.assert_allclose(found.alpha, dense.alpha, rtol=1e-2)
    # Words drawn together with themselves are in the noise of the sums, of 80 tokens a document.
    np.testing.assert_allclose(found.eigenvalue_noise, dense.eigenvalue_noise, rtol=0.3)
    assert found.is_supported.all()
    assert found.documents == dense.documents == 3000
    assert matched_l1_error(planted.components, found.normalize()).mean < 0.3
