import json
import pickle
import subprocess
import sys
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

from streamlda import analysis, vocabulary
from streamlda.analysis import LETTERS, FrequencyLimits, TextAnalyzer, WordFrequencies
from streamlda.errors import InvalidDocumentsError, InvalidSettingError, VocabularyError
from streamlda.vocabulary import MAX_HASH_BITS, UNSEEN, Vocabulary, count_tokens

SKLEARN_PATTERN = r"(?u)\b\w\w+\b"
TEXTS = ["the red cat, the cat", "A dog", "", "cats x86 dog dog"]

#: Columns by a separate implementation of MurmurHash3; they must never change.
GOLDEN_16 = [1258, 10112, 34261, 26127, 36457, 27258]
GOLDEN_22 = [4064490, 2172800, 2655701, 1271311, 1674857, 4156026]
GOLDEN_FINGERPRINT = "14e263fd418de70d877578df0eb6feff67785e09b86f30b6b231a34873ba5c2e"

#: Letters that change length or script when lower-cased, digits that are letters to some, joins.
tricky = st.text(
    st.sampled_from(
        "abzABZ019_-' \n\t.éÉß\u0130\u0131\u017f\u212a\u03a3\u03c3\u03c2"
        "²½\u0663中\u0301\u200d\u00a0\x1c\x00"
    ),
    max_size=40,
)
any_text = tricky | st.text(max_size=30) | st.text(st.characters(max_codepoint=127), max_size=60)
#: Few words, so that they meet again.
small_text = st.lists(
    st.sampled_from(["ab", "cd", "Ef", "gh", "ij", "the", "x", "k2", "éa"]), max_size=12
).map(" ".join)
word_list = st.lists(
    st.sampled_from(["ab", "cd", "ef", "gh", "ij", "the", "éa", "ab cd", "zz"]),
    min_size=1,
    unique=True,
)


def reference(analyzer, **settings):
    return CountVectorizer(
        lowercase=analyzer.lowercase,
        token_pattern=analyzer.token_pattern,
        stop_words=None if analyzer.stop_words is None else list(analyzer.stop_set),
        ngram_range=analyzer.ngram_range,
        **settings,
    )


# ---------------------------------------------------------------- analyzer


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("pattern", [LETTERS, SKLEARN_PATTERN, r"[a-z](\w)", r"\w*"])
@settings(deadline=None)
@given(text=any_text)
def test_tokenizer_equals_sklearn(lowercase, pattern, text):
    analyzer = TextAnalyzer(lowercase=lowercase, token_pattern=pattern)
    expected = reference(analyzer).build_analyzer()(text)
    assert analyzer.build_tokenizer()(text) == expected
    assert analyzer.build_analyzer()(text) == expected


@settings(deadline=None)
@given(
    text=small_text | any_text,
    stop_words=st.sampled_from([None, "english", ["the", "ab"]]),
    shortest=st.integers(1, 3),
    more=st.integers(0, 2),
)
def test_analyzer_equals_sklearn_with_stop_words_and_ngrams(text, stop_words, shortest, more):
    analyzer = TextAnalyzer(stop_words=stop_words, ngram_range=(shortest, shortest + more))
    assert analyzer.build_analyzer()(text) == reference(analyzer).build_analyzer()(text)


def test_default_pattern_keeps_runs_of_letters_only():
    words = TextAnalyzer().build_analyzer()("CO2 in 2019: naïve U.S. x86_64 co-author's Über")
    assert words == ["in", "naïve", "co", "author", "über"]


def test_analyzer_is_equal_and_hashed_by_content():
    one = TextAnalyzer(stop_words=["of", "the", "of"], ngram_range=[1, 2])
    two = TextAnalyzer(stop_words=("the", "of"), ngram_range=(1, 2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != TextAnalyzer(stop_words=("the",), ngram_range=(1, 2))
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("stop_words", [None, "english", ["the", "of"], []])
def test_analyzer_metadata_round_trip_through_json(stop_words):
    analyzer = TextAnalyzer(False, SKLEARN_PATTERN, stop_words, (1, 3))
    assert TextAnalyzer.from_metadata(json.loads(json.dumps(analyzer.metadata()))) == analyzer


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"lowercase": 1}, "lowercase=1"),
        ({"token_pattern": "("}, "token_pattern="),
        ({"token_pattern": None}, "token_pattern=None"),
        ({"token_pattern": b"a"}, "token_pattern=b'a'"),
        ({"token_pattern": "(a)(b)"}, "token_pattern="),
        ({"stop_words": "french"}, "stop_words='french'"),
        ({"stop_words": [1]}, "stop_words"),
        ({"ngram_range": (0, 1)}, "ngram_range=(0, 1)"),
        ({"ngram_range": (2, 1)}, "ngram_range=(2, 1)"),
        ({"ngram_range": (1.0, 1)}, "ngram_range=(1.0, 1)"),
        ({"ngram_range": 2}, "ngram_range=2"),
        ({"colour": 2}, "colour"),
    ],
)
def test_analyzer_refuses_settings(settings, name):
    with pytest.raises(InvalidSettingError) as caught:
        TextAnalyzer.from_metadata(settings)
    assert name in str(caught.value)


# ---------------------------------------------------------------- encoding


def slow_counts(ids, offsets, n_features):
    """Twin of `count_tokens`: a dense table filled token by token."""
    table = np.zeros((len(offsets) - 1, n_features))
    for document in range(len(offsets) - 1):
        for place in range(offsets[document], offsets[document + 1]):
            if ids[place] >= 0:
                table[document, ids[place]] += 1
    return table


@settings(deadline=None)
@given(documents=st.lists(st.lists(st.integers(-1, 6), max_size=12), max_size=8))
def test_count_tokens_equals_oracle(documents):
    ids = np.array([i for document in documents for i in document], dtype=np.int32)
    offsets = np.cumsum([0, *map(len, documents)])
    batch = count_tokens(ids, offsets, 7)
    np.testing.assert_array_equal(batch.to_csr().toarray(), slow_counts(ids, offsets, 7))
    assert batch.n_documents == len(documents)


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
    counts = reference(analyzer, vocabulary=words).transform(texts).toarray()
    np.testing.assert_array_equal(encoded.batch.to_csr().toarray(), counts)
    analyze = reference(analyzer).build_analyzer()
    assert encoded.tokens == sum(len(analyze(text)) for text in texts)
    assert encoded.unseen_tokens == encoded.tokens - counts.sum()


def test_encode_counts_unseen_words_but_no_stop_words():
    analyzer = TextAnalyzer(stop_words=["the"])
    encoded = Vocabulary.given(["dog", "cat", "the"], analyzer).encode(TEXTS)
    expected = [[0, 2, 0], [1, 0, 0], [0, 0, 0], [2, 0, 0]]
    np.testing.assert_array_equal(encoded.batch.to_csr().toarray(), expected)
    assert encoded.tokens == 7
    assert encoded.unseen_tokens == 2  # red, cats; "x86" and "A" are no tokens


def test_token_ids_keep_order_and_offsets():
    words = ["dog", "cat", "red"]
    ids, offsets = Vocabulary.given(words).token_ids(TEXTS)
    assert (ids.dtype, offsets.dtype) == (np.int32, np.int64)
    assert ids.tolist() == [UNSEEN, 2, 1, UNSEEN, 1, 0, UNSEEN, 0, 0]
    assert offsets.tolist() == [0, 5, 6, 6, 9]
    ids, offsets = Vocabulary.given(words, TextAnalyzer(stop_words=["the"])).token_ids(TEXTS)
    assert (ids.dtype, offsets.dtype) == (np.int32, np.int64)
    assert ids.tolist() == [2, 1, 1, 0, UNSEEN, 0, 0]
    assert offsets.tolist() == [0, 3, 4, 4, 7]


def test_token_ids_of_ngrams_come_by_length():
    vocabulary = Vocabulary.given(["ab", "cd", "ab cd", "cd ab"], TextAnalyzer(ngram_range=(1, 2)))
    assert vocabulary.token_ids(["ab cd ab"])[0].tolist() == [0, 1, 0, 2, 3]


@pytest.mark.parametrize("made", [Vocabulary.given(["cat"]), Vocabulary.hashed(4)])
@pytest.mark.parametrize("texts", [[], [""], ["", "."]])
def test_encode_takes_texts_without_words(made, texts):
    encoded = made.encode(texts)
    assert encoded.batch.to_csr().shape == (len(texts), made.n_features)
    assert (encoded.tokens, encoded.unseen_tokens, encoded.batch.to_csr().nnz) == (0, 0, 0)


@pytest.mark.parametrize(
    ("texts", "told"),
    [("secret", "one string"), (["a", b"secret"], "document=1 type=bytes"), ([None], "NoneType")],
)
def test_texts_must_be_strings_and_are_never_quoted(texts, told):
    for use in (Vocabulary.given(["cat"]).encode, Vocabulary.hashed(3).token_ids, Vocabulary.learn):
        with pytest.raises(InvalidDocumentsError, match=told) as caught:
            use(texts)
        assert "secret" not in str(caught.value)


# ---------------------------------------------------------------- given words


def test_given_keeps_order_and_names():
    vocabulary = Vocabulary.given(iter(["b", "a"]))
    assert (vocabulary.kind, vocabulary.words, vocabulary.n_features) == ("given", ("b", "a"), 2)
    assert not vocabulary.data_dependent
    names = vocabulary.get_feature_names_out()
    assert names.dtype == object
    assert names.tolist() == ["b", "a"]
    assert vocabulary.feature_name(1) == "a"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "words=0"),
        (["a", "b", "a"], "position=2 first_position=0"),
        (["a", ""], "position=1"),
        (["a", 3], "type=int position=1"),
        ("abc", "one string"),
    ],
)
def test_given_refuses_unusable_words(words, told):
    with pytest.raises(VocabularyError, match=told):
        Vocabulary.given(words)


def test_from_file_reads_one_word_a_line(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeffcat\r\n\n  dog \n\t\nnaïve\nice cream".encode())
    vocabulary = Vocabulary.from_file(path, TextAnalyzer(ngram_range=(1, 2)))
    assert vocabulary.words == ("cat", "dog", "naïve", "ice cream")
    assert vocabulary.analyzer.ngram_range == (1, 2)
    assert Vocabulary.from_file(str(path)).kind == "given"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"cat\n\ndog\ncat\n", "line=4 first_line=1"),
        (b"cat\ncaf\xe9\n", "UTF-8.*line=2"),
        (b"\n \n", "at least one word"),
        (b"", "at least one word"),
    ],
)
def test_from_file_refuses_unusable_files(tmp_path, content, told):
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(VocabularyError, match=told) as caught:
        Vocabulary.from_file(path)
    assert str(path) in str(caught.value)


def test_from_file_names_a_missing_file(tmp_path):
    with pytest.raises(VocabularyError, match=r"none\.txt: No such file"):
        Vocabulary.from_file(tmp_path / "none.txt")


# ---------------------------------------------------------------- learned words


@settings(deadline=None, max_examples=200)
@given(
    texts=st.lists(small_text, max_size=10),
    size=st.none() | st.integers(1, 5),
    low=st.integers(1, 3) | st.sampled_from([0.0, 0.3, 1.0]),
    high=st.integers(1, 10) | st.sampled_from([0.2, 0.7, 1.0]),
)
def test_learn_equals_sklearn(texts, size, low, high):
    analyzer = TextAnalyzer()
    limits = {"min_document_frequency": low, "max_document_frequency": high}
    try:
        X = (vectorizer := reference(analyzer, min_df=low, max_df=high)).fit_transform(texts)
    except ValueError:  # no words, or crossed limits
        with pytest.raises((VocabularyError, InvalidSettingError)):
            Vocabulary.learn(texts, size=size, **limits)
        return
    frequency = dict(
        zip(vectorizer.get_feature_names_out(), np.asarray(X.sum(axis=0)).ravel(), strict=True)
    )
    learned = Vocabulary.learn(texts, size=size, **limits)
    # The same frequencies as sklearn's choice; ours alone is fixed among equals.
    vectorizer = reference(analyzer, min_df=low, max_df=high, max_features=size).fit(texts)
    theirs = [frequency[word] for word in vectorizer.get_feature_names_out()]
    assert sorted(frequency[word] for word in learned.words) == sorted(theirs)
    ranked = sorted(frequency, key=lambda word: (-frequency[word], word))
    assert learned.words == tuple(sorted(ranked[:size]))
    assert (learned.kind, learned.data_dependent, learned.undercount) == ("learned", True, 0)


def test_learn_leaves_out_stop_words_and_reads_its_texts_once():
    texts = iter(TEXTS)
    vocabulary = Vocabulary.learn(texts, size=2, analyzer=TextAnalyzer(stop_words=["the"]))
    assert vocabulary.words == ("cat", "dog")
    assert next(texts, None) is None


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"size": 0}, "size=0"),
        ({"size": 2.0}, "size=2.0"),
        ({"size": True}, "size=True"),
        ({"max_table_words": 0}, "max_words=0"),
        ({"size": 6, "max_table_words": 11}, "max_table_words=11 size=6"),
        ({"min_document_frequency": 0}, "min_document_frequency=0"),
        ({"min_document_frequency": 1.5}, "min_document_frequency=1.5"),
        ({"max_document_frequency": True}, "max_document_frequency=True"),
        ({"max_document_frequency": float("nan")}, "max_document_frequency=nan"),
        ({"min_document_frequency": 3, "max_document_frequency": 2}, "room between"),
    ],
)
def test_learn_refuses_limits(limits, told):
    with pytest.raises(InvalidSettingError, match=told):
        Vocabulary.learn(TEXTS, **limits)


def endless(n_documents, seed):
    """Yield texts of 20 frequent words among words that never come back."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnop"))
    for _ in range(n_documents):
        rare = ("".join(rng.choice(letters, 9)) for _ in range(30))
        often = (f"often{letters[i]}" for i in rng.geometric(0.3, 30).clip(1, 16) - 1)
        yield " ".join([*rare, *often])


@pytest.mark.parametrize("max_words", [40, 100, 1000])
def test_frequencies_are_short_by_undercount_at_most(max_words):
    texts = list(endless(300, seed=5))
    analyze = TextAnalyzer().build_analyzer()
    found = WordFrequencies(analyze, max_words)
    for text in texts:
        found.update([text])
        assert len(found.words) <= max_words
        assert found.words.keys() == found.documents.keys()
    assert found.undercount > 0
    truth = Counter(word for text in texts for word in analyze(text))
    documents = Counter(word for text in texts for word in set(analyze(text)))
    for word, count in truth.items():
        assert 0 <= count - found.words[word] <= found.undercount
        assert 0 <= documents[word] - found.documents[word] <= found.undercount


def test_learn_finds_the_frequent_words_of_an_endless_vocabulary():
    exact = Vocabulary.learn(endless(400, seed=6), size=8)
    bounded = Vocabulary.learn(endless(400, seed=6), size=8, max_table_words=500)
    assert exact.undercount == 0 < bounded.undercount
    assert bounded.words == exact.words


def test_memory_bounded_while_learning():
    def peak(n_documents):
        tracemalloc.start()
        Vocabulary.learn(endless(n_documents, seed=7), size=8, max_table_words=500)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(10)
    short = peak(100)
    assert peak(1000) < 1.5 * short


def test_memory_bounded_when_words_are_endless(monkeypatch):
    monkeypatch.setattr(analysis, "MAX_TABLE_CHARACTERS", 4000)
    found = WordFrequencies(TextAnalyzer().build_analyzer())
    rng = np.random.default_rng(8)
    letters = np.array(list("abcdefgh"))
    for _ in range(100):
        found.update(["".join(rng.choice(letters, 300)) + " often"])
        assert sum(map(len, found.words)) <= 4000
    assert found.words["often"] == 100


def test_frequency_limits_break_ties_alphabetically():
    found = WordFrequencies(TextAnalyzer().build_analyzer())
    found.update(["dd cc bb aa", "bb"])
    assert FrequencyLimits(size=2).choose(found) == ["aa", "bb"]


# ---------------------------------------------------------------- selected words

FACTS = {"mechanism": "gaussian-threshold", "delta": 1e-6, "event": {"noise_multiplier": 4.5}}


def test_selected_keeps_order_and_the_record():
    facts = json.loads(json.dumps(FACTS))
    made = Vocabulary.selected(iter(["b", "a"]), selection=facts)
    assert (made.kind, made.words, made.data_dependent) == ("selected", ("b", "a"), True)
    facts["delta"] = 0.5
    facts["event"].clear()
    assert made.selection == FACTS
    assert made.metadata()["selection"] == FACTS
    made.metadata()["selection"].clear()
    with pytest.raises(TypeError):
        made.selection["delta"] = 0.5
    assert made.selection == FACTS


def test_the_record_is_kept_besides_the_identity():
    made = Vocabulary.selected(["cat"], selection=FACTS)
    other = Vocabulary.selected(["cat"], selection={"delta": 0.5})
    assert (made, hash(made), made.fingerprint) == (other, hash(other), other.fingerprint)
    assert made != Vocabulary.given(["cat"])


def test_other_kinds_store_no_record():
    for made in (Vocabulary.given(["cat"]), Vocabulary.learn(["cat"]), Vocabulary.hashed(3)):
        assert made.selection is None
        assert "selection" not in made.metadata()


@pytest.mark.parametrize(
    "selection", [None, {}, [1], 3, "secret", {"delta": float("nan")}, {"words": {"secret"}}]
)
def test_selected_refuses_what_is_no_record(selection):
    with pytest.raises(VocabularyError, match="select") as caught:
        Vocabulary.selected(["cat"], selection=selection)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("words", "told"), [([], "words=0"), ("abc", "one string")])
def test_selected_refuses_unusable_words(words, told):
    with pytest.raises(VocabularyError, match=told):
        Vocabulary.selected(words, selection=FACTS)


def test_a_record_belongs_to_selected_words_only():
    given_words = Vocabulary.given(["cat"])
    with pytest.raises(VocabularyError, match="kind=given selection=some"):
        Vocabulary.from_metadata(given_words.metadata() | {"selection": FACTS}, ["cat"])
    stored = Vocabulary.selected(["cat"], selection=FACTS).metadata()
    del stored["selection"]
    with pytest.raises(VocabularyError, match="kind=selected selection=none"):
        Vocabulary.from_metadata(stored, ["cat"])


# ---------------------------------------------------------------- hashed words


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
    analyzer = TextAnalyzer(stop_words=["the", "cd"])
    encoded = Vocabulary.hashed(bits, analyzer).encode(texts)
    theirs = HashingVectorizer(
        token_pattern=LETTERS,
        stop_words=["the", "cd"],
        n_features=2**bits,
        alternate_sign=False,
        norm=None,
    ).transform(texts)
    np.testing.assert_array_equal(encoded.batch.to_csr().toarray(), theirs.toarray())
    assert (encoded.tokens, encoded.unseen_tokens) == (theirs.sum(), 0)


def test_hashed_memory_is_bounded_and_columns_survive_forgetting(monkeypatch):
    texts = list(endless(20, seed=9))
    texts.append("z" * 100)
    expected = Vocabulary.hashed(12).token_ids(texts)[0]
    monkeypatch.setattr(vocabulary, "_CACHED_WORDS", 7)
    cache = vocabulary._HashedWords(12, frozenset())
    words = [word for text in texts for word in text.split()]
    found = []
    for word in words:
        found.append(cache[word])
        assert len(cache) <= 7
    assert found == expected.tolist()
    assert words[-1] not in cache


def test_hashed_takes_lone_surrogates():
    vocabulary = Vocabulary.hashed(8, TextAnalyzer(token_pattern=r"\S+"))
    assert len(vocabulary.token_ids(["a\ud800"])[0]) == 1


def test_hashed_names_and_kind():
    vocabulary = Vocabulary.hashed(10)
    assert (vocabulary.kind, vocabulary.words, vocabulary.n_features) == ("hashed", None, 1024)
    assert not vocabulary.data_dependent
    names = vocabulary.get_feature_names_out()
    assert names.dtype == object
    assert (names[0], names[1023], len(names)) == ("h0000", "h1023", 1024)


@pytest.mark.parametrize("bits", [0, MAX_HASH_BITS + 1, 4.0, True])
def test_hashed_refuses_bits(bits):
    with pytest.raises(InvalidSettingError, match="bits="):
        Vocabulary.hashed(bits)


# ---------------------------------------------------------------- identity and storage

MADE = [
    Vocabulary.given(["naïve", "cat", "\ud800"], TextAnalyzer(stop_words=["a", "b"])),
    Vocabulary.learn(endless(30, seed=1), size=9, max_table_words=40),
    Vocabulary.selected(["naïve", "cat"], TextAnalyzer(stop_words=["a"]), selection=FACTS),
    Vocabulary.hashed(9, TextAnalyzer(ngram_range=(1, 2), stop_words="english")),
]


@pytest.mark.parametrize("made", MADE)
def test_metadata_round_trip_through_json(made):
    text = json.dumps(made.metadata())
    assert not any(word in text for word in made.words or ())
    back = Vocabulary.from_metadata(json.loads(text), made.words)
    assert back == made
    assert hash(back) == hash(made)
    assert back.fingerprint == made.fingerprint
    assert back.undercount == made.undercount
    assert back.selection == made.selection
    assert back.metadata() == made.metadata()
    assert back.n_features == json.loads(text)["n_features"]


@pytest.mark.parametrize("made", MADE)
def test_pickle_round_trip_after_use(made):
    expected = made.token_ids(TEXTS)[0].tolist()
    back = pickle.loads(pickle.dumps(made))
    assert back == made
    assert back.selection == made.selection
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


def test_fingerprint_golden():
    assert Vocabulary.given(["naïve", "cat"]).fingerprint == GOLDEN_FINGERPRINT


@pytest.mark.parametrize("change", [{"kind": "learned"}, {"fingerprint": "0"}])
def test_from_metadata_refuses_other_content(change):
    made = Vocabulary.given(["cat", "dog"])
    with pytest.raises(VocabularyError, match="made with"):
        Vocabulary.from_metadata(made.metadata() | change, made.words)
    with pytest.raises(VocabularyError, match="made with"):
        Vocabulary.from_metadata(made.metadata(), ["dog", "cat"])


@pytest.mark.parametrize(
    "change", [{"kind": "other"}, {"hash_bits": 3}, {"analyzer": {"x": 1}}, {"analyzer": None}]
)
def test_from_metadata_refuses_wrong_values(change):
    made = Vocabulary.given(["cat", "dog"])
    with pytest.raises(VocabularyError):
        Vocabulary.from_metadata(made.metadata() | change, made.words)


@pytest.mark.parametrize("key", ["kind", "hash_bits", "analyzer", "undercount", "fingerprint"])
def test_from_metadata_refuses_missing_values(key):
    made = Vocabulary.given(["cat", "dog"])
    metadata = made.metadata()
    del metadata[key]
    with pytest.raises(VocabularyError, match=f"KeyError: '{key}'"):
        Vocabulary.from_metadata(metadata, made.words)


def test_vocabulary_is_immutable():
    made = Vocabulary.given(["cat"])
    with pytest.raises(AttributeError, match="cannot assign"):
        made.words = ("dog",)
    made.get_feature_names_out()[0] = "dog"
    assert made.get_feature_names_out().tolist() == ["cat"]


def test_import_and_fixed_encoding_stay_light():
    code = (
        "import sys, streamlda.vocabulary as v\n"
        "v.Vocabulary.given(['cat']).encode(['the cat'])\n"
        "sys.exit(any(name in sys.modules for name in ('numba', 'sklearn', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
