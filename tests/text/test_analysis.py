"""From text to words: against scikit-learn, cleaned, joined to phrases, by functions of users."""

import json
import pickle
import re
from collections import Counter
from math import log
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from streamlda import load
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import VocabularyError
from streamlda.stream.counts import RecordCounts
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import RecordBatch
from streamlda.text import functions
from streamlda.text.analysis import LEAST_NPMI, TextAnalyzer, build_joiner, learn_phrases
from streamlda.text.cleaning import STEPS, clean_text
from streamlda.text.frequencies import FrequencyLimits, WordFrequencies
from streamlda.text.stop_words import CONTRACTED
from streamlda.text.vocabulary import Vocabulary
from tests.cli.conftest import ALL_WORDS, refused, run
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
    made = Vocabulary.from_frequencies(found, FrequencyLimits(8), TextAnalyzer())
    assert (made.n_features, made.undercount) == (8, found.undercount)
    truth = Counter(word for text in texts for word in analyze(text))
    documents = Counter(word for text in texts for word in set(analyze(text)))
    for word, count in truth.items():
        assert 0 <= count - found.words[word] <= found.undercount
        assert 0 <= documents[word] - read(found).get(word, [0, 0])[1] <= found.undercount


def test_english_stop_words_are_scikit_learns():
    assert TextAnalyzer(stop_words="english", normalize=False).stop_set == ENGLISH_STOP_WORDS
    assert TextAnalyzer(stop_words="english").stop_set == ENGLISH_STOP_WORDS | CONTRACTED


def test_initialisms_are_one_word():
    for text, words in (
        ("The U.S.A. and the U.K. met.", ["u_s_a", "u_k", "met"]),
        ("In the U.S., U.N.-led; U.S.S.R", ["u_s", "u_n", "led", "u_s_s_r"]),
        ("é U.S. J.R.R. Tolkien", ["u_s", "j_r_r", "tolkien"]),
        ("i.e. e.g. a.m. example.com/A.B.c plan A.", ["example", "com", "a_b", "plan"]),
    ):
        analyzer = TextAnalyzer(stop_words="english")
        assert analyzer.build_analyzer()(text) == words
        vocabulary = Vocabulary.given(sorted({*words, "x"}), analyzer)
        assert vocabulary.encode([text]).tokens == len(words)
        assert vocabulary.encode([text]).unseen_tokens == 0


UUENCODED = "M" + "AX<'(MAX" * 7 + "PL)@"
BASE64 = "QmFzZSA2NCBpcyBub3QgdGV4dCBhbmQgbXVzdCBub3QgYmUgc3BsaXQgaW50byB3b3Jkcwaa"


def test_what_is_no_text_is_removed_and_counted():
    assert len(UUENCODED) == 61
    for text, kept, removed in (
        ("see https://a.org/b?c=d&e now, www.x.de too", "see now, too", {"urls": 2}),
        ("mail jo.b+c@mail.example.org or @home", "mail or @home", {"emails": 1}),
        ("<p class='a'>one</p> a<b <br/>&amp;&nbsp;&#252;", "one a<b & ü", {"html": 6}),
        ("<file> of <unsigned int>, a <b and c> d", "<file> of <unsigned int>, a <b and c> d", {}),
        ("<x/>one</y><z a=b>two <h2 >x</h2 ><A>y", "one two x y", {"html": 6}),
        ("a <script>var b = 1 < 2;</script> c <!-- d --> e", "a c e", {"html": 2}),
        (f"begin 644 a\n{UUENCODED}\nend", "begin 644 a end", {"attachments": 1}),
        (f"base64\n{BASE64}\nafter", "base64 after", {"attachments": 1}),
        ("a@b.co@d.ef g", "@d.ef g", {"emails": 1}),
        ("a@b.co+gh@d.ef g a@b.co +gh@d.ef", "+gh@d.ef g", {"emails": 3}),
        ("<b x=1 <i> y> z http://a.b caf&eacute;", "<b x=1 y> z café", {"html": 2, "urls": 1}),
        (f"{'a' * 65}@b.co", f"{'a' * 65}@b.co", {}),
        (f"{'a' * 64}@b.co", "", {"emails": 1}),
        ("AT&T; 3 > 2; a@b", "AT&T; 3 > 2; a@b", {}),
        ("ftp://a httphttps://b :// www. xhttp://c", "http :// www. x", {"urls": 3}),
        ("see://a www.b.://c http://www.d, www", "see://a www", {"urls": 2}),
    ):
        found = Counter()
        assert clean_text(text, STEPS, found).split() == kept.split()
        assert found == removed
        assert clean_text(text, ()) == text


#: One expression for all markup, as slow as the square of a text.
MARKUP = re.compile(
    r"<(script|style)\b.*?</\1\s*>|<(?:a|style)\s*>|</[a-z][a-z0-9]*\s*>|<!--.*?-->"
    r"|<[a-z][a-z0-9]*(?:\s[^<>]*=[^<>]*|\s*/|\s[^<>]*/)>",
    re.IGNORECASE | re.DOTALL,
)
PIECES = st.sampled_from(["<script", "</Script", "<STYLE", "</style ", "<!--", "-->"]) | (
    st.sampled_from(["<a", "<x ", ">", "=", "/", "b", " "])
)


@given(st.lists(PIECES, max_size=20).map("".join))
def test_markup_is_found_as_by_one_expression(text):
    assert clean_text(text, ["html"]) == MARKUP.sub(" ", text)


@pytest.mark.parametrize(
    "piece", ["<script ", "<!-- ", "<style><script </script x", "=", "</a", "://", "a@b"]
)
def test_a_long_text_of_unfinished_pieces_is_read_in_linear_time(piece):
    """Time that grows as the square would be minutes for these 500 kB."""
    text = "<a " + piece * (500_000 // len(piece))
    assert len(clean_text(text, STEPS)) > len(text) / 2


@pytest.mark.parametrize("made", [TextAnalyzer(), TextAnalyzer(ngram_range=(1, 2))])
def test_the_same_is_learned_and_counted(made):
    texts = ["see www.x.de cats", "cats & <b>dogs</b> été", "don@x.org cats"]
    learned = Vocabulary.learn(texts, analyzer=made)
    assert {"see", "cats", "dogs", "été"} <= set(learned.words)
    assert not {"www", "org", "de"} & set(learned.words)
    encoded = learned.encode(texts)
    assert encoded.unseen_tokens == 0
    assert encoded.removed == {"urls": 1, "html": 2, "emails": 1}
    counts = RecordCounts(documents=3)
    counts.add_encoded(encoded, 3)
    counts.add_encoded(encoded, 3)
    assert counts.removed == {"urls": 2, "html": 4, "emails": 2}
    plain = Vocabulary.learn(texts, analyzer=TextAnalyzer(clean=()))
    assert "www" in plain.words
    assert TextAnalyzer(clean=["html", "urls"]).clean == ("urls", "html")


def test_fit_says_what_was_removed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(["apple bread cheese http://a.b", "dates eggs figs a@b.de"] * 30))
    given = ("fit", path, "-k", 2, "-o", tmp_path / "m", *ALL_WORDS)
    assert "removed from texts: emails 30, urls 30" in run(*given).stderr
    assert "removed from" not in run(*given, "vocabulary.clean=none").stderr


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


def test_phrases_are_words_of_a_vocabulary():
    analyzer = TextAnalyzer(stop_words=["of"], phrases=["new  york", "bank of England"], clean=())
    assert analyzer.phrases == ("bank england", "new york")
    found = analyzer.build_analyzer()("New York, york new of york")
    assert found == ["new york", "york", "new york"]
    assert TextAnalyzer.from_metadata(json.loads(json.dumps(analyzer.metadata()))) == analyzer
    assert "phrases" not in TextAnalyzer().metadata()
    counted = Vocabulary.given(["york", "new york"], analyzer).encode(["York new york, new york"])
    assert counted.batch.to_csr().toarray().tolist() == [[1, 2]]


def test_phrases_are_read_as_texts_are():
    for phrase, options, found in (
        ("New York", {}, "new york"),
        ("state of the art", {"stop_words": "english"}, "state art"),
        ("New York", {"lowercase": False}, "New York"),
        ("Cafe\u0301-Bar", {}, "café bar"),
        ("salt-sea", {"function": "tests.text.test_analysis:by_letters"}, "salt sea"),
    ):
        analyzer = TextAnalyzer(phrases=[phrase], **options)
        assert analyzer.phrases == (found,)
        assert found in analyzer.build_analyzer()(phrase)
        again = analyzer.with_settings(clean=())
        assert again.phrases == TextAnalyzer.from_metadata(analyzer.metadata()).phrases == (found,)


def test_a_fit_learns_phrases_or_takes_those_of_a_file(tmp_path):
    """Phrases ``salt lake`` and ``deep sea``, and words that meet at random."""
    others = ["apple", "bread", "cheese", "dates", "eggs", "figs", "grapes", "honey"]
    path, draw, texts = tmp_path / "a.txt", Random(0), []
    for number in range(240):
        around = draw.sample(others, 8)
        pair = ("salt lake", "deep sea")[number % 2]
        texts.append(" ".join([*around[:4], pair, *around[4:]]))
    path.write_text("\n".join(texts))
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


NAME = "tests.text.test_analysis:by_letters"
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
    analyzer = TextAnalyzer(function=lambda text: text.split("|"))
    learned = Vocabulary.learn(["ab|c\nd\r\ne|f"], analyzer=analyzer)
    assert learned.words == ("ab", "c d e", "f")


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
