"""Runs of words that are one word."""

import json
from math import log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda import load
from streamlda.text.analysis import LEAST_NPMI, TextAnalyzer, build_joiner, learn_phrases
from streamlda.text.vocabulary import Vocabulary
from tests.cli.conftest import ALL_WORDS, refused, run

WORDS = st.lists(st.sampled_from("abc"), max_size=9)


def slow_join(words, phrases):
    """Take the longest phrase at each word, from the first one on."""
    if not words:
        return []
    runs = (words[:n] for n in range(len(words), 0, -1))
    first = next(run for run in runs if len(run) == 1 or " ".join(run) in phrases)
    return [" ".join(first), *slow_join(words[len(first) :], phrases)]


@given(WORDS, st.sets(st.lists(st.sampled_from("abc"), min_size=2, max_size=4).map(" ".join)))
def test_the_longest_phrases_are_joined(words, phrases):
    assert build_joiner(phrases)(words) == slow_join(words, phrases)


@given(st.integers(10, 60), st.integers(0, 60), st.integers(0, 60))
def test_what_is_learned_is_what_npmi_says(pair, first, second):
    counts = {"a": pair + first, "b": pair + second, "c": 300, "a b": pair, "b c": 9}
    tokens = counts["a"] + counts["b"] + counts["c"]
    chance = counts["a"] / tokens * counts["b"] / tokens
    npmi = log(pair / tokens / chance) / -log(pair / tokens)
    assert learn_phrases(counts, 9) == (("a b",) if npmi >= LEAST_NPMI else ())
    assert learn_phrases(counts, 0) == ()


def by_underscores(text):
    return text.split("_")


def test_phrases_are_words_of_a_vocabulary():
    analyzer = TextAnalyzer(stop_words=["of"], phrases=["new  york", "bank of England"], clean=())
    assert analyzer.phrases == ("bank england", "new york")
    assert analyzer.build_analyzer()("New York, york new of york") == [
        "new york",
        "york",
        "new york",
    ]
    assert TextAnalyzer.from_metadata(json.loads(json.dumps(analyzer.metadata()))) == analyzer
    assert "phrases" not in TextAnalyzer().metadata()
    counted = Vocabulary.given(["york", "new york"], analyzer).encode(["York new york, new york"])
    assert counted.batch.to_csr().toarray().tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("given", "options", "found"),
    [
        ("New York", {}, "new york"),
        ("state of the art", {"stop_words": "english"}, "state art"),
        ("New York", {"lowercase": False}, "New York"),
        ("Cafe\u0301-Bar", {}, "café bar"),
        ("salt_sea", {"function": by_underscores}, "salt sea"),
    ],
)
def test_phrases_are_read_as_texts_are(given, options, found):
    analyzer = TextAnalyzer(phrases=[given], **options)
    assert analyzer.phrases == (found,)
    assert found in analyzer.build_analyzer()(given)
    again = analyzer.with_settings(clean=())
    assert again.phrases == TextAnalyzer.from_metadata(analyzer.metadata()).phrases == (found,)


def texts():
    """Phrases ``salt lake`` and ``deep sea``, and words that meet at random."""
    others = ["apple", "bread", "cheese", "dates", "eggs", "figs", "grapes", "honey"]
    draw = Random(0)
    made = []
    for number in range(240):
        around = draw.sample(others, 8)
        pair = ("salt lake", "deep sea")[number % 2]
        made.append(" ".join([*around[:4], pair, *around[4:]]))
    return made


def test_a_fit_learns_phrases_or_takes_those_of_a_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(texts()))
    (tmp_path / "p").write_text("salt lake\n")
    given = ("fit", path, "-k", 2, *ALL_WORDS, "-o", tmp_path / "m")
    for phrases, found in ((2, ("deep sea", "salt lake")), (tmp_path / "p", ("salt lake",))):
        run(*given, f"vocabulary.phrases={phrases}")
        vocabulary = load(tmp_path / "m").vocabulary
        assert vocabulary.analyzer.phrases == found
        assert {word for word in vocabulary.words if " " in word} == set(found)
        shown = run("topics", tmp_path / "m", "--words", 20).stdout
        assert all(f' "{phrase}"' in shown for phrase in found)
        assert " apple " in shown
    shown = run("compare", tmp_path / "m", tmp_path / "m", "--words", 20).stdout
    assert ' "salt lake"' in shown
    said = refused(*given, "vocabulary.phrases=2", "vocabulary.hash_bits=9")
    assert "vocabulary.phrases must be a file of phrases where words grow, or are not" in said
