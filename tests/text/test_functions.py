"""Analyzers that users bring."""

import json
import pickle
from collections import Counter

import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import VocabularyError
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import RecordBatch
from streamlda.text import functions
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary

NAME = "tests.text.test_functions:by_letters"
TEXTS = ["ab-CD ef", "cd 12 --", "bad text", "ef ef ab"]


def by_letters(text):
    """Words between spaces and hyphens; no text may hold ``bad``."""
    if "bad" in text:
        raise ValueError(text)
    return text.replace("-", " ").split(" ")


def a_list_of_numbers(text):
    return [1]


def leaves(text):
    raise SystemExit(text)


def half_pairs(text):
    return ["a\ud800"]


def test_words_over_several_lines_are_on_one():
    analyzer = TextAnalyzer(function=lambda text: text.split("|"))
    learned = Vocabulary.learn(["ab|c\nd\r\ne|f"], analyzer=analyzer)
    assert learned.words == ("ab", "c d e", "f")


def test_the_words_of_a_function_are_counted_as_others_are():
    analyzer = TextAnalyzer(function=NAME, stop_words=["ef"], ngram_range=(1, 2))
    assert analyzer.build_analyzer()("ab-CD ef 12") == ["ab", "cd", "ab cd"]
    assert analyzer.build_analyzer()("bad") == []
    assert TextAnalyzer(function=by_letters) == TextAnalyzer(function=NAME)
    assert TextAnalyzer(function=NAME, lowercase=False).build_analyzer()("ab-CD") == ["ab", "CD"]
    learned = Vocabulary.learn(TEXTS, analyzer=TextAnalyzer(function=NAME))
    assert learned.words == ("ab", "cd", "ef")
    encoded = learned.encode(TEXTS)
    assert encoded.unreadable == (2,)
    assert encoded.batch.to_csr().toarray().tolist() == [[1, 1, 1], [0, 1, 0], [0, 0, 0], [1, 0, 2]]


def test_what_a_file_names_is_called_only_when_the_user_has_named_it(monkeypatch):
    monkeypatch.setattr(functions, "_ALLOWED", {})
    metadata = json.loads(json.dumps(TextAnalyzer(function=NAME).metadata()))
    monkeypatch.setattr(functions, "_ALLOWED", {})
    stored = Vocabulary.given(["ab"], TextAnalyzer.from_metadata(metadata))
    for copy in (stored, pickle.loads(pickle.dumps(stored))):
        with pytest.raises(VocabularyError, match=f"vocabulary.analyzer={NAME}"):
            copy.encode(["ab"])
    functions.allow(NAME)
    given = pickle.dumps(stored)
    monkeypatch.setattr(functions, "_ALLOWED", {})
    # A pickle is trusted as all pickles are: workers get analyzers in them.
    assert pickle.loads(given).encode(["ab"]).tokens == 1


def test_a_record_that_the_analyzer_fails_on_is_a_reject():
    vocabulary = Vocabulary.given(["ab", "cd", "ef"], TextAnalyzer(function=NAME))
    engine = Engine(EngineSettings(n_features=3, n_components=2))
    pipeline = Pipeline(vocabulary, lambda *_: engine)
    pipeline.add(RecordBatch(["ab cd ef", "bad", "gh", None], [], True))
    assert pipeline.counts.rejects == Counter(analyzer=1)
    outcomes = {"learned": 1, "short": 1, "rejected": 1, "blank": 1, "skipped": 0}
    assert pipeline.outcomes == outcomes
