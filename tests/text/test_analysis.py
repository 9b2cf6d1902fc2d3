"""From text to words, against scikit-learn; and frequencies in bounded memory."""

import json
import pickle
from collections import Counter

import pytest
from hypothesis import given, settings
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from streamlda.text.analysis import TextAnalyzer
from streamlda.text.frequencies import WordFrequencies
from streamlda.text.stop_words import CONTRACTED
from streamlda.text.vocabulary import Vocabulary
from tests.texts import LETTERS, SKLEARN_PATTERN, any_text, endless, reference


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("pattern", [LETTERS, SKLEARN_PATTERN, r"[a-z](\w)", r"\w*"])
@settings(deadline=None)
@given(text=any_text)
def test_tokenizer_equals_sklearn(lowercase, pattern, text):
    analyzer = TextAnalyzer(lowercase, pattern, normalize=False)
    expected = reference(analyzer).build_analyzer()(text)
    assert analyzer.build_tokenizer()(text) == expected
    assert analyzer.build_analyzer()(text) == expected


def test_analyzer_is_equal_hashed_and_stored_by_content():
    one = TextAnalyzer(stop_words=["of", "the", "of"], ngram_range=[1, 2])
    two = TextAnalyzer(stop_words=("the", "of"), ngram_range=(1, 2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != TextAnalyzer(stop_words=("the",), ngram_range=(1, 2))
    assert pickle.loads(pickle.dumps(one)) == one
    for stop_words in (None, "english", ["the", "of"], []):
        analyzer = TextAnalyzer(False, SKLEARN_PATTERN, stop_words, (1, 3))
        assert TextAnalyzer.from_metadata(json.loads(json.dumps(analyzer.metadata()))) == analyzer


def read(found):
    """Return the counts of each word."""
    return dict(zip(found.list_words(), found.counts.tolist(), strict=True))


@pytest.mark.parametrize("max_words", [40, 100, 1000])
def test_frequencies_are_short_by_undercount_at_most(max_words):
    texts = list(endless(300, seed=5))
    analyze = TextAnalyzer().build_analyzer()
    found, at_once = (WordFrequencies(TextAnalyzer(), max_words) for _ in range(2))
    for text in texts:
        found.update([text])
        assert len(found.counts) <= max_words
    assert found.undercount > 0
    at_once.update(texts)
    assert read(at_once) == read(found)
    truth = Counter(word for text in texts for word in analyze(text))
    documents = Counter(word for text in texts for word in set(analyze(text)))
    for word, count in truth.items():
        assert 0 <= count - found.words[word] <= found.undercount
        assert 0 <= documents[word] - read(found).get(word, [0, 0])[1] <= found.undercount


def test_english_stop_words_are_scikit_learns():
    assert TextAnalyzer(stop_words="english", normalize=False).stop_set == ENGLISH_STOP_WORDS
    assert TextAnalyzer(stop_words="english").stop_set == ENGLISH_STOP_WORDS | CONTRACTED


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The U.S.A. and the U.K. met.", ["u_s_a", "u_k", "met"]),
        ("In the U.S., U.N.-led; U.S.S.R", ["u_s", "u_n", "led", "u_s_s_r"]),
        ("é U.S. J.R.R. Tolkien", ["u_s", "j_r_r", "tolkien"]),
        ("i.e. e.g. a.m. example.com/A.B.c plan A.", ["example", "com", "a_b", "plan"]),
    ],
)
def test_initialisms_are_one_word(text, words):
    analyzer = TextAnalyzer(stop_words="english")
    assert analyzer.build_analyzer()(text) == words
    vocabulary = Vocabulary.given(sorted({*words, "x"}), analyzer)
    assert vocabulary.encode([text]).tokens == len(words)
    assert vocabulary.encode([text]).unseen_tokens == 0
