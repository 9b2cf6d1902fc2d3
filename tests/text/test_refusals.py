"""Settings, words and files that are refused: rule, value and class, never the words of a text."""

import pytest

from streamlda.errors import InvalidSettingError, VocabularyError
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import MAX_HASH_BITS, Vocabulary
from tests.text.test_vocabulary import FACTS
from tests.texts import TEXTS

WORDS, SETTINGS = VocabularyError, InvalidSettingError
HERE = "tests.text.test_analysis:"


def analyzer(**settings):
    return lambda path: TextAnalyzer(**settings)


def stored(**settings):
    return lambda path: TextAnalyzer.from_metadata(settings)


def given_words(words):
    return lambda path: Vocabulary.given(words)


def of_bytes(content):
    def read(path):
        (path / "words.txt").write_bytes(content)
        return Vocabulary.from_file(path / "words.txt")

    return read


def of_metadata(words=("cat", "dog"), without=None, **change):
    stored = Vocabulary.given(["cat", "dog"]).metadata() | change
    stored.pop(without, None)
    return lambda path: Vocabulary.from_metadata(stored, words)


def learn(**limits):
    return lambda path: Vocabulary.learn(TEXTS, **limits)


def selected(words, selection):
    return lambda path: Vocabulary.selected(words, selection=selection)


def test_a_value_is_refused_and_never_quoted(tmp_path):
    for make, error, rule in (
        (given_words([]), WORDS, "words=0"),
        (given_words(["a", "b", "a"]), WORDS, "position=2 first_position=0"),
        (given_words(["a", ""]), WORDS, "position=1"),
        (given_words(["a", 3]), WORDS, "type='int' position=1"),
        (given_words("abc"), WORDS, "one string"),
        (of_bytes(b"cat\n\ndog\ncat\n"), WORDS, r"words.txt' line=4 first_line=1"),
        (of_bytes(b"cat\ncaf\xe9\n"), WORDS, r"UTF-8.*words.txt' line=2"),
        (of_bytes(b"\n \n"), WORDS, r"has no word, got path=.*words.txt"),
        (lambda path: Vocabulary.from_file(path / "none"), WORDS, "none.*reason='No such file"),
        (learn(size=0), SETTINGS, "size=0"),
        (learn(min_document_frequency=0), SETTINGS, "min_document_frequency=0"),
        (learn(max_document_frequency=True), SETTINGS, "max_document_frequency=True"),
        (learn(max_document_frequency=float("nan")), SETTINGS, "max_document_frequency=nan"),
        (learn(min_document_frequency=3, max_document_frequency=2), SETTINGS, "room between.*low"),
        *[
            (selected(["cat"], record), WORDS, "select")
            for record in ({}, "secret", {"x": float("nan")}, {"words": {"secret"}})
        ],
        (selected("abc", FACTS), WORDS, "one string"),
        (lambda path: Vocabulary.hashed(0), SETTINGS, "bits=0"),
        (lambda path: Vocabulary.hashed(MAX_HASH_BITS + 1), SETTINGS, "bits="),
        (of_metadata(fingerprint="0"), WORDS, "made with"),
        (of_metadata(words=("dog", "cat")), WORDS, "made with"),
        (of_metadata(kind="other"), WORDS, "kind='other'"),
        (of_metadata(hash_bits=3), WORDS, "hash_bits=3"),
        (of_metadata(analyzer={"x": 1}), WORDS, "damaged"),
        (of_metadata(without="undercount"), WORDS, "KeyError: 'undercount'"),
        (stored(lowercase=1), SETTINGS, "lowercase=1"),
        (stored(token_pattern="("), SETTINGS, "token_pattern="),
        (stored(token_pattern="(a)(b)"), SETTINGS, "token_pattern="),
        (stored(stop_words="./french"), SETTINGS, "stop_words='./french'"),
        (stored(stop_words=[1]), SETTINGS, "stop_words"),
        (stored(ngram_range=(2, 1)), SETTINGS, r"ngram_range=\(2, 1\)"),
        (analyzer(function="no.such.module:split"), SETTINGS, "ModuleNotFoundError"),
        (analyzer(function=f"{HERE}missing"), SETTINGS, "AttributeError"),
        (analyzer(function="unheard-of"), SETTINGS, "not named module:function"),
        (analyzer(function=f"{HERE}TEXTS"), SETTINGS, "list of words"),
        (analyzer(function=f"{HERE}a_list_of_numbers"), SETTINGS, "returned list"),
        (analyzer(function=f"{HERE}leaves"), SETTINGS, "raised SystemExit"),
        (analyzer(function=f"{HERE}half_pairs"), SETTINGS, "half a surrogate pair"),
        (analyzer(phrases="new york", stop_words="english"), SETTINGS, "one string"),
        (analyzer(phrases=[1], stop_words="english"), SETTINGS, "phrase=1 words=0"),
        (analyzer(phrases=["state of"], stop_words="english"), SETTINGS, "'state of' words=1"),
        (analyzer(function="builtins:str.split", token_pattern="x"), SETTINGS, "both"),
        (analyzer(lowercase="azeri"), SETTINGS, "lowercase must be true, false, or turkish"),
        (analyzer(stop_words="english,elvish"), SETTINGS, "language='elvish' known=.*german"),
        (analyzer(clean=["links"]), SETTINGS, "clean"),
    ):
        with pytest.raises(error, match=rule) as caught:
            make(tmp_path)
        assert "secret" not in str(caught.value)
