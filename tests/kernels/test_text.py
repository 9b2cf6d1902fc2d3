"""Text kernels against their slow twins: hashes, the table of words, and splitting."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32

from streamlda.kernels.text import find_words
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


def as_bytes(texts, end=b"\n"):
    """Return read-only arrays: the bytes of all texts, an end behind each, and the starts."""
    parts = [text.encode() + end for text in texts]
    starts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    starts.flags.writeable = False
    return np.frombuffer(b"".join(parts), dtype=np.uint8), starts


CLASSES = {
    lowercase: np.frombuffer(
        ascii_classes(lowercase).encode().replace(b" ", b"\xff").ljust(256, b"\xff")
        + bytes(range(256)),
        dtype=np.uint8,
    )
    for lowercase in (True, False)
}


class Table:
    """A table of words, as full as can be without `spare`."""

    def __init__(self, n_words, spare=1):
        self.slots = np.zeros((2 ** n_words.bit_length() * spare, 4), dtype=np.int64)
        self.letters, self.sizes = np.empty(0, dtype=np.uint8), np.zeros(2, dtype=np.int64)

    def find(self, joined, starts, lowercase, whole, mask, most):
        """Return what `find_words` finds, in the least room that it asks for."""
        whole = np.full(len(starts) - 1, whole, dtype=np.uint8)
        used = self.sizes[1] + len(joined)
        self.letters = np.resize(self.letters, used) if used else self.letters
        room = np.full(len(joined) // 2 + 1, UNTOUCHED, dtype=np.int32)
        offsets = np.full(len(starts), UNTOUCHED, dtype=np.int64)
        table = self.slots, self.letters, self.sizes
        settings = CLASSES[lowercase], whole, mask, most
        find_words(joined, starts, *settings, *table, room[:-1], offsets)
        assert (room[offsets[-1] :] == UNTOUCHED).all()
        return [room[i:j].tolist() for i, j in pairwise(offsets)]

    def words(self):
        return self.letters[: self.sizes[1]].tobytes().split(b"\xff")[:-1]


def look_up(texts, lowercase, words, mask, most=0, spare=1):
    """Return numbers by a table that begins with `words`, and its words afterwards."""
    table = Table(max(len(words), most), spare)
    numbers = table.find(*as_bytes(words, b"\xff"), lowercase, 1, -1, len(words))
    assert numbers == [[n] for n in range(len(words))]
    found = table.find(*as_bytes(texts), lowercase, 0, mask, most)
    return found, [word.decode() for word in table.words()]


def check_equal(texts, lowercase, words, mask, most=0, spare=1):
    known = {word: n for n, word in enumerate(words)}
    expected = oracle_text.find_words(texts, lowercase, known, mask, most)
    assert look_up(texts, lowercase, words, mask, most, spare) == (expected, [*known])


def test_hashes_of_words_of_all_lengths_equal_sklearn():
    mask = 2**31 - 1
    expected = [-1 - (abs(murmurhash3_32(word.encode())) & mask) for word in LENGTHS]
    assert look_up([" ".join(LENGTHS)], True, [], mask) == ([expected], [])
    for word in SMALLEST:
        assert murmurhash3_32(word.encode()) == -(2**31)
    for mask in (2**22 - 1, 2**31 - 1):
        assert look_up([" ".join(SMALLEST)], True, [], mask) == ([[-1, -1, -1]], [])


@pytest.mark.fuzz
@given(
    texts=ascii_texts,
    words=st.lists(ascii_words, unique=True, max_size=9),
    lowercase=st.booleans(),
    mask=st.sampled_from([-1, 0, 1, 2**14 - 1, 2**22 - 1]),
    most=st.integers(0, 30),
    spare=st.sampled_from([1, 4]),
)
def test_find_words_equals_oracle(texts, words, lowercase, mask, most, spare):
    check_equal(texts, lowercase, words, mask, most, spare)


@given(documents=st.lists(st.lists(st.text(max_size=20)), max_size=5), most=st.integers(0, 9))
def test_whole_words_are_of_any_bytes(documents, most):
    ends = [b"".join(word.encode() + b"\xff" for word in words) for words in documents]
    joined = np.frombuffer(b"".join(ends), dtype=np.uint8)
    starts, known = np.cumsum([0, *map(len, ends)], dtype=np.int64), {}
    table = Table(most)
    assert table.find(joined, starts, True, 1, 2**9 - 1, most) == [
        [oracle_text.number_word(word, known, 2**9 - 1, most) for word in words if word]
        for words in documents
    ]
    assert [word.decode() for word in table.words()] == [*known]


TEXTS = {
    "no texts": [],
    "empty": ["", ""],
    "nothing but ends": ["  .\n", "\x00\x7f"],
    "digits and joins": ["a1 _ab", "ab_", "1ab cd2", "9 1_0", "a_b a__b_ _", "ab_cd ab", "a b"],
    "a long word": ["ab" * 50_000, "ab" * 50_000 + "_", "x" + "ab" * 50_000],
    "ends at the end of a text": ["ab", "cd", "1", "ab"],
}


@pytest.mark.parametrize("mask", [-1, 2**10 - 1])
@pytest.mark.parametrize("most", [0, 4, 99])
@pytest.mark.parametrize("kind", TEXTS)
def test_find_words_equals_oracle_at_the_edges(kind, most, mask):
    check_equal(TEXTS[kind], True, ["ab", "cd", "ab" * 50_000], mask, most)
