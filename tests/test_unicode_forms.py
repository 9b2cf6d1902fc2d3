"""Unicode forms of texts, whatever marks they have."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.privacy.ledger.fingerprints import FingerprintKey
from streamlda.text.analysis import TextAnalyzer
from streamlda.utils.unicode_forms import normalized

#: Marks of several classes, some that others are made of, one beyond the first plane.
MARKS = "\u0301\u0316\u0344\u0f73\u0f71\u3099\uff9e\U0001d165"


@pytest.mark.parametrize("form", ["NFC", "NFKD"])
@given(
    text=st.text(st.sampled_from(MARKS + "aé한\u1100\u1161\U0001f600"), min_size=30, max_size=90)
)
def test_many_marks_are_put_in_order_before_the_text_is_normalized(form, text):
    assert normalized(form, text) == unicodedata.normalize(form, text)


def read(text):
    """Read a text as words, and as what a ledger knows it by."""
    TextAnalyzer().build_analyzer()(text)
    FingerprintKey(bytes(32)).of_text(text)


def test_normalizing_moves_no_mark_past_many(monkeypatch):
    """The library takes the square of the marks that are not in order."""
    given = []

    def normalize(form, text):
        given.append((form.replace("C", "D"), text))
        return unicodedata.normalize(form, text)

    monkeypatch.setattr("streamlda.utils.unicode_forms.normalize", normalize)
    for mark in ("\u0301\u0316", "\u0f73", "\u0301\uff9e"):
        read("a" + mark * 1000)
    long = [(form, text) for form, text in given if len(text) > 100]
    assert len(long) > 3
    for form, text in long:
        decomposed = "".join(unicodedata.normalize(form, each) for each in text)
        classes = map(unicodedata.combining, decomposed)
        assert not [pair for pair in pairwise(classes) if pair[0] > pair[1] > 0]
