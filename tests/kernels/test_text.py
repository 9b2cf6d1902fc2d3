"""Text kernels against their slow twins: hashes, the table of words, and splitting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32

from streamlda.kernels.text import fill_slots, find_words
from streamlda.text.analysis import ascii_classes
from tests import oracle_text

#: What stands in a cell that must be left alone.
UNTOUCHED = -77

#: Words with the hash -2^31, which has no positive counterpart of 32 bits, by solving for it.
SMALLEST = ["eotcxoen", "eoahcezz", "eybdexvv"]

#: All lengths around those of blocks, twice: letters that differ, and letters that repeat.
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
LENGTHS = [LETTERS[:n] for n in range(2, 27)] + ["ab" * n for n in range(1, 14)]

ascii_words = st.from_regex("[abcABC12]+(_[abcABC12]+)?", fullmatch=True)
ascii_texts = st.lists(
    st.text(st.sampled_from("abcABC 09_-\x00\x1f"), max_size=40)
    | st.text(st.characters(max_codepoint=127), max_size=40)
    | st.lists(ascii_words, max_size=9).map(" ".join),
    max_size=6,
)


def as_bytes(texts):
    """Return read-only arrays: the bytes of all texts, a line end behind each, and the starts."""
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)], dtype=np.int64)
    starts.flags.writeable = False
    joined = "".join(f"{text}\n" for text in texts).encode("ascii")
    return np.frombuffer(joined, dtype=np.uint8), starts


def table(columns, spare=1):
    """Return the table of words to columns, as full as can be without `spare`."""
    letters, starts = as_bytes(list(columns))
    n_slots = 2 ** len(columns).bit_length() * spare
    slots = np.full((n_slots, 4), UNTOUCHED, dtype=np.int64)
    fill_slots(letters, starts, np.array(list(columns.values()), dtype=np.int32), slots)
    return letters, slots


def split(ids, offsets):
    return [part.tolist() for part in np.split(ids[: offsets[-1]], offsets[1:-1])]


def found_by(texts, lowercase, columns, mask, spare=1):
    """Return what `find_words` finds, in the least room that it asks for."""
    joined, starts = as_bytes(texts)
    classes = np.frombuffer(ascii_classes(lowercase).encode("ascii"), dtype=np.uint8)
    room = np.full(len(joined) // 3 + 1, UNTOUCHED, dtype=np.int32)
    offsets = np.full(len(texts) + 1, UNTOUCHED, dtype=np.int64)
    find_words(joined, starts, classes, *table(columns, spare=spare), mask, room[:-1], offsets)
    assert (room[offsets[-1] :] == UNTOUCHED).all()
    return split(room, offsets) if texts else []


def test_hashes_of_words_of_all_lengths_equal_sklearn():
    mask = 2**31 - 1
    expected = [abs(murmurhash3_32(word.encode())) & mask for word in LENGTHS]
    assert found_by([" ".join(LENGTHS)], True, {}, mask) == [expected]
    for word in SMALLEST:
        assert murmurhash3_32(word.encode()) == -(2**31)
    for mask in (2**22 - 1, 2**31 - 1):
        assert found_by([" ".join(SMALLEST)], True, {}, mask) == [[0, 0, 0]]


@pytest.mark.fuzz
@given(
    texts=ascii_texts,
    words=st.lists(ascii_words, unique=True, max_size=9),
    n_stops=st.integers(0, 3),
    lowercase=st.booleans(),
    mask=st.sampled_from([-1, 0, 1, 2**14 - 1, 2**22 - 1]),
    spare=st.sampled_from([1, 4]),
)
def test_find_words_equals_oracle(texts, words, n_stops, lowercase, mask, spare):
    columns = {word: n if n >= n_stops else -2 for n, word in enumerate(words)}
    expected = oracle_text.find_words(texts, lowercase, columns, mask)
    assert found_by(texts, lowercase, columns, mask, spare) == expected


TEXTS = {
    "no texts": [],
    "empty": ["", ""],
    "shortest words": ["ab", "ab cd", "ab cd ef", "", "gh"],
    "nothing but ends": ["  .\n", "\x00\x7f"],
    "digits and joins": [
        "a1",
        "_ab",
        "ab_",
        "1ab cd2",
        "9",
        "1_0",
        "a_b",
        "a__b_",
        "_",
        "ab_cd ab",
    ],
    "single letters": ["a b c", "d"],
    "a long word": ["ab" * 50_000, "ab" * 50_000 + "_", "x" + "ab" * 50_000],
    "ends at the end of a text": ["ab", "cd", "1", "ab"],
}


@pytest.mark.parametrize("mask", [-1, 2**10 - 1])
@pytest.mark.parametrize("kind", TEXTS)
def test_find_words_equals_oracle_at_the_edges(kind, mask):
    columns = {"ab": 4, "cd": -2, "ab" * 50_000: 9}
    expected = oracle_text.find_words(TEXTS[kind], True, columns, mask)
    assert found_by(TEXTS[kind], True, columns, mask) == expected
