"""The discrete Gaussian sampler: its exact law, its random bits, and that they are never shared."""

import copy
import itertools
import math
import pickle
import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from randomgen import ChaCha
from scipy import stats

from streamlda.errors import InvalidSettingError
from streamlda.guarantee.noise import (
    MARGIN,
    MAX_SIGMA,
    MIN_SIGMA,
    REJECTED,
    TV_DISTANCE_BOUND,
    Noise,
    SecureNoise,
    SeededNoise,
    _samples,
    propose,
)
from tests.privacy.chance import ALARM, has_scale

SIGMAS = [0.25, 0.5, 1.0, 1.7, 10.3, 2.0**20 + 0.3, 2.0**33 / 3, 2.0**40]


def none():
    """No word was ever as near to its threshold as to need another."""
    raise AssertionError


def proposal(blocks, offset, block, *, negative=False):
    """Return the first word of an attempt that proposes ``blocks * block + offset``."""
    word = (1 << (51 + blocks)) | (offset * (2**51 // block))
    return word - 2**63 if negative else word


def exact_threshold(blocks, offset, sigma):
    with localcontext() as context:
        context.prec = 80
        y = Decimal(blocks * math.ceil(sigma) + offset)
        exponent = Decimal("0.5") - (y / Decimal(sigma)) ** 2 / 2
        return exponent.exp() * Decimal(2) ** (blocks + 62)


def test_the_bits_are_those_of_chacha20_under_256_bits_of_the_operating_system(monkeypatch):
    # The published key stream for a key and a nonce of zeros.
    expected = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    words = ChaCha(key=0, rounds=20).random_raw(4)
    assert words.astype("<u8").tobytes().hex() == expected
    sizes = []
    monkeypatch.setattr(secrets, "randbits", lambda n: sizes.append(n) or 12345)
    words = SecureNoise()._words(100)
    assert sizes == [256]
    expected = ChaCha(key=12345, rounds=20).random_raw(100).view(np.int64)
    np.testing.assert_array_equal(words, expected)


@pytest.mark.kernels
@pytest.mark.parametrize("sigma", SIGMAS)
def test_doubles_decide_as_60_digits_do_in_any_decimal_context(sigma):
    words = np.random.default_rng(0).integers(-(2**63), 2**63, size=2000, dtype=np.int64)
    block = math.ceil(sigma)
    fast = _samples(words, sigma, block, MARGIN, none)
    with localcontext() as context:
        context.prec = 2
        np.testing.assert_array_equal(fast, _samples(words, sigma, block, 2.0**63, none))
    assert len(fast) > 100


@pytest.mark.parametrize("sigma", SIGMAS)
def test_doubles_know_the_threshold_within_half_the_margin(sigma):
    block = math.ceil(sigma)
    rng = np.random.default_rng(1)
    offsets = {0, block - 1, *rng.integers(block, size=40).tolist()}
    checked = 0
    for blocks, offset in itertools.product(range(12), offsets):
        threshold = int(exact_threshold(blocks, offset, sigma))
        for second in (threshold - 2**20, threshold + 2**20):
            if 0 <= second < 2**63:
                words = np.array([proposal(blocks, offset, block), second])
                (value,) = propose(words, sigma, block, 2.0**19)
                y = blocks * block + offset
                assert value == (y if second < threshold else REJECTED)
                checked += 1
    assert checked > 10


def bisect(accepts):
    low, high = 0, 2**63
    while low < high:
        middle = (low + high) // 2
        if accepts(middle):
            low = middle + 1
        else:
            high = middle
    return low


def accepted_words(blocks, offset, sigma):
    """Return how many of 2^126 pairs of a second and a further word accept a proposal."""

    def accepts(second, further):
        block = math.ceil(sigma)
        words = np.array([proposal(blocks, offset, block), second])
        return len(_samples(words, sigma, block, MARGIN, lambda: further)) > 0

    whole = bisect(lambda second: accepts(second, 2**63 - 1))
    further = bisect(lambda further: accepts(whole, further)) if whole < 2**63 else 0
    return whole * 2**63 + further


@pytest.mark.parametrize("sigma", [0.3, 1.0, 1.7, 2.9])
def test_the_law_is_within_the_stated_distance_of_the_discrete_gaussian(sigma):
    block = math.ceil(sigma)
    mass = {}
    for blocks, offset in itertools.product(range(12), range(block)):
        y = blocks * block + offset
        # Each offset has equally many words, so only the block and the last decision count.
        mass[y] = mass[-y] = Fraction(accepted_words(blocks, offset, sigma), 2 ** (126 + blocks))
    total = sum(mass.values())
    with localcontext() as context:
        context.prec = 60
        target = {y: (-((Decimal(y) / Decimal(sigma)) ** 2) / 2).exp() for y in range(-100, 101)}
        whole = sum(target.values())
        found = {y: mass.get(y, Fraction()) / total for y in target}
        distance = sum(
            abs(Decimal(found[y].numerator) / Decimal(found[y].denominator) - target[y] / whole)
            for y in target
        )
    assert distance / 2 <= 2.0**-100 < TV_DISTANCE_BOUND == Noise.tv_distance_bound == 2.0**-60


def test_proposals_are_shared_out_evenly():
    # Every value of the 12 bits of the block: half of them say 0, a quarter 1, ...
    block = 5
    words = np.zeros((4096, 2), np.int64)
    words[:, 0] = np.arange(4096) << 51
    # No second word, nor a further one, is as small as 0: whatever can be accepted is.
    values = _samples(words.reshape(-1), 5.0, block, MARGIN, int)
    counts = dict(zip(*np.unique(values, return_counts=True), strict=True))
    assert counts == {5 * k: 2 ** (11 - k) for k in range(12)}
    span = 2**51 // block
    edges = [(offset * span, offset) for offset in range(block)]
    edges += [(offset * span + span - 1, offset) for offset in range(block)]
    for at, offset in edges:
        word = np.array([(1 << 51) | at, 0])
        assert _samples(word, 5.0, block, MARGIN, int).tolist() == [offset]
    left_over = np.array([(1 << 51) | (block * span), 0])
    assert len(_samples(left_over, 5.0, block, MARGIN, int)) == 0
    # Zero is not proposed twice.
    for blocks, negative, wanted in ((0, True, []), (0, False, [0]), (1, True, [-1])):
        word = np.array([proposal(blocks, 0, 1, negative=negative), 0])
        assert _samples(word, 1.0, 1, MARGIN, int).tolist() == wanted


@pytest.mark.statistical
@pytest.mark.parametrize("sigma", [2.0**20 + 0.3, 2.0**33 / 3, 2.0**40])
def test_large_sigma_is_normal_down_to_the_last_bits(sigma):
    values = SeededNoise(5).discrete_gaussian(sigma, 100_000)
    assert has_scale(values.astype(float), sigma)
    assert stats.kstest(values / sigma, "norm").pvalue > ALARM
    assert stats.chisquare(np.bincount(values % 64, minlength=64)).pvalue > ALARM


def test_shapes_reach_and_range():
    noise = SeededNoise(7)
    for shape in ((), (5,), (0, 3)):
        assert noise.discrete_gaussian(2.0, shape).shape == shape
    values = noise.discrete_gaussian(2.5, (70, 1001))
    assert (values.shape, values.dtype) == ((70, 1001), np.int64)
    assert 3 * 2.5 < np.abs(values).max() < 12 * 3.5
    for sigma in (0.0, math.nan, math.inf, MIN_SIGMA / 2, MAX_SIGMA * 1.01):
        with pytest.raises(InvalidSettingError, match="sigma must lie in"):
            noise.discrete_gaussian(sigma, 3)
    with pytest.raises(InvalidSettingError, match="seed must be a whole number"):
        SeededNoise(-1)


def test_a_seed_repeats_and_says_that_it_is_not_private():
    first, again, other = SeededNoise(8), SeededNoise(8), SeededNoise(9)
    drawn = first.discrete_gaussian(1e9, 1000)
    np.testing.assert_array_equal(drawn, again.discrete_gaussian(1e9, 1000))
    assert not np.intersect1d(drawn, other.discrete_gaussian(1e9, 1000)).size > 1
    assert not np.array_equal(drawn, first.discrete_gaussian(1e9, 1000))
    assert (SeededNoise.secure, Noise.secure, SecureNoise.secure) == (False, False, True)


@pytest.mark.parametrize("make", [SecureNoise, lambda: SeededNoise(1)], ids=["secure", "seeded"])
def test_noise_cannot_be_copied_stored_or_looked_into(make):
    noise = make()
    for copying in (copy.copy, copy.deepcopy, lambda n: copy.deepcopy({"noise": [n]})):
        with pytest.raises(TypeError, match="noise cannot be copied"):
            copying(noise)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="noise cannot be copied or pickled"):
            pickle.dumps(noise, protocol)
    assert not hasattr(noise, "__dict__")
    assert not hasattr(noise, "state")
    assert not any(char.isdigit() for char in repr(noise) + str(noise))
    public = {name for name in dir(noise) if not name.startswith("_")}
    assert public == {"discrete_gaussian", "secure", "tv_distance_bound"}


def test_threads_share_one_object_without_drawing_a_word_twice():
    noise = SeededNoise(10)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: noise._words(1000), range(400)))
    serial = SeededNoise(10)._words(400_000)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(serial))


def test_a_copy_of_the_machine_draws_other_noise():
    noise = SecureNoise()
    halted = copy.deepcopy(noise._Noise__bits.state)
    first = noise.discrete_gaussian(1000.0, 20)
    noise._Noise__bits.state = halted
    assert not np.array_equal(noise.discrete_gaussian(1000.0, 20), first)


FORK = """
import os
from streamlda.guarantee import noise as module

noise = module.SecureNoise()
noise.discrete_gaussian(2.0**40, 5)

def draw():
    return " ".join(map(str, noise.discrete_gaussian(2.0**40, 20).tolist()))

def in_child(depth):
    reader, writer = os.pipe()
    if os.fork() == 0:
        below = [in_child(depth - 1)] if depth else []
        os.write(writer, " ".join([draw(), *below]).encode())
        os._exit(0)
    os.close(writer)
    text = os.fdopen(reader).read()
    os.wait()
    return text

print(in_child(0), in_child(1), draw(), in_child(0))
"""


def test_forks_and_other_processes_never_draw_the_same():
    command = [sys.executable, "-W", "error", "-c", FORK]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    values = output.split()
    assert len(values) == 100
    here = SecureNoise().discrete_gaussian(2.0**40, 20).tolist()
    assert len({*values, *map(str, here)}) == 120
