"""A vocabulary that grows: words that become frequent enter it, and words that are gone leave.

A border comes after every N documents; at each, the most frequent words outside the vocabulary take
the columns of its rarest ones, and then all counts are halved, so that old documents are forgotten.
A word enters where there is room, or in place of one that is at most half as frequent, so that
chance moves none. Where many words enter, the latest texts tell their topics
(`streamlda.engine.entering`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least
from streamlda.learner import Learner
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.columns import ColumnChange
from streamlda.text.frequencies import FrequencyLimits, WordFrequencies
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays

#: Words that are counted for each word of the vocabulary, at least, and the bytes of one.
WORDS_FOR_ONE, LEAST_WORDS, WORD_BYTES = 4, 2**14, 400

#: Documents that are counted between two borders, evenly spread: counting an abstract takes longer
#: than learning from it.
COUNTED = 5000

#: Share of all tokens from which words that enter are divided among topics by texts, and limits of
#: the latest counted texts that are kept for it.
MANY_TOKENS = 0.05
FEWEST_TEXTS, MOST_TEXTS, MOST_CHARACTERS = 500, 5000, 2**23

#: A word takes the column of one that occurred at most 1/RATIO times as often.
RATIO = 2


class GrowingWords:
    """Counts of the words of a stream, from which words enter its vocabulary at borders.

    `limits` returns the limits for a number of counted documents. Changes depend on the documents
    and their order alone.
    """

    def __init__(
        self,
        every: int,
        size: int,
        analyzer: TextAnalyzer,
        limits: Callable[[int], FrequencyLimits],
    ) -> None:
        at_least(1, vocabulary_grow_every=every)
        self.every, self._size, self._analyzer, self._limits = every, size, analyzer, limits
        self._found = WordFrequencies(analyzer.build_analyzer(), most_counted(size))
        self._texts: deque[str] = deque(maxlen=min(max(every, FEWEST_TEXTS), MOST_TEXTS))
        self._characters = 0
        #: Documents until the next border.
        self.missing = every
        #: Words that have entered, and left.
        self.entered = self.left = 0

    def borders(self) -> Iterator[int]:
        """Yield the numbers of documents from here until each border."""
        border = self.missing
        while True:
            yield border
            border += self.every

    def add(self, texts: Sequence[str]) -> None:
        """Count the words of documents, none of which is after the border."""
        stride = max(1, self.every // COUNTED)
        counted = texts[(self.missing - self.every) % stride :: stride]
        self._found.update(counted)
        self._keep(counted)
        self.missing -= len(texts)

    def _keep(self, texts: Sequence[str]) -> None:
        """Keep the latest texts, the same ones however they were cut."""
        kept = self._texts
        for text in texts:
            if len(kept) == kept.maxlen:
                self._characters -= len(kept.popleft())
            kept.append(text)
            self._characters += len(text)
            while self._characters > MOST_CHARACTERS:
                self._characters -= len(kept.popleft())

    def grow(
        self, vocabulary: Vocabulary, learner: Learner
    ) -> tuple[Vocabulary, ColumnChange] | None:
        """Let words enter and leave at a border, if the learner can; None if nothing changed."""
        found = self.change(vocabulary)
        if found is None:
            return None
        grown, change = found
        many = change.shares.sum() >= MANY_TOKENS
        documents = grown.encode([*self._texts]).batch if many else None
        if not learner.change_words(change, documents):
            return None
        self.entered += len(change.entered)
        self.left += len(change.replaced)
        return found

    def change(self, vocabulary: Vocabulary) -> tuple[Vocabulary, ColumnChange] | None:
        """Return the vocabulary after a border and its changes; None if there are none."""
        found, words = self._found, list(vocabulary.words or ())
        counts, every_token = found.words, found.words.total()
        known, limits = set(words), self._limits(found.n_documents)
        # A count given for more documents than these leaves no room: then all words stay.
        wanted = limits.choose(found) if limits.leave_room(found) else words
        entering = sorted(set(wanted) - known, key=lambda word: (-counts[word], word))
        columns = {word: column for column, word in enumerate(words)}
        leaving = sorted(known - set(wanted), key=lambda word: (counts[word], word))
        room = max(0, self._size - len(words))
        added, entering = entering[:room], entering[room:]
        taken = {
            columns[old]: new
            for new, old in zip(entering, leaving, strict=False)
            if counts[new] >= RATIO * max(1, counts[old])
        }
        replaced = sorted(taken)
        entered = [*(taken[column] for column in replaced), *added]
        shares = np.array([counts[word] / every_token for word in entered])
        found.halve()
        self.missing = self.every
        if not entered:
            return None
        for column, word in taken.items():
            words[column] = word
        change = ColumnChange(
            np.array(replaced, dtype=np.int64), len(words), len(words) + len(added), shares
        )
        return replace(vocabulary, words=(*words, *added)), change

    def state(self) -> Arrays:
        """Return the state as named arrays."""
        tally = np.array([self.missing, self.entered, self.left], dtype=np.int64)
        texts = json.dumps([*self._texts]).encode("ascii")
        kept = {"texts": np.frombuffer(texts, dtype=np.uint8)}
        return {"border": tally, **kept, **self._found.state()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Resume from a `state`."""
        self.missing, self.entered, self.left = arrays["border"].tolist()
        self._found.restore(arrays)
        self._keep(json.loads(arrays["texts"].tobytes()))


def most_counted(size: int) -> int:
    """Return how many words are counted for a vocabulary of this size, at most."""
    return max(WORDS_FOR_ONE * size, LEAST_WORDS)
