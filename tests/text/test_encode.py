"""From texts to columns and counts: against scikit-learn, and by kernel as by word."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer

from streamlda.errors import InvalidDocumentsError
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.encoding import UNSEEN, count_tokens
from streamlda.text.vocabulary import MAX_HASH_BITS, Vocabulary
from tests.texts import LETTERS, TEXTS, reference, small_text, tricky, word_list

pytestmark = pytest.mark.kernels

#: Columns by a separate implementation of MurmurHash3; they must never change.
GOLDEN_16 = [1258, 10112, 34261, 26127, 36457, 27258]
GOLDEN_22 = [4064490, 2172800, 2655701, 1271311, 1674857, 4156026]


#: Words by default, where there are neither underscores nor marks.
WORDS_WITH_DIGITS = r"(?u)\b(?=\w*[^\W\d_])\w\w+\b"


@settings(deadline=None)
@given(
    texts=st.lists(small_text, max_size=6),
    words=word_list,
    stop_words=st.sampled_from([None, ["the", "gh", "ab cd"]]),
    longest=st.integers(1, 2),
)
def test_encode_equals_sklearn(texts, words, stop_words, longest):
    analyzer = TextAnalyzer(stop_words=stop_words, ngram_range=(1, longest))
    encoded = Vocabulary.given(words, analyzer).encode(texts)
    analyzer = replace(analyzer, token_pattern=WORDS_WITH_DIGITS)
    counts = reference(analyzer, vocabulary=words).transform(texts).toarray()
    np.testing.assert_array_equal(encoded.batch.to_csr().toarray(), counts)
    analyze = reference(analyzer).build_analyzer()
    assert encoded.tokens == sum(len(analyze(text)) for text in texts)
    assert encoded.unseen_tokens == encoded.tokens - counts.sum()


def test_token_ids_keep_order_and_offsets():
    words = ["dog", "cat", "red"]
    for analyzer, expected, ends in (
        (None, [UNSEEN, 2, 1, UNSEEN, 1, 0, UNSEEN, UNSEEN, 0, 0], [0, 5, 6, 6, 10]),
        (TextAnalyzer(stop_words=["the"]), [2, 1, 1, 0, UNSEEN, UNSEEN, 0, 0], [0, 3, 4, 4, 8]),
    ):
        ids, offsets = Vocabulary.given(words, analyzer).token_ids(TEXTS)
        assert (ids.dtype, offsets.dtype) == (np.int32, np.int64)
        assert (ids.tolist(), offsets.tolist()) == (expected, ends)
    pairs = Vocabulary.given(["ab", "cd", "ab cd", "cd ab"], TextAnalyzer(ngram_range=(1, 2)))
    assert pairs.token_ids(["ab cd ab"])[0].tolist() == [0, 1, 0, 2, 3]
    # Texts without words, and half a surrogate pair, are texts.
    for made in (Vocabulary.given(["cat"]), Vocabulary.hashed(4)):
        for texts in ([], [""], ["", "."]):
            encoded = made.encode(texts)
            assert encoded.batch.to_csr().shape == (len(texts), made.n_features)
            assert encoded.tokens == encoded.unseen_tokens == encoded.batch.to_csr().nnz == 0
    hashed = Vocabulary.hashed(8, TextAnalyzer(token_pattern=r"\S+"))
    assert len(hashed.token_ids(["a\ud800"])[0]) == 1


def test_texts_must_be_strings_and_are_never_quoted():
    for texts, said in (
        ("secret", "one string|got type='str'; put them into a list"),
        (["a", b"secret"], "document=1 type='bytes'"),
        (["a", 1], "document=1 type='int'"),
    ):
        given, hashed = Vocabulary.given(["cat"]), Vocabulary.hashed(3)
        for use in (given.encode, hashed.token_ids, Vocabulary.learn):
            with pytest.raises(InvalidDocumentsError, match=said) as caught:
                use(texts)
            assert "secret" not in str(caught.value)


def test_hashed_golden_columns():
    words = ["topic", "model", "naïve", "été", "中文", "stream"]
    ids, _ = Vocabulary.hashed(16).token_ids([" ".join(words)])
    assert ids.tolist() == GOLDEN_16
    assert Vocabulary.hashed(MAX_HASH_BITS).token_ids(words)[0].tolist() == GOLDEN_22


@settings(deadline=None)
@given(
    texts=st.lists(small_text | tricky, min_size=1, max_size=5), bits=st.sampled_from([1, 3, 10])
)
def test_hashed_equals_sklearn(texts, bits):
    analyzer = TextAnalyzer(True, LETTERS, ["the", "cd"], normalize=False)
    encoded = Vocabulary.hashed(bits, analyzer).encode(texts)
    how = {"token_pattern": LETTERS, "stop_words": ["the", "cd"], "n_features": 2**bits}
    theirs = HashingVectorizer(**how, alternate_sign=False, norm=None).transform(texts)
    np.testing.assert_array_equal(encoded.batch.to_csr().toarray(), theirs.toarray())
    assert (encoded.tokens, encoded.unseen_tokens) == (theirs.sum(), 0)


STOPS = TextAnalyzer(stop_words=["the", "cd", "Ef", "éa"])
ANALYZERS = [
    TextAnalyzer(),
    TextAnalyzer(lowercase=False),
    TextAnalyzer(token_pattern=LETTERS, normalize=False),
    STOPS,
    TextAnalyzer(lowercase=False, stop_words=["the", "AB", "no word", ""]),
    TextAnalyzer(stop_words="english"),
    TextAnalyzer(ngram_range=(1, 2), stop_words=["the"]),
    TextAnalyzer(ngram_range=(2, 2)),
    TextAnalyzer(token_pattern=r"(?u)\b\w\w+\b"),
]
WORDS = ["ab", "AB", "Ef", "ef", "the", "éa", "ab cd", "k2", "x", "zz" * 40, "\ud800"]
WORDS += ["k_b", "a_", "12", "gh"]
mixed_texts = st.lists(
    small_text
    | tricky
    | st.text(st.characters(max_codepoint=127), max_size=60)
    | st.text(st.sampled_from("abABef_09 \x1c\x7f-"), max_size=60)
    | st.sampled_from(["zz" * 40, "Zz" * 40, "the" * 400, "a\ud800 ab", "AB" * 3 + "_", "é"]),
    max_size=8,
)


def check_equal(made, texts):
    ids, offsets = made.token_ids(texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextAnalyzer, "bytewise", False)
        expected_ids, expected_offsets = made.token_ids(texts)
    assert (ids.dtype, offsets.dtype) == (expected_ids.dtype, expected_offsets.dtype)
    assert ids.tolist() == expected_ids.tolist()
    assert offsets.tolist() == expected_offsets.tolist()


@pytest.mark.fuzz
@pytest.mark.parametrize("analyzer", ANALYZERS)
@given(texts=mixed_texts)
def test_token_ids_equal_by_kernel_and_by_word(analyzer, texts):
    check_equal(Vocabulary.given(WORDS, analyzer), texts)
    check_equal(Vocabulary.hashed(9, analyzer), texts)


@pytest.mark.parametrize(("offsets", "n_features"), [([0, 3], 2), ([0, 1000], 999)])
def test_count_tokens_refuses_ids_that_lead_outside(offsets, n_features):
    ids = np.arange(offsets[-1], dtype=np.int32)[::-1].copy()
    with pytest.raises(InvalidDocumentsError, match="n_features-1, got document=0"):
        count_tokens(ids, np.array(offsets), n_features)
