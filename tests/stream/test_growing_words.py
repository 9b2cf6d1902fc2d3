"""Words that enter and leave, and those that the first records choose privately."""

import re
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InsufficientDataError
from streamlda.guarantee.noise import SecureNoise
from streamlda.guarantee.selection import WordSelection
from streamlda.learner import Learner
from streamlda.model.evaluation import document_completion
from streamlda.model.representatives import CandidateDocuments
from streamlda.privacy.events import event_of_selection
from streamlda.simulate import PlantedLDA
from streamlda.stream import vocabulary_choice
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import (
    RATIO,
    GrowingWords,
    PrivateVocabularySelection,
    VocabularyLearner,
    describe_selection,
    most_counted,
)
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from tests.stream.test_pipeline import Noting
from tests.texts import endless

ANALYZER = TextAnalyzer(token_pattern=r"[wv]\d+")
SIZE, WARMUP, EVERY, K = 240, 200, 250, 8


def halves(n):
    """Return texts of six themes, then of six others of the words v00080 and on: none was before.

    A fifth of the words, w00000 to w00079, are those of both.
    """
    found = []
    for half, seed in enumerate((3, 4)):
        planted = PlantedLDA(6, 280, topic_concentration=0.05, mean_length=40, seed=seed)
        texts = planted.texts(n)
        found.append([re.sub(r"w(?!000[0-7])", "wv"[half], text) for text in texts])
    return found


def engine(vocabulary, first_slot=0, **changes):
    given = {"n_components": K, "warmup_documents": WARMUP, "seed": 1} | changes
    return Engine(EngineSettings(n_features=vocabulary.n_features, **given))


def learner_of(grow_every=EVERY, size=SIZE, **more):
    given = {"documents": WARMUP, "max_document_frequency": 1.0, "analyzer": ANALYZER} | more
    return VocabularyLearner(size=size, grow_every=grow_every, **given)


def stream(words, texts, make=engine):
    made = Pipeline(words, make)
    made.add(RecordBatch(texts))
    return made


@pytest.mark.long
@pytest.mark.statistical
def test_a_second_half_about_things_never_seen_before():
    """Judged: its words stand in topics, and it is predicted as if they had been known.

    Of such streams perplexity was 0.90 to 0.97 times that of a stream with all words known.
    """
    first, second = halves(7400)
    first, old = first[:3500], first[3500:]
    second = [text for pair in zip(old, second, strict=False) for text in pair]
    second, held_out = second[:3500], second[3500:3900]
    every = sorted({word for text in [*first, *second] for word in text.split()})
    known = stream(Vocabulary.given(every, ANALYZER), first + second).release().model
    growing = stream(learner_of(), first)
    at_first = growing.vocabulary
    growing.add(RecordBatch(second))
    model = growing.release().model
    assert at_first.n_features <= model.n_features == SIZE
    assert model.settings["vocabulary_changes"]["entered"] > 90
    new = [sum(word.startswith("v") for word, _ in topic) for topic in model.top_words(10)]
    assert sum(n >= 5 for n in new) >= 2
    scores = []
    common = sorted(set(model.vocabulary.words) & set(every))
    encoded = Vocabulary.given(common, ANALYZER).encode(held_out)
    assert encoded.unseen_tokens < 0.05 * encoded.tokens
    for one in (model, known):
        columns = [one.vocabulary.words.index(word) for word in common]
        topics, background = one.components[:, columns], one.background[columns]
        topics = topics / topics.sum(axis=1, keepdims=True)
        found = document_completion(encoded.batch, topics, one.alpha, background / background.sum())
        scores.append(found.perplexity)
    assert scores[0] < 1.03 * scores[1]


@pytest.fixture(scope="module")
def turning():
    """Return texts of one theme, and from the 1000th on of another, with their times."""
    first, second = halves(900)
    return first + second, [n * 9000.5 for n in range(1800)]


def test_models_are_of_the_words_of_now(turning):
    texts, times = turning
    shown = CandidateDocuments(2, K, 0, texts=True)
    made = Pipeline(learner_of(), engine, candidates=shown, time_bins="day")
    for start in range(0, 1800, 300):
        made.add(RecordBatch(texts[start : start + 300], times=times[start : start + 300]))
        model = made.release().model
        assert model.vocabulary == made.vocabulary
        assert model.components.shape == (K, made.vocabulary.n_features)
        assert model.prevalence.sum() == pytest.approx(1)
        assert model.timeline.tokens.sum() > 0
        for documents in model.representative_documents:
            assert {text["text"] for text in documents} <= set(texts)
    assert made.vocabulary.n_features == SIZE
    assert sum(word.startswith("v") for word in made.vocabulary.words) > SIZE / 3


@pytest.mark.parametrize("changes", [{"refine": False}, {"warmup_documents": 10_000}])
def test_an_engine_without_refined_topics_keeps_its_words(turning, changes):
    texts = turning[0] if "refine" in changes else turning[0][:900]
    made = stream(learner_of(), texts, lambda *given: engine(*given, **changes))
    assert made.vocabulary == Vocabulary.learn(
        texts[:WARMUP], size=SIZE, min_document_frequency=1, analyzer=ANALYZER
    )
    assert made.facts()["vocabulary_changes"] == {"entered": 0, "left": 0}


LETTERS = TextAnalyzer(token_pattern=r"[a-z]", clean=())


def expected(words, texts, counts):
    """Change a list of words as the rules say, by counts of all words; the slow twin."""
    for text in texts:
        for word in text.split():
            counts[word][0] += 1
        for word in set(text.split()):
            counts[word][1] += 1
    frequent = [word for word in counts if counts[word][1] >= 2]
    wanted = sorted(frequent, key=lambda word: (-counts[word][0], word))[:6]
    entering = [word for word in wanted if word not in words]
    while entering and len(words) < 6:
        words.append(entering.pop(0))
    gone = sorted(set(words) - set(wanted), key=lambda word: (counts[word][0], word))
    gone = [word for word in gone if word not in wanted]
    for new, old in zip(entering, gone, strict=False):
        if counts[new][0] >= RATIO * max(1, counts[old][0]):
            words[words.index(old)] = new
    for word in counts:
        counts[word] = [n // 2 for n in counts[word]]


@given(st.lists(st.text("aaabcdefghij ", max_size=12), min_size=30, max_size=60))
def test_words_enter_and_leave_as_the_rules_say(texts):
    texts = [" ".join(text.replace(" ", "")) for text in texts]
    words, counts = ["x", "a", "b", "c"], {c: [0, 0] for c in "xabcdefghij"}
    vocabulary = Vocabulary.given(words, LETTERS)
    asked, counted = [], [0]

    class Asked(VocabularyLearner):
        def limits(self, documents):
            asked.append(documents)
            return VocabularyLearner.limits(self, documents)

    learner = learner_of(10, 6, min_document_frequency=2, analyzer=LETTERS)
    growing = GrowingWords(Asked(**{f.name: getattr(learner, f.name) for f in fields(learner)}))
    for start in range(0, len(texts) - 9, 10):
        growing.add(texts[start : start + 10])
        assert growing.missing == 0
        before = vocabulary
        vocabulary, change = growing.change(vocabulary)
        if change is not None:
            kept = np.ones(before.n_features, dtype=bool)
            kept[change.replaced] = False
            assert np.array(before.words)[kept].tolist() == [
                vocabulary.words[column] for column in np.flatnonzero(kept)
            ]
            assert (change.before, change.after) == (before.n_features, vocabulary.n_features)
            assert len(change.shares) == len(change.entered_columns)
            assert {vocabulary.words[column] for column in change.entered_columns} == set(
                vocabulary.words
            ) - set(before.words)
        expected(words, texts[start : start + 10], counts)
        counted.append(counted[-1] // 2 + 10)
        assert asked == counted[1:]
        assert list(vocabulary.words) == words


def test_what_is_counted_is_bounded_and_words_that_were_rare_are_found(monkeypatch):
    monkeypatch.setattr(vocabulary_choice, "LEAST_WORDS", 64)
    learner = learner_of(100, 16, min_document_frequency=1, analyzer=TextAnalyzer())
    growing = GrowingWords(learner)
    vocabulary, sizes = Vocabulary.given(["apple"]), []
    texts = list(endless(1200, seed=2))
    for start in range(0, 1200, 100):
        growing.add([text + " zebra zebra" * (start > 600) for text in texts[start : start + 100]])
        sizes.append(len(growing.state()["found"]["counts"]))
        vocabulary, _ = growing.change(vocabulary)
    assert max(sizes) <= most_counted(16) == 64
    assert "zebra" in vocabulary.words
    assert sum(word.startswith("often") for word in vocabulary.words) >= 8
    assert vocabulary.n_features <= 16


class Lengths(Noting):
    due = Learner.due


def turned(words, records):
    pipeline = Pipeline(words, Lengths)
    while records:
        if pipeline.due == 0:
            pipeline.release()
        n = min(pipeline.due, len(records))
        pipeline.add(RecordBatch(records[:n]))
        records = records[n:]
    return pipeline


def to_select(slots, size=9):
    paid = []

    def release(name, first, last, event, draw, about):
        paid.append((name, first, last, event, about))
        return draw(SecureNoise())

    # So little noise that the threshold is between one and two votes of documents of one word.
    selection = WordSelection(0.001, 1e-6, max_words_per_document=4)
    words = PrivateVocabularySelection(
        selection, size=size, slots=slots, analyzer=TextAnalyzer(), release=release
    )
    return words, paid, selection


def test_documents_that_choose_the_words_are_used_for_nothing_else():
    words, paid, selection = to_select(slots=4)
    records = ["apple", None, "apple", "fig", "apple fig " * 3, None, "lime fig apple"]
    found = turned(words, records)
    # Three documents and a blank vote: fig has one vote and stays out.
    assert found.vocabulary.words == ("apple",)
    assert found.vocabulary.kind == "selected"
    assert found.vocabulary.selection == describe_selection(selection)
    assert found.learner.lengths == [3, 0, 1]
    assert (found.learner.first_slot, found.counts.records) == (4, 7)
    assert [each[:4] for each in paid] == [("words", 0, 4, event_of_selection(selection))]


def test_sizes_cut_the_words_and_too_few_votes_are_paid_for():
    words, _, _ = to_select(slots=6, size=1)
    found = turned(words, [*["apple"] * 2, *["bread"] * 3, "bread \ud800\ud801", None])
    assert found.vocabulary.words == ("bread",)
    words, paid, _ = to_select(slots=2)
    with pytest.raises(InsufficientDataError, match="words=0 slots=2"):
        turned(words, ["apple", None, None])
    assert len(paid) == 1
