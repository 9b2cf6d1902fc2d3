import numpy as np
import pytest
from scipy import special

from streamlda.papers.variational import digamma, variational_responsibilities
from streamlda.simulate import PlantedLDA
from tests import oracle_variational


def test_digamma():
    for x in np.concatenate([np.geomspace(1e-5, 1e5, 400), np.linspace(0.01, 12, 200)]):
        exact = special.digamma(x)
        assert abs(digamma(x) - exact) <= 1e-12 * max(1, abs(exact))


@pytest.mark.parametrize(("iterations", "tolerance"), [(0, 0.0), (1, 0.0), (7, 0.0), (100, 1e-3)])
def test_equals_its_slow_twin(iterations, tolerance):
    planted = PlantedLDA(3, 40, seed=5)
    documents = planted.documents(30)
    words = np.random.default_rng(1).gamma(0.3, size=(40, 3)) + 1e-9
    alpha = np.array([0.05, 0.4, 2.0])
    arguments = (documents.counts, documents.word_ids, documents.row_pointers, words, alpha)
    responsibilities = np.empty((len(documents.counts), 3), dtype=np.float32)
    norms = np.empty(30)
    variational_responsibilities(*arguments, iterations, tolerance, responsibilities, norms)
    slow, slow_norms = oracle_variational.variational_responsibilities(
        *arguments, iterations, tolerance
    )
    np.testing.assert_allclose(responsibilities, slow, rtol=2e-6, atol=1e-12)
    np.testing.assert_allclose(norms, slow_norms, rtol=1e-6)


def test_a_word_that_no_topic_has_is_divided_evenly():
    responsibilities, norms = np.empty((1, 4), dtype=np.float32), np.empty(1)
    one, ids, pointers = np.array([3.0]), np.zeros(1, np.int32), np.array([0, 1])
    variational_responsibilities(
        one, ids, pointers, np.zeros((1, 4)), np.ones(4), 5, 0.0, responsibilities, norms
    )
    np.testing.assert_array_equal(responsibilities, 0.25)
    assert norms[0] == pytest.approx(1.5)
