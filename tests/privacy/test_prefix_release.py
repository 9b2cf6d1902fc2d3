"""Prefix sums under one spend: sensitivity over the horizon, noise, dense matrices, resuming."""

import functools
import math

import numpy as np
import pytest
from scipy import stats

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz, StrategyRows
from streamlda.guarantee.mechanism import NEIGHBORING_RELATIONS, Block
from streamlda.guarantee.noise import SeededNoise
from streamlda.privacy.prefix_release import PrefixRelease, PrefixSums
from tests.privacy.chance import ALARM, has_scale
from tests.privacy.neighbours import full, zeros

BLOCKS = [
    Block("first", (4,), l2_clip_norm=0.2, weight=0.1, nonnegative=True),
    Block("pair", (4, 2), l2_clip_norm=0.04, weight=2.0),
]


def strategy(horizon):
    return BufferedToeplitz(horizon=horizon)


def column_of(horizon, n):
    """Return the first n entries of a column of C."""
    running = StrategyRows(strategy(horizon), ())
    return [float(running.step(np.array(x))) for x in np.eye(1, n)[0]]


def prefixes(parts=BLOCKS, z=1.0, horizon=12, n_max=1000, **options):
    return PrefixRelease(parts, z, strategy=strategy(horizon), n_max=n_max, **options)


#: A contribution at the clip norm of every block: sign and cell.
document = functools.partial(full, BLOCKS)


def silence(horizon):
    return [zeros(BLOCKS) for _ in range(horizon)]


def put(stream, t, contribution):
    """Return the stream with one more document in round t."""
    changed = list(stream)
    changed[t] = {name: changed[t][name] + contribution[name] for name in contribution}
    return changed


def run(release, stream, seed):
    noise = SeededNoise(seed)
    return [release.step(sums, noise) for sums in stream]


def rows_of(release, outputs, name):
    """Return the noisy rows behind published prefix sums: C times their differences."""
    running = StrategyRows(release.strategy, outputs[0][name].shape)
    steps = np.diff([np.zeros_like(outputs[0][name]), *[out[name] for out in outputs]], axis=0)
    return np.array([running.step(step) for step in steps])


def distance(here, there, release=prefixes):
    """Return how far all noisy rows of two streams are apart, weighted, under the same noise."""
    one, other = release(horizon=len(here)), release(horizon=len(there))
    outputs, others = run(one, here, 5), run(other, there, 5)
    square = 0.0
    for block in one.mechanism.blocks:
        moved = rows_of(one, outputs, block.name) - rows_of(one, others, block.name)
        square += one.mechanism.fractions[block.name] * np.sum((moved / block.l2_clip_norm) ** 2)
    return math.sqrt(square)


def neighbours(relation, stream, t):
    """Return two streams as far apart as the relation allows by a document of round t."""
    here = put(stream, t, document())
    # The nonnegative block is orthogonal, the other one opposite.
    other = {**document(-1.0), "first": document(cell=1)["first"]}
    return here, stream if relation == "zero-out" else put(stream, t, other)


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@pytest.mark.parametrize(("t", "crowded"), [(0, False), (0, True), (5, True), (11, False)])
def test_a_document_moves_all_rows_by_the_sensitivity_at_most_and_in_round_one_by_all_of_it(
    relation, t, crowded
):
    stream = silence(12)
    if crowded:
        rng = np.random.default_rng(1)
        for cell in rng.integers(8, size=100):
            stream = put(stream, rng.integers(12), document(rng.choice([-1.0, 1.0]), int(cell)))
    release = functools.partial(prefixes, neighboring_relation=relation)
    found = distance(*neighbours(relation, stream, t), release)
    bound = release().mechanism.l2_sensitivity
    assert found <= bound * (1 + 1e-9)
    column = np.linalg.norm(column_of(12, 12 - t))
    assert found == pytest.approx(bound * column / strategy(12).sensitivity, rel=0.01)
    assert (found >= 0.99 * bound) == (t == 0)


@pytest.mark.statistical
@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
def test_the_horizon_costs_what_the_noise_multiplier_says(relation):
    """Measure mu of the worst pair from the noise really drawn over all rows, block by block.

    A strategy sensitivity that is forgotten, or noise of another scale in a row, puts mu far
    outside. One standard error is 0.28 %, so that a right one fails once in 10^7.
    """
    parts = [Block("first", (2000,), 0.2), Block("pair", (1000, 2), 0.04, weight=3.0)]
    release = prefixes(parts, 2.5, 20, neighboring_relation=relation)
    outputs = run(release, [zeros(parts) for _ in range(20)], 21)
    # One stream holds a document in round 1; the other holds its opposite or nothing.
    factor = 1 if relation == "zero-out" else 2
    square = 0.0
    for block in parts:
        noise = rows_of(release, outputs, block.name)
        running = StrategyRows(release.strategy, ())
        stream = [factor * block.l2_clip_norm, *[0.0] * 19]
        moved = [running.step(np.array(value)) for value in stream]
        square += np.sum(np.square(moved)) / np.mean(noise**2)
    assert math.sqrt(square) == pytest.approx(1 / 2.5, rel=0.015)


@pytest.mark.statistical
def test_noise_of_a_prefix_sum_has_the_stated_scale_and_no_other():
    """Each of the six checks of the right scale gives a false alarm once in 10^5."""
    parts = [Block("first", (5000,), 0.2, weight=0.1), Block("pair", (2500, 2), 0.04)]
    release = prefixes(parts, 3.0, 40)
    rng = np.random.default_rng(3)
    stream = [{block.name: rng.random(block.shape) / 1000 for block in parts} for _ in range(40)]
    outputs = run(release, stream, 22)
    for t in (1, 20, 40):
        for block in parts:
            exact = np.sum([sums[block.name] for sums in stream[:t]], axis=0)
            noise = outputs[t - 1][block.name] - exact
            sigma = release.stddevs(t)[block.name]
            assert has_scale(noise, sigma)
            assert stats.kstest(noise.reshape(-1) / sigma, "norm").pvalue > ALARM


@pytest.mark.parametrize("horizon", [1, 2, 12])
def test_equals_the_dense_matrices_and_the_same_noise(horizon):
    release = prefixes(horizon=horizon)
    rng = np.random.default_rng(4)
    stream = [{name: rng.random(part.shape) for name, part in zeros(BLOCKS).items()}] * horizon
    outputs = run(release, stream, 23)
    again = SeededNoise(23)
    drawn = {block.name: [] for block in BLOCKS}
    for _ in range(horizon):
        for block in BLOCKS:
            step, sigma = release.mechanism.steps[block.name], release.mechanism.stddevs[block.name]
            drawn[block.name].append(again.discrete_gaussian(sigma / step, block.shape) * step)
    coefficients = column_of(horizon, horizon)
    c = sum(np.diag(np.full(horizon - i, c_i), -i) for i, c_i in enumerate(coefficients))
    b = np.linalg.solve(c.T, np.tri(horizon).T).T
    for name in drawn:
        x = np.array([sums[name] for sums in stream])
        wanted = np.tensordot(np.tri(horizon), x, 1) + np.tensordot(b, np.array(drawn[name]), 1)
        np.testing.assert_allclose([out[name] for out in outputs], wanted, rtol=1e-9, atol=1e-9)


def test_what_is_private_is_made_of_noisy_rows_alone():
    release = prefixes(horizon=12)
    stream = [document(cell=cell) for cell in range(5)]
    released = run(release, stream, 25)
    state = release.state()
    for block in BLOCKS:
        name = block.name
        again = PrefixSums(release.strategy, block.shape)
        raw = StrategyRows(release.strategy, block.shape)
        for row, sums in zip(rows_of(release, released, name), stream, strict=True):
            again.step(row)
            raw.step(sums[name])
        private = {**again.arrays, "stddev": release.mechanism.stddevs[name]}
        for key, array in private.items():
            np.testing.assert_allclose(state.private[f"{name}/{key}"], array, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(state.private[f"{name}/total"], released[-1][name])
        for key, array in raw.arrays.items():
            np.testing.assert_array_equal(state.secret[f"{name}/{key}"], array)
    assert state.private["rounds"] == 5
    assert len(state.private) == len(BLOCKS) * len(private) + 1
    assert len(state.secret) == len(BLOCKS) * 2


def restore(state, parts=BLOCKS, z=1.0, **options):
    release = prefixes(parts, z, **options)
    release.restore(state)
    return release


@pytest.mark.parametrize("horizon", [12, None])
@pytest.mark.parametrize("rounds", [0, 7, 12])
def test_resume_goes_on_to_the_last_bit(rounds, horizon):
    stream = [document(cell=cell) for cell in range(12)]
    wanted = run(prefixes(horizon=horizon), stream, 26)
    part, noise = prefixes(horizon=horizon), SeededNoise(26)
    for sums in stream[:rounds]:
        part.step(sums, noise)
    saved = part.state()
    if rounds < 12:
        part.step(stream[0], SeededNoise(0))
    resumed = restore(saved, horizon=horizon)
    for array in [*saved.secret.values(), *saved.private.values()]:
        array.fill(0)
    assert resumed.rounds == rounds
    for sums, out in zip(stream[rounds:], wanted[rounds:], strict=True):
        released = resumed.step(sums, noise)
        for name in out:
            np.testing.assert_array_equal(released[name], out[name])
    if horizon:
        with pytest.raises(InvalidSettingError, match="horizon=12 rounds=13; start a new"):
            resumed.step(stream[0], noise)
    else:
        resumed.step(stream[0], noise)


@pytest.mark.parametrize(
    ("settings", "private", "secret"),
    [
        *(({"z": 1.001}, {}, {}), ({"neighboring_relation": "replace-one"}, {}, {})),
        *(({"parts": BLOCKS[:1]}, {}, {}), ({"horizon": 13}, {}, {}), ({"horizon": None}, {}, {})),
        ({"parts": [*BLOCKS, Block("more", (2,), 1.0)]}, {}, {}),
        ({"parts": [BLOCKS[0], Block("pair", (2, 4), 0.04, weight=2.0)]}, {}, {}),
        ({}, {"rounds": np.array(13)}, {}),
        ({}, {"pair/more": np.zeros(2)}, {}),
        ({}, {"pair/total": np.zeros(3)}, {}),
        ({}, {"pair/total": np.full((4, 2), math.inf)}, {}),
        ({}, {"pair/stddev": np.array(math.nan)}, {}),
        ({}, {}, {"pair/rest": np.zeros((1, 4, 2))}),
    ],
)
def test_other_settings_and_states_that_do_not_fit_are_refused(settings, private, secret):
    release = prefixes()
    run(release, [document()] * 3, 27)
    state = release.state()
    state.private.update(private)
    state.secret.update(secret)
    with pytest.raises(InvalidSettingError, match=r"a saved state must|rounds must lie in"):
        restore(state, **settings)


def test_a_wrong_round_is_refused_and_changes_nothing():
    release, other = prefixes(), prefixes()
    noise, again = SeededNoise(29), SeededNoise(29)
    release.step(document(), noise)
    for wrong, error in (
        (np.zeros((2, 4)), InvalidSettingError),
        (np.full((4, 2), math.nan), InvalidDocumentsError),
        (np.full((4, 2), 1e9), InvalidDocumentsError),
    ):
        with pytest.raises(error):
            release.step({**document(), "pair": wrong}, noise)
    other.step(document(), again)
    one, same = release.step(document(), noise), other.step(document(), again)
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert release.rounds == 2


def test_nothing_goes_on_after_a_step_that_broke_off():
    release, noise = prefixes(n_max=3), SeededNoise(30)
    # A row may hold `gain` rounds, and these two are as large as that.
    largest = {name: 3 * release.strategy.gain * part for name, part in document().items()}
    release.step(largest, noise)
    with pytest.raises(InvalidDocumentsError, match="a sum must be finite"):
        release.step(largest, noise)
    assert release.rounds == 1
    for call in (lambda: release.step(zeros(BLOCKS), noise), release.state):
        with pytest.raises(InvalidSettingError, match="a step must be finished"):
            call()


def test_settings_that_cannot_be_are_refused():
    for horizon, n_max, message in ((0, 10, "horizon must be"), (10, 10**7, "sum fewer documents")):
        with pytest.raises(InvalidSettingError, match=message):
            prefixes(z=1e-3, horizon=horizon, n_max=n_max)
    for t in (0, 13, 1.5):
        with pytest.raises(InvalidSettingError, match="t must"):
            prefixes().stddevs(t)


def test_a_single_number_without_buffers():
    part = [Block("documents", (), 1.0, nonnegative=True)]
    release = PrefixRelease(part, 1e-3, strategy=BufferedToeplitz((), (), 4), n_max=100)
    outputs = run(release, [{"documents": np.array(7.0)}] * 4, 31)
    assert [out["documents"].shape for out in outputs] == [()] * 4
    np.testing.assert_allclose([out["documents"] for out in outputs], [7, 14, 21, 28], atol=0.02)
