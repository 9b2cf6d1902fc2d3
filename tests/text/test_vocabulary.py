"""Which word is which column: given, learned, selected and hashed; identity and storage."""

import json
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError, VocabularyError
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import MAX_HASH_BITS, Vocabulary
from tests.texts import TEXTS, endless, reference, small_text

GOLDEN_FINGERPRINT = "14e263fd418de70d877578df0eb6feff67785e09b86f30b6b231a34873ba5c2e"

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


def test_import_stays_light():
    code = (
        "import sys, streamlda.text.vocabulary as v\n"
        "v.Vocabulary.learn(['the cat']), v.Vocabulary.hashed(9)\n"
        "sys.exit(any(name in sys.modules for name in ('numba', 'sklearn', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
