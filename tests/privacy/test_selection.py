"""Words chosen privately: norms of neighbours, the threshold, the noise, and what is found."""

import json
import math
import os
import subprocess
import sys
import tracemalloc
from fractions import Fraction
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.privacy import accounting, selection
from streamlda.privacy.events import NEIGHBORING_RELATIONS, GaussianRelease
from streamlda.privacy.noise import SeededNoise
from streamlda.privacy.selection import calibrate_selection
from streamlda.text.vocabulary import Vocabulary
from tests.privacy.chance import ALARM
from tests.privacy.selection_cases import make, one

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


def votes(documents, **options):
    made = make(**options)
    for document in documents:
        made.add(document)
    return made._votes


def squared_distance(here, there):
    """Return the squared norm of the difference on the words that both have, in steps."""
    return sum((here[word] - there[word]) ** 2 for word in here.keys() & there.keys())


def check_neighbours(common, first, second, relation, d0):
    """Check all that the privacy argument says of a pair of neighbours."""
    made = make(d0=d0, relation=relation)
    unit = one(made) ** 2
    here, there = votes([*common, first], d0=d0), votes([*common, second], d0=d0)
    bound = unit if relation == "add-remove" else 2 * unit
    assert squared_distance(here, there) <= bound
    assert bound <= Fraction(made.l2_sensitivity) ** 2 * unit
    for mine, other, document in ((here, there, first), (there, here, second)):
        new = mine.keys() - other.keys()
        kept = min(len(set(document) - {""}), d0)
        assert len(new) <= kept
        assert {mine[word] for word in new} <= ({made._weight(kept)} if kept else set())


# Contributions.


@pytest.mark.parametrize("d0", [1, 5, 1000])
@pytest.mark.parametrize("name", ODD)
def test_one_document_adds_a_vector_of_norm_one_at_most(name, d0):
    found = votes([ODD[name]], d0=d0)
    words = set(ODD[name]) - {""}
    assert found.keys() <= words
    assert len(found) == min(len(words), d0)
    unit = one(make()) ** 2
    norm_squared = sum(weight**2 for weight in found.values())
    assert norm_squared <= unit
    # Rounding to the grid takes next to nothing away.
    assert norm_squared >= (1 - 1e-6) * unit * bool(words)


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@pytest.mark.parametrize("d0", [1, 4])
@pytest.mark.parametrize("name", ODD)
def test_neighbours_differ_by_the_sensitivity_at_most_when_adversarial(name, d0, relation):
    common = [ODD["overlap"], ODD["unicode"], ODD["surrogates"], ODD["one word"]]
    for other in ([], ODD["overlap"], ["cat"]) if relation == "replace-one" else ([],):
        check_neighbours(common, ODD[name], other, relation, d0)


word = st.sampled_from(["a", "b", "c", "d", "e", "f", "\ud800", "é", ""]) | st.text(max_size=3)
document = st.lists(word, max_size=12)


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@given(common=st.lists(document, max_size=5), first=document, second=document, d0=st.integers(1, 8))
def test_neighbours_differ_by_the_sensitivity_at_most(relation, common, first, second, d0):
    check_neighbours(common, first, second if relation == "replace-one" else [], relation, d0)


@pytest.mark.parametrize("d0", [1, 100])
def test_the_sensitivity_is_attained(d0):
    common = [["cat"], ["dog"]]
    unit = one(make()) ** 2
    with_cat, with_dog = votes([*common, ["cat"]], d0=d0), votes([*common, ["dog"]], d0=d0)
    assert squared_distance(with_cat, votes(common, d0=d0)) == unit
    assert squared_distance(with_cat, with_dog) == 2 * unit
    assert make(d0=d0).l2_sensitivity == 1
    assert make(d0=d0, relation="replace-one").l2_sensitivity == pytest.approx(math.sqrt(2))


@given(documents=st.lists(document, max_size=6), d0=st.integers(1, 8))
def test_sums_are_those_of_documents_on_their_own(documents, d0):
    alone = [votes([tokens], d0=d0) for tokens in documents]
    expected = {}
    for contribution in alone:
        for key, weight in contribution.items():
            expected[key] = expected.get(key, 0) + weight
    assert votes(documents, d0=d0) == expected


def test_the_choice_depends_on_the_set_of_words_alone():
    words = [f"w{i}" for i in range(40)]
    expected = votes([words], d0=7)
    assert len(expected) == 7
    assert votes([[*reversed(words), *words[:3] * 50]], d0=7) == expected
    assert votes([[*words, "more"]], d0=7).keys() != expected.keys()


def test_the_choice_is_the_same_in_every_process():
    code = (
        "from streamlda.privacy.selection import WordSelection\n"
        "made = WordSelection(1, 1e-6, max_words_per_document=5)\n"
        "made.add(f'w{i}' for i in range(50))\n"
        "print(sorted(made._votes))"
    )
    expected = sorted(votes([[f"w{i}" for i in range(50)]]))
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(expected)


def counts_of_common_words(choose):
    """Return how often each of 20 words is among the 10 kept of 40, the others always new."""
    common = [f"{'x' * (i % 7)}{i}" for i in range(20)]
    counts = dict.fromkeys(common, 0)
    for number in range(3000):
        for kept in choose({*common, *(f"{number}-{i}" for i in range(20))}, 10):
            if kept in counts:
                counts[kept] += 1
    return list(counts.values())


def is_fair(counts):
    """Tell whether each count is that of 3000 draws of 1 in 4; false alarms: ALARM."""
    low, high = stats.binom.interval(1 - ALARM / len(counts), 3000, 0.25)
    return low <= min(counts) <= max(counts) <= high


@pytest.mark.statistical
def test_the_choice_favours_no_word():
    assert is_fair(counts_of_common_words(selection._choose))

    def under_one_key(words, most):
        hashes = {word: blake2b(word.encode(), key=b"k").digest() for word in words}
        return sorted(words, key=hashes.__getitem__)[:most]

    assert not is_fair(counts_of_common_words(under_one_key))


def test_memory_grows_with_words_not_with_documents():
    def peak(rounds):
        made = make(d0=50)
        tracemalloc.start()
        for number in range(rounds):
            made.add(f"w{(number * 50 + i) % 2000}" for i in range(80))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    # Of seven times as many documents; threads that other tests left behind count as well.
    assert peak(350) < 1.5 * peak(50)


# Release.


def errors_in_deviations(relation, n=3000):
    """Return the noise of words that all are kept, over the stated standard deviation."""
    made = make(0.5, 1e-6, 4, relation)
    for number in range(n):
        for _ in range(30):
            made.add([f"{number}"])
    released = made.release(SeededNoise(11))
    assert len(released) == n
    return (np.array([weight for _, weight in released]) - 30) / made.stddev


@pytest.mark.statistical
@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
def test_noise_has_the_stated_scale_and_law(relation):
    found = errors_in_deviations(relation)
    low, high = stats.chi2.interval(1 - ALARM, len(found))
    assert low <= found @ found <= high
    for wrong in (2 / 3, 1 / math.sqrt(2), math.sqrt(2), 3 / 2):
        assert not low <= wrong**2 * (found @ found) <= high
    assert stats.kstest(found, "norm").pvalue > ALARM
    assert stats.kstest(found + 0.2, "norm").pvalue < ALARM


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
    assert released == sorted(released, key=lambda item: (-item[1], item[0]))
    assert min(weight for _, weight in released) > first.threshold


def test_equal_weights_are_ordered_by_word():
    made = make(0.5, 0.01, 4)
    for _ in range(100):
        made.add(["b", "c", "a"])

    class Silent(SeededNoise):
        def discrete_gaussian(self, sigma, shape=()):
            return np.zeros(shape, dtype=np.int64)

    assert [found for found, _ in made.release(Silent(0))] == ["a", "b", "c"]


def test_a_selection_is_released_once():
    made = make()
    made.add([])
    made.add(["cat"])
    assert made.release(SeededNoise(0)) == []
    assert made._votes == {}
    with pytest.raises(InvalidSettingError, match="released once"):
        made.release(SeededNoise(0))
    with pytest.raises(InvalidSettingError, match="released once"):
        made.add(["cat"])


# Calibration.


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
    assert accounting.Budget(epsilon, left).fits(made.event)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (1.0, 1e-2), (8, 1e-9)])
def test_calibration_finds_the_lowest_threshold(epsilon, delta):
    made = calibrate_selection(epsilon, delta)
    others = [
        make(accounting.noise_multiplier(epsilon, delta * (1 - share)), delta * share, 100)
        for share in np.linspace(0.01, 0.99, 50)
    ]
    assert made.threshold <= 1.002 * min(other.threshold for other in others)


def zipf_documents(n_documents, n_words, seed):
    """Return documents of about 80 tokens over words of probability 1 / rank^1.05."""
    rng = np.random.default_rng(seed)
    probabilities = 1 / np.arange(1, n_words + 1) ** 1.05
    sums = np.cumsum(probabilities / probabilities.sum())
    lengths = np.maximum(1, rng.lognormal(math.log(80) - 0.18, 0.6, n_documents)).astype(int)
    ranks = np.minimum(np.searchsorted(sums, rng.random(lengths.sum())), n_words - 1)
    return np.split(ranks, np.cumsum(lengths)[:-1])


@pytest.mark.statistical
def test_frequent_words_of_a_zipf_corpus_are_kept():
    # Whether words near the threshold are kept is chance: 617 to 647 of the top 1000 over twelve
    # other seeds (deviation 8). The last of the top 1000 is in some 124 documents, and documents
    # of 51 distinct words, as most of these, must be 180 to pass.
    names = np.array([f"w{i}" for i in range(50_000)])
    frequencies = np.zeros(len(names), dtype=int)
    made = calibrate_selection(1.0, 1e-6)
    for ranks in zipf_documents(20_000, len(names), seed=1):
        frequencies[np.unique(ranks)] += 1
        made.add(names[ranks].tolist())
    kept = [int(found[1:]) for found, _ in made.release(SeededNoise(2))]
    top = np.argsort(-frequencies, kind="stable")
    assert 550 <= len(set(kept) & set(top[:1000].tolist())) <= 700
    # The most frequent hundred are all there, and nothing rare is.
    assert set(top[:100].tolist()) <= set(kept)
    assert frequencies[kept].min() > 60


def test_selected_words_make_a_vocabulary_with_a_record():
    made = calibrate_selection(1.0, 1e-6, max_words_per_document=3)
    for number in range(200):
        made.add(["cat", "dog", f"rare{number}"])
    released = made.release(SeededNoise(1))
    vocabulary = Vocabulary.selected([word for word, _ in released], selection=made.metadata())
    assert set(vocabulary.words) == {"cat", "dog"}
    assert vocabulary.selection == made.metadata()
    assert made.event == GaussianRelease(vocabulary.selection["noise_multiplier"])


# What is refused.


def test_nothing_tells_words():
    made = make()
    made.add(["secret"])
    assert "secret" not in repr(made) + json.dumps(made.metadata())
    assert repr(made) == (
        "WordSelection(noise_multiplier=4.0, delta=1e-06, max_words_per_document=5, "
        "neighboring_relation='add-remove')"
    )


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        ("secret", "type='str'"),
        (["secret", b"secret"], "type='bytes' position=1"),
        (["secret", ["secret"]], "type='list' position=1"),
    ],
)
def test_add_refuses_what_is_no_token_and_counts_nothing(tokens, shown):
    made = make()
    made.add(["cat"])
    before = dict(made._votes)
    with pytest.raises(InvalidDocumentsError, match=shown) as caught:
        made.add(tokens)
    assert "secret" not in str(caught.value)
    assert made._votes == before


def test_settings_out_of_range_are_refused():
    for wrong in ({"z": 0.0}, {"delta": 0.51}, {"d0": 0}, {"d0": 2**20 + 1}, {"relation": "swap"}):
        with pytest.raises(InvalidSettingError, match=f"={next(iter(wrong.values()))!r}"):
            make(**wrong)
    for epsilon, delta in ((1.0, 0.6), (-1.0, 1e-6)):
        with pytest.raises(InvalidSettingError, match=r"delta=0\.6|epsilon=-1\.0"):
            calibrate_selection(epsilon, delta)
