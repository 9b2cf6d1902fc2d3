"""Choice of the words of a stream from its beginning.

`VocabularyLearner` takes the most frequent words of the first documents, which is not private.
`PrivateVocabularySelection` lets the first slots vote and publishes the words that enough of them
use, by a release of its own (`streamlda.guarantee.selection`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamlda.checks import at_least, failure, require
from streamlda.errors import InsufficientDataError
from streamlda.guarantee.noise import Noise
from streamlda.guarantee.selection import WordSelection
from streamlda.privacy.events import Event, event_of_selection
from streamlda.stream.growing_words import GrowingWords
from streamlda.text.analysis import TextAnalyzer, learn_phrases
from streamlda.text.frequencies import FrequencyLimits, WordFrequencies
from streamlda.text.functions import Analyze
from streamlda.text.stop_words import FEW_DOCUMENTS, most_documents
from streamlda.text.vocabulary import Vocabulary
from streamlda.texts import check_texts

#: The words are learned from at most this many characters (64 MB of ASCII text).
VOCABULARY_CHARACTERS = 2**26

#: First texts that are looked through for what is no word.
RUNS_TEXTS = 500

#: Name of the release of chosen words.
WORDS = "words"

#: `ReleaseManager.release` of `streamlda.private`: returns the drawn arrays, from name, first slot,
#: slot after the last, price, draw and facts to store.
Draw = Callable[[Noise], dict[str, Any]]
PaidRelease = Callable[[str, int, int, Event, Draw, Mapping[str, Any]], dict[str, Any]]


def describe_selection(selection: WordSelection) -> dict[str, Any]:
    """Return how words are chosen as plain JSON values: public facts, no words."""
    names = ("noise_multiplier", "delta", "max_words_per_document", "neighboring_relation")
    facts = {name: getattr(selection, name) for name in (*names, "l2_sensitivity", "threshold")}
    mechanism = "gaussian-threshold-in-two-rounds"
    return {"mechanism": mechanism, **facts, "stddevs": list(selection.stddevs)}


def check_texts_given(analyzer: object, texts: bool, X: object) -> None:
    """Raise `InvalidSettingError` if an analyzer is given without texts."""
    rule = "an analyzer must come with texts, and without epsilon"
    remedy = "give fit a list of texts, or leave the analyzer out"
    require(texts or analyzer is None, rule, type=type(X).__name__, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyLearner:
    """The most frequent words of the first documents of a stream. Not private.

    A `min_document_frequency` of None is a two-hundredth of the documents, from 1 to 5. `phrases`
    is the most phrases to learn first, from the same texts.
    """

    size: int = 8000
    min_document_frequency: float | None = None
    max_document_frequency: float
    few_documents: int = 0
    documents: int = 20_000
    analyzer: TextAnalyzer = field(default_factory=lambda: TextAnalyzer(stop_words="english"))
    phrases: int = 0
    grow_every: int | None = None

    def __post_init__(self) -> None:
        at_least(1, vocabulary_documents=self.documents)

    @classmethod
    def by(cls, analyzer: str | Analyze | TextAnalyzer | None, n_topics: int) -> VocabularyLearner:
        """Return a learner with an analyzer, or a function without English stop words."""
        if not isinstance(analyzer, TextAnalyzer):
            analyzer = TextAnalyzer(stop_words="english", function=analyzer)
        return cls(
            analyzer=analyzer,
            max_document_frequency=most_documents(n_topics),
            few_documents=FEW_DOCUMENTS,
        )

    def is_enough(self, documents: int, characters: int) -> bool:
        """Return whether so many documents or characters are enough."""
        return documents >= self.documents or characters >= VOCABULARY_CHARACTERS

    def beginning(self, texts: Sequence[str]) -> Sequence[str]:
        """Return the first texts that words are learned from, cut between documents."""
        characters = 0
        for number, text in enumerate(check_texts(texts)):
            if self.is_enough(number, characters):
                return texts[:number]
            characters += len(text)
        return texts

    def learn(self, texts: Sequence[str]) -> Vocabulary:
        """Return the vocabulary of `texts`. Time O(characters); errors as `Vocabulary.learn`."""

        def count(analyzer: TextAnalyzer) -> WordFrequencies:
            found = WordFrequencies(analyzer.build_analyzer())
            found.update(texts)
            return found

        analyzer = self.analyzer
        if self.phrases:
            # A pair that is rare when the table is full is not found.
            pairs = count(analyzer.with_settings(ngram_range=(1, 2))).words
            phrases = (*analyzer.phrases, *learn_phrases(pairs, self.phrases))
            analyzer = analyzer.with_settings(phrases=phrases)
        found = Vocabulary.from_frequencies(count(analyzer), self.limits(len(texts)), analyzer)
        return replace(found, runs=analyzer.count_runs(texts[:RUNS_TEXTS]))

    def limits(self, documents: int) -> FrequencyLimits:
        """Return the limits of words of this number of documents."""
        least = self.min_document_frequency
        if least is None:
            least = min(5, max(1, documents // 200))
        return FrequencyLimits(self.size, least, self.max_document_frequency, self.few_documents)

    def make_growing_words(self) -> GrowingWords | None:
        """Return a new `GrowingWords`; None unless the words grow."""
        if self.grow_every is None:
            return None
        return GrowingWords(self.grow_every, self.size, self.analyzer, self.limits)


class PrivateVocabularySelection:
    """Words that are chosen privately from the first slots of a stream.

    Every record takes a slot, and these documents are used for nothing else. The words are one
    release, of the arrays ``words`` (UTF-8 text, largest noisy weight first, joined by line feeds)
    and ``weights``.

    Privacy: unit, relation, sensitivity and its derivation are those of
    `streamlda.guarantee.selection`. The tokens of a document are a function of that document alone;
    tokens that are not printable text are discarded. All arguments are public. The cut to `size`
    words reads the release only. `public` words have no votes: they come first, whatever is chosen.
    """

    def __init__(
        self,
        selection: WordSelection,
        *,
        size: int,
        slots: int,
        analyzer: TextAnalyzer,
        release: PaidRelease,
        public: Sequence[str] = (),
    ) -> None:
        at_least(1, vocabulary_documents=slots, private_vocabulary=size)
        require(
            len(public) < size,
            "a private vocabulary must have room for words besides the public ones",
            public_words=len(public),
            private_vocabulary=size,
            remedy="raise vocabulary.size, or take these words alone",
        )
        self.slots, self.first_slot = slots, 0
        self._selection, self._size, self._analyzer = selection, size, analyzer
        self._analyze = analyzer.build_analyzer()
        self._release = release
        self._public, self._free = tuple(public), frozenset(public)

    def vote(self, text: str) -> None:
        """Let the document of one slot vote; a blank has no votes."""
        # A line feed would be two words in the release, and half a surrogate pair is no text.
        free = self._free
        self._selection.add(
            token for token in self._analyze(text) if token.isprintable() and token not in free
        )

    @property
    def has_document(self) -> bool:
        """True once a document has voted."""
        return self._selection.has_document

    def choose(self) -> Vocabulary:
        """Pay for the words, release them and return them; once, after the last vote."""
        facts = {**describe_selection(self._selection), "public_words": len(self._public)}
        first, last = self.first_slot, self.first_slot + self.slots
        released = self._release(
            WORDS,
            first,
            last,
            event_of_selection(self._selection),
            self._draw,
            {"selection": facts},
        )
        return self.read_words(released, facts)

    def read_words(self, released: Mapping[str, Any], facts: Mapping[str, Any]) -> Vocabulary:
        """Return the words of a release; `facts` were stored with it as ``selection``."""
        found = released["words"].tobytes().decode("utf-8")
        words = [*self._public, *(found.split("\n") if found else ())]
        if not words:
            raise failure(
                "a private choice must find a word that enough documents use",
                words=0,
                slots=self.slots,
                threshold=f"{facts['threshold']:.4g}",
                remedy="choose from more slots, or bring a public word list",
                error=InsufficientDataError,
            )
        return Vocabulary.selected(words[: self._size], self._analyzer, selection=dict(facts))

    def _draw(self, noise: Noise) -> dict[str, Any]:
        kept = self._selection.release(noise)
        text = "\n".join(found.word for found in kept).encode("utf-8")
        weights = np.array([found.weight for found in kept], dtype=np.float64)
        votes = np.array([found.votes for found in kept], dtype=np.float64)
        return {"words": np.frombuffer(text, np.uint8), "weights": weights, "votes": votes}
