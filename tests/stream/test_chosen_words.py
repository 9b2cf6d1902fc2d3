"""Words that the first records choose privately."""

import pytest

from streamlda.errors import InsufficientDataError
from streamlda.guarantee.noise import SecureNoise
from streamlda.guarantee.selection import WordSelection
from streamlda.learner import Learner
from streamlda.privacy.events import event_of_selection
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import PrivateVocabularySelection, describe_selection
from streamlda.text.analysis import TextAnalyzer
from tests.stream.test_pipeline import Noting


class Lengths(Noting):
    due = Learner.due


def turned(words, records):
    """Return a pipeline that has taken records, and made what fell due on the way."""
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
    # Only text is a word.
    found = turned(words, [*["apple"] * 2, *["bread"] * 3, "bread \ud800\ud801", None])
    assert found.vocabulary.words == ("bread",)
    words, paid, _ = to_select(slots=2)
    with pytest.raises(InsufficientDataError, match="words=0 slots=2"):
        turned(words, ["apple", None, None])
    assert len(paid) == 1
