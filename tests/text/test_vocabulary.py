"""Words and their columns: given, learned, selected and hashed; identity and storage."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.errors import InsufficientDataError, InvalidSettingError, VocabularyError
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from tests.texts import LETTERS, SKLEARN_PATTERN, TEXTS, reference, small_text


def test_from_file_reads_one_word_a_line(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeffcat\r\n\n  dog \n\t\nnaïve\nice cream".encode())
    vocabulary = Vocabulary.from_file(path, TextAnalyzer(ngram_range=(1, 2)))
    assert vocabulary.words == ("cat", "dog", "naïve", "ice cream")
    assert vocabulary.analyzer.ngram_range == (1, 2)
    assert Vocabulary.from_file(str(path)).kind == "given"


@pytest.mark.parametrize("n_topics", [2, 10])
def test_of_few_documents_the_default_keeps_all_words(n_topics):
    texts, default = ["salt sea ship"] * 21, VocabularyLearner.by(None, n_topics)
    # As of many, where the frequent words are those that the documents are about.
    for n in (1, 2, 20, 21):
        assert default.learn(texts[:n]).words == ("salt", "sea", "ship")
    limit = {"max_document_frequency": default.max_document_frequency}
    with pytest.raises(VocabularyError, match=r"documents=3; .*max_document_frequency"):
        VocabularyLearner(**limit).learn(texts[:20])
    rare = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(150)]
    for n, left_out in ((20, 0), (21, 3)):
        assert default.learn([*texts[:n], " ".join(rare)]).too_frequent == left_out
    assert default.learn([*texts, " ".join(rare[:140])]).too_frequent == 0


@settings(deadline=None, max_examples=200)
@given(
    texts=st.lists(small_text, max_size=10),
    size=st.none() | st.integers(1, 5),
    low=st.integers(1, 3) | st.sampled_from([0.0, 0.3, 1.0]),
    high=st.integers(1, 10) | st.sampled_from([0.2, 0.7, 1.0]),
    analyzer=st.builds(
        TextAnalyzer,
        stop_words=st.sampled_from([None, "english", ("ab", "éa", "cd ef")]),
        ngram_range=st.sampled_from([(1, 1), (1, 2), (2, 3)]),
        token_pattern=st.sampled_from([LETTERS, SKLEARN_PATTERN, r"[a-e]\w*"]),
        lowercase=st.booleans(),
    ),
)
def test_learn_equals_sklearn(texts, size, low, high, analyzer):
    limits = {"min_document_frequency": low, "max_document_frequency": high}
    try:
        X = (vectorizer := reference(analyzer, min_df=low, max_df=high)).fit_transform(texts)
    except ValueError:  # no words, or crossed limits
        with pytest.raises((VocabularyError, InvalidSettingError, InsufficientDataError)):
            Vocabulary.learn(texts, analyzer=analyzer, size=size, **limits)
        return
    names = vectorizer.get_feature_names_out()
    frequency = dict(zip(names, np.asarray(X.sum(axis=0)).ravel(), strict=True))
    learned = Vocabulary.learn(texts, analyzer=analyzer, size=size, **limits)
    # The same frequencies as sklearn's choice; ours alone is fixed among equals.
    vectorizer = reference(analyzer, min_df=low, max_df=high, max_features=size).fit(texts)
    theirs = [frequency[word] for word in vectorizer.get_feature_names_out()]
    assert sorted(frequency[word] for word in learned.words) == sorted(theirs)
    ranked = sorted(frequency, key=lambda word: (-frequency[word], word))
    assert learned.words == tuple(sorted(ranked[:size]))
    assert (learned.kind, learned.data_dependent, learned.undercount) == ("learned", True, 0)


FACTS = {"mechanism": "gaussian-threshold", "delta": 1e-6, "event": {"noise_multiplier": 4.5}}


def test_selected_keeps_order_and_the_record():
    facts = json.loads(json.dumps(FACTS))
    made = Vocabulary.selected(iter(["b", "a"]), selection=facts)
    assert (made.kind, made.words, made.data_dependent) == ("selected", ("b", "a"), True)
    facts["event"].clear()
    assert made.selection == made.metadata()["selection"] == FACTS
    # It is kept besides the identity, and other kinds have none.
    other = Vocabulary.selected(["b", "a"], selection={"delta": 0.5})
    assert (made, hash(made), made.fingerprint) == (other, hash(other), other.fingerprint)
    for plain in (Vocabulary.given(["b", "a"]), Vocabulary.learn(["cat"]), Vocabulary.hashed(3)):
        assert plain != made
        assert plain.selection is None
        assert "selection" not in plain.metadata()


MADE = [
    Vocabulary.given(["naïve", "cat", "\ud800"], TextAnalyzer(stop_words=["a", "b"])),
    Vocabulary("learned", ("cat", "dog"), undercount=3),
    Vocabulary.selected(["naïve", "cat"], TextAnalyzer(stop_words=["a"]), selection=FACTS),
    Vocabulary.hashed(9, TextAnalyzer(ngram_range=(1, 2), stop_words="english")),
    Vocabulary("hashed", None, 1, names=("", "naïve|cat")),
]


@pytest.mark.parametrize("made", MADE)
def test_round_trips_through_json_and_pickle(made):
    text = json.dumps(made.metadata())
    assert not any(word in text for word in made.listed or () if word)
    expected = made.token_ids(TEXTS)[0].tolist()
    stored = Vocabulary.from_metadata(json.loads(text), made.listed)
    for back in (stored, pickle.loads(pickle.dumps(made))):
        assert (back, hash(back), back.fingerprint) == (made, hash(made), made.fingerprint)
        assert (back.metadata(), back.names) == (made.metadata(), made.names)
        assert back.token_ids(TEXTS)[0].tolist() == expected


def test_fingerprint_differs_with_content():
    made = [
        Vocabulary.given(["ab", "c"]),
        Vocabulary.given(["c", "ab"]),
        Vocabulary.given(["a", "bc"]),
        Vocabulary.given(["ab", "c"], TextAnalyzer(lowercase=False)),
        Vocabulary.learn(["ab cc"]),
        Vocabulary.given(["ab", "cc"]),
        Vocabulary.selected(["ab", "cc"], selection=FACTS),
        Vocabulary.hashed(3),
        Vocabulary.hashed(4),
    ]
    assert len({vocabulary.fingerprint for vocabulary in made}) == len(made)
    assert len(set(made)) == len(made)
    golden = "14e263fd418de70d877578df0eb6feff67785e09b86f30b6b231a34873ba5c2e"
    before = TextAnalyzer(token_pattern=LETTERS, normalize=False, clean=())  # as of version 0.1
    assert Vocabulary.given(["naïve", "cat"], before).fingerprint == golden
