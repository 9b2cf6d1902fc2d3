"""Kernels of cleaning against expressions, in blocks whose edges cut what is removed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.kernels.cleaning import BLOCK, PADDING, find_marks
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.cleaning import STEPS, clean_text
from streamlda.text.vocabulary import Vocabulary
from tests import oracle_text

#: What is removed, pieces of it, and what only looks like it.
PIECES = {
    "attachments": ["e64", "base64\n", "\nM", "[-!0" * 15, "\n" + "Zm9v" * 15 + "\n"],
    "urls": ["://", "http", "www.", "ftp://x", "https://ab.cd?e=f&g", "w", ":", "/"],
    "emails": ["@", "a.b@cd.ef", "gh@i", ".jk", "lm.", "+%", "n" * 63],
    "html": [
        *("<b>", "</i >", "<p x=y>", "<br/>", "<!--", "-->", "<script>", "</script>", "<", ">"),
        *("&amp;", "&#39;", "&eacute;", "&", "#", ";", "=", "_"),
    ],
}
BETWEEN = [" ", "\n", "word", " ab cd", *(" " * n for n in (15, BLOCK - 9, BLOCK - 1, BLOCK))]


def texts_of(*steps, most):
    pieces = [each for step in steps for each in PIECES[step]]
    either = st.sampled_from(pieces) | st.sampled_from(BETWEEN)
    return st.lists(st.lists(either, max_size=most).map("".join), max_size=4)


@given(texts_of(*PIECES, most=9))
def test_marks_are_of_what_may_begin_in_a_block(texts):
    letters = "".join(f"{text}\n" for text in texts)
    joined = np.frombuffer((letters + " " * PADDING).encode(), dtype=np.uint8)
    marks = np.full(-(-len(letters) // BLOCK), 255, dtype=np.uint8)
    find_marks(joined, marks)
    assert marks.tolist() == oracle_text.marks(letters + " " * PADDING, BLOCK)[: len(marks)]


@pytest.mark.fuzz
@pytest.mark.parametrize("steps", [*((step,) for step in STEPS), STEPS])
@given(data=st.data())
def test_kernels_leave_the_words_that_expressions_leave(steps, data):
    check_words(data.draw(texts_of(*steps, most=9)), steps)


@pytest.mark.parametrize("steps", [*((step,) for step in STEPS), STEPS])
def test_blocks_may_begin_anywhere_in_what_is_removed(steps):
    pieces = "".join(piece for step in steps for piece in PIECES[step][:4])
    check_words(["k" * n + " " + pieces + " word" for n in range(0, BLOCK, 7)], steps)


def check_words(texts, steps):
    removed, plain = Counter(), Vocabulary.hashed(20, TextAnalyzer(clean=()))
    wanted = plain.encode([clean_text(text, steps, removed) for text in texts])
    found = Vocabulary.hashed(20, TextAnalyzer(clean=steps)).encode(texts)
    assert found.removed == removed
    for name, array in found.batch.arrays.items():
        np.testing.assert_array_equal(array, wanted.batch.arrays[name])
