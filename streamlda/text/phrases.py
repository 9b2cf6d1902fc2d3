"""Phrases: runs of words that count as one, given in a list or learned from counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import log

#: Least NPMI of the words of a phrase that is learned, 1 where they are never apart, and fewest
#: times that it is met.
LEAST_NPMI, LEAST_COUNT = 0.5, 10


def build_joiner(phrases: Iterable[str]) -> Callable[[list[str]], list[str]]:
    """Return the function that joins each phrase to one word, the longest first.

    Time O(words), and a run for each length of the phrases that begin with a word.
    """
    known = frozenset(phrases)
    lengths: dict[str, set[int]] = {}
    for phrase in known:
        words = phrase.split()
        lengths.setdefault(words[0], set()).add(len(words))
    tried = {word: sorted(found, reverse=True) for word, found in lengths.items()}

    def join(words: list[str]) -> list[str]:
        if tried.keys().isdisjoint(words):
            return words
        joined, at = [], 0
        while at < len(words):
            end = at + 1
            for length in tried.get(words[at], ()):
                if " ".join(words[at : at + length]) in known:
                    end = at + length
                    break
            joined.append(" ".join(words[at:end]))
            at = end
        return joined

    return join


def learn_phrases(counts: Mapping[str, int], most: int) -> tuple[str, ...]:
    """Return the most frequent pairs of words that meet far more often than by chance, sorted.

    `counts` are of words and of neighbours, joined by a space. The normalized pointwise mutual
    information of a pair is log(p(a b) / (p(a) p(b))) / -log p(a b), of shares of all tokens.
    """
    tokens = sum(count for word, count in counts.items() if " " not in word)
    found = []
    for pair, count in counts.items():
        first, _, second = pair.partition(" ")
        if count < LEAST_COUNT or not second or not (counts.get(first) and counts.get(second)):
            continue
        chance = counts[first] / tokens * counts[second]
        if log(count / chance) >= LEAST_NPMI * log(tokens / count):
            found.append((-count, pair))
    return tuple(sorted(pair for _, pair in sorted(found)[:most]))
