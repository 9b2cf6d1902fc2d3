"""Choice of the words of a stream: learned from its beginning, growing, or chosen privately.

Words that grow have a border after every N documents. There the most frequent words outside the
vocabulary take the columns of its rarest ones, and then all counts are halved, so that old
documents are forgotten. A word enters where there is room, or in place of one that is at most half
as frequent, so that chance moves none. Where many words enter, the latest texts tell their topics.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from streamlda.errors import InsufficientDataError, failure
from streamlda.guarantee.noise import Noise
from streamlda.guarantee.selection import WordSelection
from streamlda.learner import Learner
from streamlda.privacy.events import event_of_selection
from streamlda.text.analysis import TextAnalyzer, learn_phrases
from streamlda.text.columns import ColumnChange
from streamlda.text.frequencies import FrequencyLimits, WordFrequencies
from streamlda.text.functions import Analyze
from streamlda.text.stop_words import FEW_DOCUMENTS, most_documents
from streamlda.text.vocabulary import Vocabulary
from streamlda.texts import check_texts
from streamlda.utils.arrays import Tree

#: The words are learned from at most this many characters (64 MB of ASCII text).
VOCABULARY_CHARACTERS = 2**26

#: First texts that are looked through for what is no word.
RUNS_TEXTS = 500

#: Words that are counted for each word of a vocabulary that grows, at least.
WORDS_FOR_ONE, LEAST_WORDS = 4, 2**14

#: Documents that are counted between two borders, evenly spread: counting an abstract takes longer
#: than learning from it.
COUNTED = 5000

#: Share of all tokens from which words that enter are divided among topics by texts, and limits of
#: the latest counted texts that are kept for it.
MANY_TOKENS = 0.05
FEWEST_TEXTS, MOST_TEXTS, MOST_CHARACTERS = 500, 5000, 2**23

#: A word takes the column of one that occurred at most 1/RATIO times as often.
RATIO = 2

#: Name of the release of chosen words.
WORDS = "words"


def describe_selection(selection: WordSelection) -> dict[str, Any]:
    """Return how words are chosen as plain JSON values: public facts, no words."""
    names = ("noise_multiplier", "delta", "max_words_per_document", "neighboring_relation")
    facts = {name: getattr(selection, name) for name in (*names, "l2_sensitivity", "threshold")}
    mechanism = "gaussian-threshold-in-two-rounds"
    return {"mechanism": mechanism, **facts, "stddevs": list(selection.stddevs)}


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyLearner:
    """The most frequent words of the first documents of a stream. Not private."""

    size: int = 8000
    #: None is a two-hundredth of the documents, from 1 to 5.
    min_document_frequency: float | None = None
    max_document_frequency: float
    few_documents: int = 0
    documents: int = 20_000
    analyzer: TextAnalyzer = field(default_factory=lambda: TextAnalyzer(stop_words="english"))
    #: Most phrases to learn first, from the same texts.
    phrases: int = 0
    grow_every: int | None = None

    @classmethod
    def by(cls, analyzer: str | Analyze | TextAnalyzer | None, n_topics: int) -> Self:
        """Return a learner with an analyzer, or a function without English stop words."""
        if not isinstance(analyzer, TextAnalyzer):
            analyzer = TextAnalyzer(stop_words="english", function=analyzer)
        return cls(
            analyzer=analyzer,
            max_document_frequency=most_documents(n_topics),
            few_documents=FEW_DOCUMENTS,
        )

    def is_enough(self, documents: int, characters: int) -> bool:
        """Return whether these documents or characters are enough."""
        return documents >= self.documents or characters >= VOCABULARY_CHARACTERS

    def cut_beginning(self, texts: Sequence[str]) -> Sequence[str]:
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
            found = WordFrequencies(analyzer)
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


class GrowingWords:
    """Counts of the words of a stream, from which words enter its vocabulary at borders."""

    def __init__(self, learner: VocabularyLearner) -> None:
        assert learner.grow_every is not None
        every = learner.grow_every
        self._every, self._learner = every, learner
        self._found = WordFrequencies(learner.analyzer, most_counted(learner.size))
        self._texts: deque[str] = deque(maxlen=min(max(every, FEWEST_TEXTS), MOST_TEXTS))
        #: Documents until the next border.
        self.missing = every
        #: Words that have entered, and left.
        self.entered = self.left = 0

    def add(self, texts: Sequence[str]) -> None:
        """Count the words of documents, none of which is after the border."""
        stride = max(1, self._every // COUNTED)
        counted = texts[(self.missing - self._every) % stride :: stride]
        self._found.update(counted)
        self._texts += (text[: MOST_CHARACTERS // MOST_TEXTS] for text in counted)
        self.missing -= len(texts)

    def grow(
        self, vocabulary: Vocabulary, learner: Learner
    ) -> tuple[Vocabulary, ColumnChange | None]:
        """Let words enter and leave at a border, if the learner can; None if nothing changed."""
        grown, change = self.change(vocabulary)
        if change is None:
            return vocabulary, None
        many = change.shares.sum() >= MANY_TOKENS
        documents = grown.encode([*self._texts]).batch if many else None
        if not learner.change_words(change, documents):
            return vocabulary, None
        self.entered += len(change.entered_columns)
        self.left += len(change.replaced)
        return grown, change

    def change(self, vocabulary: Vocabulary) -> tuple[Vocabulary, ColumnChange | None]:
        """Return the vocabulary after a border and its changes; None if there are none."""
        found, words = self._found, list(vocabulary.words or ())
        counts, limits = found.words, self._learner.limits(found.n_documents)
        # A count given for more documents than these leaves no room: then all words stay.
        known, wanted = set(words), set(limits.choose(found) if limits.leave_room(found) else words)
        entering = sorted(wanted - known, key=lambda word: (-counts[word], word))
        leaving = sorted(known - wanted, key=lambda word: (counts[word], word))
        room = max(0, self._learner.size - len(words))
        added, entering = entering[:room], entering[room:]
        columns = {word: column for column, word in enumerate(words)}
        taken = {
            columns[old]: new
            for new, old in zip(entering, leaving, strict=False)
            if counts[new] >= RATIO * max(1, counts[old])
        }
        replaced, before = sorted(taken), len(words)
        entered, tokens = [*(taken[column] for column in replaced), *added], counts.total()
        shares = np.array([counts[word] / tokens for word in entered])
        found.halve()
        self.missing = self._every
        if not entered:
            return vocabulary, None
        for column, word in taken.items():
            words[column] = word
        columns_now = np.array(replaced, dtype=np.int64), before, before + len(added), shares
        return replace(vocabulary, words=(*words, *added)), ColumnChange(*columns_now)

    def state(self) -> Tree:
        """Return all that is needed to continue."""
        texts = np.frombuffer(json.dumps([*self._texts]).encode("ascii"), dtype=np.uint8)
        border = self.missing, self.entered, self.left
        return {"border": border, "texts": texts, "found": self._found.state()}

    def restore(self, own: Tree) -> None:
        """Resume from a `state`."""
        self.missing, self.entered, self.left = own["border"]
        self._found.restore(own["found"])
        self._texts += json.loads(own["texts"].tobytes())


def most_counted(size: int) -> int:
    """Return how many words are counted for a vocabulary of this size, at most."""
    return max(WORDS_FOR_ONE * size, LEAST_WORDS)


class PrivateVocabularySelection:
    """Words that are chosen privately from the first slots of a stream, by a release of their own.

    Privacy: unit, relation, sensitivity and its derivation are those of
    `streamlda.guarantee.selection`. Every record takes a slot, and its document is used for nothing
    else. The tokens of a document are a function of that document alone. All arguments are public.
    The cut to `size` words reads the release only.
    """

    def __init__(
        self,
        selection: WordSelection,
        *,
        size: int,
        slots: int,
        analyzer: TextAnalyzer,
        release: Callable[..., dict[str, Any]],
    ) -> None:
        self.slots, self.first_slot = slots, 0
        self._selection, self._size, self._analyzer = selection, size, analyzer
        self._analyze = analyzer.build_analyzer()
        #: `ReleaseManager.release` of `streamlda.private`: returns the drawn arrays.
        self._release = release

    def vote(self, text: str) -> None:
        """Let the document of one slot vote; a blank has no votes."""
        # A line feed would be two words in the release, and half a surrogate pair is no text.
        self._selection.add(filter(str.isprintable, self._analyze(text)))

    @property
    def has_document(self) -> bool:
        """True once a document has voted."""
        return self._selection.has_document

    def choose(self) -> Vocabulary:
        """Pay for the words, release them and return them; once, after the last vote."""
        facts = describe_selection(self._selection)
        slots = self.first_slot, self.first_slot + self.slots
        event, about = event_of_selection(self._selection), {"selection": facts}
        released = self._release(WORDS, *slots, event, self._draw, about)
        return self.read_words(released, facts)

    def read_words(self, released: Mapping[str, Any], facts: Mapping[str, Any]) -> Vocabulary:
        """Return the words of a release; `facts` were stored with it as ``selection``."""
        found = released["words"].tobytes().decode("utf-8")
        if not found:
            got = {"words": 0, "slots": self.slots, "threshold": f"{facts['threshold']:.4g}"}
            rule = "the choice found no word that enough documents use"
            remedy = "choose from more slots, or bring a public word list"
            raise failure(rule, **got, remedy=remedy, error=InsufficientDataError)
        words = found.split("\n")[: self._size]
        return Vocabulary.selected(words, self._analyzer, selection=dict(facts))

    def _draw(self, noise: Noise) -> dict[str, Any]:
        kept = self._selection.release(noise)
        text = "\n".join(found.word for found in kept).encode("utf-8")
        weights = np.array([found.weight for found in kept], dtype=np.float64)
        votes = np.array([found.votes for found in kept], dtype=np.float64)
        return {"words": np.frombuffer(text, np.uint8), "weights": weights, "votes": votes}
