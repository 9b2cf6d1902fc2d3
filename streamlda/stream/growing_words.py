"""A vocabulary that grows: words that become frequent enter it, and words that are gone leave.

Words are counted in bounded memory (`streamlda.text.frequencies`). A border comes after every N
documents; at each, the most frequent words that are not in the vocabulary take the columns of its
rarest ones, and then all counts are halved: what counts are the documents of the last border or
two. A word enters where there is room, or in place of one that is at most half as frequent, so that
chance moves none. All other words keep their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.arrays import Arrays
from streamlda.checks import at_least
from streamlda.columns import ColumnChange
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.frequencies import FrequencyLimits, WordFrequencies
from streamlda.text.vocabulary import Vocabulary

#: Words that are counted for each one of the vocabulary, at least how many, and the bytes of one.
WORDS_FOR_ONE, LEAST_WORDS, WORD_BYTES = 4, 2**14, 400

#: Documents that are counted between two borders, evenly spread. Counting takes 60 microseconds of
#: processor time for an abstract, and learning from it 35 with 30 topics.
COUNTED = 5000

#: A word takes the column of one that occurred at most 1/RATIO times as often.
RATIO = 2


class GrowingWords:
    """Counts the words of a stream, and says at borders which enter its vocabulary.

    A border comes after every `every` documents, of which `COUNTED` or more count, or all. `limits`
    are those of a number that count. What it says depends on the documents and their order alone.
    Memory: `WORD_BYTES` for each of `most_counted` words.
    """

    def __init__(
        self,
        every: int,
        size: int,
        analyzer: TextAnalyzer,
        limits: Callable[[int], FrequencyLimits],
    ) -> None:
        at_least(1, vocabulary_grow_every=every)
        self.every, self._size, self._limits = every, size, limits
        self._found = WordFrequencies(analyzer.build_analyzer(), most_counted(size))
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
        """Count the words of documents, of which none is after the border."""
        stride = max(1, self.every // COUNTED)
        self._found.update(texts[(self.missing - self.every) % stride :: stride])
        self.missing -= len(texts)

    def change(self, vocabulary: Vocabulary) -> tuple[Vocabulary, ColumnChange] | None:
        """Return the vocabulary after a border, and what changes; None if nothing does.

        Time O(words log words). The next documents are counted up to the next border.
        """
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

    def took(self, change: ColumnChange) -> None:
        """Note that a change was made."""
        self.entered += len(change.entered)
        self.left += len(change.replaced)

    def state(self) -> Arrays:
        """Return all that is needed to go on, as named arrays."""
        tally = np.array([self.missing, self.entered, self.left], dtype=np.int64)
        return {"border": tally, **self._found.state()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned."""
        self.missing, self.entered, self.left = arrays["border"].tolist()
        self._found.restore(arrays)


def most_counted(size: int) -> int:
    """Return how many words are counted for a vocabulary of this size, at most."""
    return max(WORDS_FOR_ONE * size, LEAST_WORDS)
