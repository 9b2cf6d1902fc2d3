"""Words chosen privately: norms of neighbours, the threshold, the noise, and what is found."""

import json
import math
import os
import subprocess
import sys
from fractions import Fraction
from hashlib import blake2b

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from streamlda.errors import InvalidSettingError
from streamlda.guarantee import accounting, selection
from streamlda.guarantee.mechanism import NEIGHBORING_RELATIONS
from streamlda.guarantee.noise import Noise, SeededNoise
from streamlda.guarantee.selection import WordSelection
from streamlda.privacy import costs
from streamlda.privacy.events import GaussianRelease, event_of_selection
from streamlda.privacy.ledger import LedgerTerms
from streamlda.private.budget import calibrate_selection
from streamlda.stream.vocabulary_choice import describe_selection
from tests.privacy.chance import ALARM, fits_scale, has_scale

#: Documents that try to add more than their share, or to confuse one word with another.
ODD = {
    "empty": [],
    "no words": ["", ""],
    "one word": ["cat"],
    "repeats": ["cat", "dog"] * 5000,
    "many words": [f"w{i}" for i in range(2000)],
    "unicode": ["naïve", "nai\u0308ve", "中文", "\0", "a\0b", "a", "b", "😀", "Cat", "cat"],
    "surrogates": ["\ud83d\ude00", "😀", "\ud800", "\udfff", "cat\ud800"],
    "overlap": ["dog", "cat", "bird", "fish", "naïve", "w1", "w2"],
}


def make(z=4.0, delta=1e-6, d0=5, relation="zero-out"):
    return WordSelection(z, delta, max_words_per_document=d0, neighboring_relation=relation)


def one(made):
    steps = 1 / made.step
    assert steps == int(steps)
    return int(steps)


def hint_of(word, made, seed=0):
    """Return a hint that is as good as random: of words in no document to those of very many."""
    digest = blake2b(f"{seed} {word!r}".encode(), digest_size=4).digest()
    ratio = math.exp(int.from_bytes(digest, "big") / 2**32 * 12) - 5
    return int(ratio * made.stddevs[0] / made.step)


def rounds(documents, seed=0, **options):
    """Return the sums of both rounds by word; the second is given hints that are as random."""
    made = make(**options)
    for document in documents:
        made.add(document)
    hints = np.array([hint_of(word, made, seed) for word in made._numbers], dtype=np.int64)
    found = made.weights().tolist(), made.votes(hints).tolist()
    return [dict(zip(made._numbers, sums, strict=True)) for sums in found]


def votes(documents, **options):
    return rounds(documents, **options)[0]


def check_neighbours(common, first, second, relation, d0):
    made = make(d0=d0, relation=relation)
    unit = one(made) ** 2
    bound = unit if relation == "zero-out" else 2 * unit
    assert bound <= Fraction(made.l2_sensitivity) ** 2 * unit
    of_first, of_second = (rounds([*common, which], d0=d0) for which in (first, second))
    for number, (here, there) in enumerate(zip(of_first, of_second, strict=True)):
        both = here.keys() & there.keys()
        assert sum((here[word] - there[word]) ** 2 for word in both) <= bound
        for mine, other, document in ((here, there, first), (there, here, second)):
            new = mine.keys() - other.keys()
            kept = min(len(set(document) - {""}), d0)
            assert len(new) <= kept
            most = one(made) * selection.LARGEST_VOTE if number else made._weight(max(1, kept))
            assert all(mine[word] <= most for word in new)


@pytest.mark.parametrize("d0", [1, 5, 1000])
@pytest.mark.parametrize("name", ODD)
def test_odd_documents_add_a_vector_of_norm_one_at_most(name, d0):
    words = set(ODD[name]) - {""}
    unit = one(make()) ** 2
    for found, whole in zip(rounds([ODD[name]], d0=d0), (True, False), strict=True):
        assert found.keys() <= words
        assert len(found) == min(len(words), d0)
        norm_squared = sum(weight**2 for weight in found.values())
        # Rounding to the grid takes next to nothing away; in the second round, half a vote is most.
        least = unit * bool(words) * (1 if whole else 1 / 4)
        assert (1 - 1e-6) * least <= norm_squared <= unit


word = st.sampled_from(["a", "b", "c", "d", "e", "f", "\ud800", "é", ""]) | st.text(max_size=3)
document = st.lists(word, max_size=12) | st.sampled_from([d for d in ODD.values() if len(d) < 99])


@settings(max_examples=60)
@given(common=st.lists(document, max_size=5), first=document, second=document, d0=st.integers(1, 8))
def test_neighbours_differ_by_the_sensitivity_at_most(common, first, second, d0):
    check_neighbours(common, first, [], "zero-out", d0)
    check_neighbours(common, first, second, "replace-one", d0)
    # Sums are those of documents on their own: each round, given the hints.
    expected = {}, {}
    for tokens in common:
        for sums, found in zip(expected, rounds([tokens], d0=d0), strict=True):
            for key, weight in found.items():
                sums[key] = sums.get(key, 0) + weight
    assert rounds(common, d0=d0) == [*expected]


@pytest.mark.parametrize("d0", [4, 100])
def test_the_sensitivity_is_attained(d0):
    """In both rounds, by documents of four words that are as frequent."""
    here, there = list("abcd"), list("efgh")
    common = [here, there] * 2

    def sums(documents):
        made = make(d0=d0)
        for document in documents:
            made.add(document)
        numbers = [made._numbers[word] for word in here + there]
        hints = np.full(len(numbers), int(1e6 * made.stddevs[0] / made.step))
        return np.array([made.weights()[numbers], made.votes(hints)[numbers]], dtype=float)

    without, with_here, with_there = sums(common), sums([*common, here]), sums([*common, there])
    unit = float(one(make())) ** 2
    for distance, expected in ((with_here - without, 1), (with_here - with_there, 2)):
        assert np.square(distance).sum(axis=1) / unit == pytest.approx([expected] * 2, rel=1e-8)
    assert make(d0=d0).l2_sensitivity == 1
    assert make(d0=d0, relation="replace-one").l2_sensitivity == pytest.approx(math.sqrt(2))


def test_votes_go_where_they_are_needed():
    """Words of a tenth of the documents come as high as words of all, lone words get nothing."""
    made = make(z=1.0, d0=100)
    for number in range(4000):
        some = [f"some{number % 10} {i}" for i in range(5)]
        made.add([*(f"all{i}" for i in range(5)), *some, *(f"{number} {i}" for i in range(9))])
    weights, votes = made.weights(), made.votes(made.weights())
    common, some, lone = (made._numbers[word] for word in ("all1", "some1 1", "1 1"))
    assert weights[common] == 10 * weights[some] == 4000 * made._weight(19)
    assert votes[common] == pytest.approx(votes[some], rel=1e-3)
    assert votes[some] > 1.9 * weights[some]
    assert votes[lone] < 1e-4 * one(made) < 0.01 * weights[lone]


def test_the_choice_depends_on_the_set_of_words_alone_in_every_process():
    words = [f"w{i}" for i in range(40)]
    expected = votes([words], d0=7)
    assert len(expected) == 7
    assert votes([[*reversed(words), *words[:3] * 50]], d0=7) == expected
    assert votes([[*words, "more"]], d0=7).keys() != expected.keys()
    code = (
        "from streamlda.guarantee.selection import WordSelection\n"
        "made = WordSelection(1, 1e-6, max_words_per_document=7)\n"
        "made.add(f'w{i}' for i in range(40))\n"
        "print(sorted(made._numbers))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(sorted(expected))


@pytest.mark.statistical
@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
def test_noise_has_the_stated_scale_and_law(relation):
    made = make(0.5, 1e-6, 4, relation)
    for number in range(3000):
        for _ in range(30):
            made.add([f"{number}"])
    released = made.release(SeededNoise(11))
    assert len(released) == 3000
    # One word gets half of a vote in the second round.
    sums = np.array([[found.weight - 30, found.votes - 15] for found in released])
    for found in (sums / made.stddevs).T:
        assert has_scale(found)
        assert not any(fits_scale(found, wrong) for wrong in (math.sqrt(2), math.sqrt(1 / 2)))
        assert stats.kstest(found, "norm").pvalue > ALARM
        assert stats.kstest(found + 0.2, "norm").pvalue < ALARM
    # The noise of one round is not that of the other: power 1 - 1e-9 against a correlation of 0.3.
    assert abs(stats.pearsonr(*sums.T).statistic) < stats.norm.isf(ALARM / 2) / math.sqrt(3000)


def test_release_does_not_depend_on_order_and_is_sorted():
    rng = np.random.default_rng(3)
    documents = [[f"w{i}" for i in rng.geometric(0.05, size=40)] for _ in range(400)]
    first, second = make(0.3, 0.01, 8), make(0.3, 0.01, 8)
    for tokens in documents:
        first.add(tokens)
    for number in rng.permutation(len(documents)):
        second.add(iter(rng.permutation(documents[number]).tolist()))
    released = first.release(SeededNoise(5))
    assert len(released) > 20
    assert released == second.release(SeededNoise(5))
    assert released == sorted(released, key=lambda item: (-item.weight, item.word))
    assert min(found.votes + found.weight / 4 for found in released) > first.threshold

    class Silent(SeededNoise):
        def discrete_gaussian(self, sigma, shape=()):
            return np.zeros(shape, dtype=np.int64)

    equal = make(0.5, 0.01, 4)
    for _ in range(100):
        equal.add(["b", "c", "a"])
    assert [found.word for found in equal.release(Silent(0))] == ["a", "b", "c"]


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@settings(max_examples=8)
@given(epsilon=st.floats(0.05, 20), log_delta=st.floats(-30, -1), d0=st.sampled_from([1, 30, 1000]))
def test_calibrated_parts_stay_within_the_total(relation, epsilon, log_delta, d0):
    delta = 10**log_delta
    made = calibrate_selection(
        epsilon, delta, max_words_per_document=d0, neighboring_relation=relation
    )
    gaussian = accounting.delta_of(1 / made.noise_multiplier, epsilon)
    assert Fraction(gaussian) + Fraction(made.delta) <= Fraction(delta)
    assert gaussian + made.delta > 0.999 * delta
    # What a ledger is left with is exactly the rest, and the Gaussian part fits into it.
    left = delta - made.delta
    assert Fraction(left) + Fraction(made.delta) == Fraction(delta)
    assert costs.epsilon_spent(event_of_selection(made).event, left) <= epsilon
    more = delta * (1 + 1e-9) + 2 * made.tv_distance_bound * math.exp(epsilon) * 1.0001
    terms = LedgerTerms(epsilon, min(more + 2 * made.tv_distance_bound, 0.999))
    assert terms.covers(terms.price(costs.cost(event_of_selection(made))))
    terms = LedgerTerms(epsilon, 0.999 * delta)
    assert not terms.covers(terms.price(costs.cost(event_of_selection(made))))


def test_a_selection_is_released_once_and_tells_no_words():
    made = make()
    made.add([])
    made.add(["secret"])
    assert "secret" not in repr(made) + json.dumps(describe_selection(made))
    assert made.release(SeededNoise(0)) == []
    assert made._numbers == {}
    assert len(made._kept) == 0
    for again in (lambda: made.release(SeededNoise(0)), lambda: made.add(["cat"])):
        with pytest.raises(InvalidSettingError, match="released before"):
            again()


def test_settings_out_of_range_are_refused():
    for wrong in ({"z": 0.0}, {"delta": 0.51}, {"d0": 0}, {"d0": 2**20 + 1}, {"relation": "swap"}):
        with pytest.raises(InvalidSettingError, match=f"={next(iter(wrong.values()))!r}"):
            make(**wrong)
    for epsilon, delta in ((1.0, 0.6), (-1.0, 1e-6)):
        with pytest.raises(InvalidSettingError, match=r"delta=0\.6|epsilon=-1\.0"):
            calibrate_selection(epsilon, delta)


@pytest.mark.parametrize(
    ("relation", "d0", "z", "delta"),
    [
        *(("zero-out", 1, 4.37, 1e-6), ("zero-out", 100, 1e-3, 1e-12)),
        *(("zero-out", 100, 1e3, 0.5), ("zero-out", 5, 0.2, 0.05)),
        *(("replace-one", 1, 1e-3, 0.5), ("replace-one", 100, 4.37, 1e-6)),
        *(("replace-one", 100, 1e3, 1e-12), ("replace-one", 5, 0.2, 0.05)),
    ],
)
def test_threshold_is_the_smallest_that_delta_allows(relation, d0, z, delta):
    made = make(z, delta, d0, relation)
    stddev = mpmath.mpf(z) * (mpmath.sqrt(2) if relation == "replace-one" else 1)
    first = stddev / mpmath.sqrt(mpmath.mpf(selection.FIRST_SHARE))
    second = stddev / mpmath.sqrt(1 - mpmath.mpf(selection.FIRST_SHARE))
    tau = mpmath.sqrt(second**2 + first**2 / 16)

    def kept(steps):
        """Return the probability that a word of a lone document is kept, at the worst."""
        return 1 - mpmath.ncdf((steps * made.step / 4 - mpmath.mpf("0.75")) / tau) ** d0

    with mpmath.workdps(40):
        # What rounding may add to a score, in steps of it: five halves.
        assert kept(made._threshold_steps - mpmath.mpf("2.5")) <= delta
        slack = 7 + made._threshold_steps * 2.0**-40
        assert kept(made._threshold_steps - slack) > delta


def test_noise_and_threshold_of_either_relation():
    added, replaced = (make(4.0, 5e-7, 100, relation) for relation in NEIGHBORING_RELATIONS)
    for made, sensitivity in ((added, 1), (replaced, math.sqrt(2))):
        # Each round is a Gaussian mechanism: their costs add up to that of one with the multiplier.
        mu_squared = sum((sensitivity / Fraction(stddev)) ** 2 for stddev in made.stddevs)
        assert float(mu_squared) == pytest.approx(1 / 16, rel=1e-12)
        assert mu_squared * Fraction(4) ** 2 <= 1
        assert (sensitivity / made.stddevs[0]) ** 2 * 16 == pytest.approx(selection.FIRST_SHARE)
        assert event_of_selection(made).event == GaussianRelease(4.0)
    assert 2**32 <= added.stddevs[1] / added.step < 2**33
    assert math.frexp(added.step)[0] == 0.5
    # Two draws a word, and as much again for what rounds a Gaussian.
    assert added.tv_distance_bound == 400 * Noise.tv_distance_bound
    assert replaced.tv_distance_bound == 800 * Noise.tv_distance_bound


@pytest.mark.statistical
@pytest.mark.parametrize(("d0", "z"), [(1, 2.0), (1, 0.1), (5, 0.1), (50, 2.0)])
def test_a_lone_document_is_found_with_probability_delta_at_most(d0, z):
    """4,000 that share no word; those of one word attain it where a document has one vote."""
    n, delta = 4000, 0.05
    for kept in {1, min(2, d0), d0}:
        made = make(z, delta, d0)
        for number in range(n):
            made.add(f"{number} {i}" for i in range(kept))
        found = len({each.word.split()[0] for each in made.release(SeededNoise(kept))})
        # Either end has a false-alarm rate of ALARM / 2.
        low, high = stats.binom.interval(1 - ALARM, n, delta)
        assert found <= high
        assert d0 > 1 or low <= found
