"""Algorithm 3: sensitivities are proven, attained and charged; noise has the stated scale."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from streamlda.errors import BudgetExceededError, InvalidDocumentsError, InvalidSettingError
from streamlda.guarantee.accounting import epsilon_of, mu_of
from streamlda.guarantee.noise import SecureNoise, SeededNoise
from streamlda.papers.wang_anandkumar.neighbours import Neighbours
from streamlda.papers.wang_anandkumar.noisy import CALIBRATIONS, NoisyPower, Schedule
from streamlda.papers.wang_anandkumar.tensors import FactoredTensor
from streamlda.privacy.costs import cost, epsilon_spent
from streamlda.privacy.events import Composed, GaussianRelease
from streamlda.spectral.power import DeflatedPower, SimultaneousPower
from tests.privacy.chance import ALARM, has_scale

DELTA = 1e-6
D, K, L, R = 40, 2, 4, 5
ENTRIES = Neighbours("entry", magnitude=K)


class Recorded:
    def __init__(self, tensor):
        self.tensor, self.queries, self.true = tensor, [], []

    def apply(self, vectors):
        answer = self.tensor.apply(vectors)
        self.queries.append(vectors.copy())
        self.true.append(answer)
        return answer


class Recording(DeflatedPower):
    def advance(self, images, values):
        self.__dict__.setdefault("given", []).append((images, values))
        super().advance(images, values)


def orthonormal(k=K, scale=1.0):
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (D, k))
    vectors = np.linalg.qr(signs)[0]
    eigenvalues = scale * (1 - 0.3 * np.arange(k) / k)
    return FactoredTensor(eigenvalues, vectors), eigenvalues, vectors


def deflated(**options):
    return Recording(D, K, **{"n_restarts": L, "n_iterations": R, **options})


def power_of(method=None, tensor=None, neighbours=None, noise=None, epsilon=1.0):
    method = deflated() if method is None else method
    tensor = orthonormal()[0] if tensor is None else tensor
    schedule = Schedule(epsilon, DELTA, ENTRIES if neighbours is None else neighbours)
    return NoisyPower(method, tensor, schedule, SeededNoise(0) if noise is None else noise)


def standardised(seed, neighbours):
    """Run all rounds; return the noise of each query over its stated standard deviation."""
    method, tensor = deflated(), Recorded(orthonormal()[0])
    power = power_of(method, tensor, neighbours, SeededNoise(seed))
    power.run()
    rounds = []
    for probes, true, given in zip(tensor.queries, tensor.true, method.given, strict=True):
        last = int(given[0] is None)
        moves = ENTRIES.sensitivities(probes, values=bool(last))
        noise = given[last] - true[last]
        rounds.append(np.atleast_2d(noise / (power.noise_multiplier * moves)))
    return rounds


@pytest.fixture(scope="module")
def noise_drawn():
    """Images (queries, d, L) and values (queries, L) of 80 runs, in order."""
    rounds = [noise for seed in range(80) for noise in standardised(seed, ENTRIES)]
    images = np.array([noise for noise in rounds if len(noise) > 1])
    return images, np.concatenate([noise for noise in rounds if len(noise) == 1])


@pytest.mark.statistical
def test_noise_of_images_and_values_has_the_stated_scale_and_no_other(noise_drawn):
    # False-alarm rate 1e-5 for each of the four looks.
    for noise in noise_drawn:
        assert has_scale(noise)
        assert stats.kstest(noise.reshape(-1), "norm").pvalue > ALARM


@pytest.mark.statistical
def test_noise_is_independent_over_restarts_iterations_and_runs(noise_drawn):
    # Sums of products of independent normals; 11 looks of false-alarm rate 1e-5.
    images = noise_drawn[0]
    restarts = itertools.combinations(np.moveaxis(images, 2, 0), 2)
    iterations = [(images[:-lag], images[lag:]) for lag in (1, R, 2 * R, K * R)]
    neighbouring = (images[:, :-1], images[:, 1:])

    def score(a, b):
        return abs(float(np.sum(a * b) / math.sqrt(a.size)))

    limit = stats.norm.isf(ALARM / 2)
    assert max(score(*pair) for pair in (*restarts, *iterations, neighbouring)) < limit
    assert score(images, images) > limit


def spent_of_budget(method):
    """Return how many queries there were, and what they cost, over the budget's mu^2."""
    tensor = Recorded(orthonormal()[0])
    power = power_of(method, tensor)
    power.run()
    queries = sum(probes.shape[1] for probes in tensor.queries)
    mu_squared = queries / power.noise_multiplier**2
    assert cost(power.total_cost).mu_squared == pytest.approx(mu_squared, rel=1e-12)
    return queries, mu_squared / mu_of(1.0, DELTA) ** 2


@pytest.mark.parametrize(
    ("make", "queries"),
    [
        (deflated, K * L * (R + 1)),
        (lambda: deflated(eigenvalue_round=False), K * L * R),
        (lambda: SimultaneousPower(D, K, n_iterations=R), K * R),
    ],
)
def test_every_query_is_paid_for_and_the_budget_is_used_up(make, queries):
    found, used = spent_of_budget(make())
    assert found == queries
    assert 1 - 1e-9 < used <= 1


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize(("epsilon", "queries"), [(0.1, 1), (1.0, 3), (4.0, 400)])
def test_no_calibration_costs_more_than_epsilon_by_exact_accounting(calibration, epsilon, queries):
    z = Schedule(epsilon, DELTA, ENTRIES, calibration).noise_multiplier(queries)
    assert epsilon_spent(Composed([GaussianRelease(z)] * queries), DELTA) <= epsilon
    exact = Schedule(epsilon, DELTA, ENTRIES).noise_multiplier(queries)
    assert z >= exact * (1 - 1e-9)


@pytest.mark.parametrize("sigma", [0.01, 1.0, 100.0])
def test_lemma_e1_the_largest_entry_of_a_probe_falls_as_the_square_root_of_d(sigma):
    """Over sqrt(mu_0 k log(d) / d) it is from 0.1 to 2, d = 50 to 3200; fixed seeds."""
    rng, k = np.random.default_rng(3), 3
    for d in (50, 400, 3200):
        vectors = np.linalg.qr(rng.choice([-1.0, 1.0], (d, k)))[0]
        mu_0 = d / k * (vectors**2).sum(axis=1).max()
        u = rng.standard_normal((d, 20))
        u /= np.linalg.norm(u, axis=0)
        image = FactoredTensor([3.0, 2.0, 1.0], vectors).apply(u)[0]
        image += sigma * rng.standard_normal((d, 20))
        largest = np.abs(image).max(axis=0) / np.linalg.norm(image, axis=0)
        ratio = largest / math.sqrt(mu_0 * k * math.log(d) / d)
        assert 0.1 < ratio.min() <= ratio.max() < 2


def test_with_hardly_any_noise_it_is_algorithm_1():
    # Noise cannot be switched off, nor be so small that rounding would show.
    tiny = power_of(
        tensor=orthonormal(scale=1e15)[0],
        neighbours=Neighbours("entry", magnitude=1e15 * K, roundings=1),
        epsilon=1e5,
    )
    with pytest.raises(InvalidSettingError, match="rounding costs more"):
        tiny.run()
    exact, tensor = deflated(), orthonormal(scale=2e4)[0]
    while not exact.finished:
        exact.advance(*tensor.apply(exact.probes))
    neighbours = Neighbours("entry", magnitude=2e4 * K, roundings=3 * D)
    found = power_of(tensor=tensor, neighbours=neighbours, epsilon=1e5).run()
    wanted = exact.components()
    np.testing.assert_allclose(found.eigenvectors, wanted.eigenvectors, atol=1e-4)
    np.testing.assert_allclose(found.eigenvalues, wanted.eigenvalues, atol=2)


def test_replay_stops_after_its_rounds_and_sends_no_query_beyond():
    tensor = Recorded(orthonormal()[0])
    power = power_of(tensor=tensor)
    assert power.rounds == K * (R + 1)
    assert 0 < power.tv_distance_bound < K * L * (R + 1) * D * 2.0**-58
    assert epsilon_spent(power.event, DELTA) <= 1.0
    power.run()
    assert power.total_cost == power.event
    with pytest.raises(BudgetExceededError, match=r"remaining=0\.0") as caught:
        power.step()
    assert caught.value.spent == cost(power.event).mu_squared
    assert len(tensor.queries) == power.rounds


def test_privacy_follows_from_what_is_spent():
    tensor = orthonormal()[0]
    for name, noise in itertools.product(CALIBRATIONS, (SecureNoise(), SeededNoise(0))):
        power = NoisyPower(deflated(), tensor, Schedule(1.0, DELTA, ENTRIES, name), noise)
        assert power.private == power.statement.startswith("private: ") == noise.secure
        assert power.epsilon <= 1.0
    # All calibrations keep the promise; two of them need far less than they use.
    assert power.epsilon < 0.3


class Half(Schedule):
    """A schedule that claims what another one keeps."""

    def noise_multiplier(self, queries):
        return 0.5 * super().noise_multiplier(queries)


def test_a_schedule_of_ones_own_is_accounted_as_it_is():
    tensor, rounds = orthonormal()[0], K * (R + 1)
    half = NoisyPower(deflated(), tensor, Half(1.0, DELTA, ENTRIES), SecureNoise())
    assert not half.private
    assert half.epsilon == pytest.approx(epsilon_of(2 * mu_of(1.0, DELTA), DELTA), rel=1e-6)
    assert half.statement.startswith("not private at epsilon 1: the noise costs epsilon 2.")
    multipliers = np.linspace(50, 80, rounds).tolist()
    spent = epsilon_of(math.sqrt(sum(L / z**2 for z in multipliers)), DELTA)
    for asked, private in ((None, True), (1.01 * spent, True), (0.99 * spent, False)):
        schedule = Schedule(asked, DELTA, ENTRIES, noise_multipliers=multipliers)
        own = NoisyPower(deflated(), tensor, schedule, SecureNoise())
        assert own.epsilon == pytest.approx(spent, rel=1e-9)
        assert own.private is private
        own.step()
        assert own.noise_multiplier == multipliers[1]


def test_probes_and_answers_that_do_not_fit_get_no_noise():
    method, tensor = deflated(), Recorded(orthonormal()[0])
    method.probes = 1.01 * method.probes
    with pytest.raises(InvalidSettingError, match=r"unit vector, got length=1\.01"):
        power_of(method, tensor).step()
    assert tensor.queries == []
    method = deflated()
    method.probes = np.repeat(orthonormal()[2][:, :1], L, axis=1)
    power = power_of(method, neighbours=Neighbours("entry", magnitude=1e-3))
    with pytest.raises(InvalidDocumentsError, match="norm above"):
        power.step()
    assert power.total_cost == Composed([])
