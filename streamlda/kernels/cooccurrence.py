"""Kernels that count in how many windows, or documents, words and pairs of words occur."""

from __future__ import annotations

import numpy as np

from streamlda.kernels import I32_1D, I64_1D, OUT_I64_1D, OUT_I64_2D, kernel


@kernel
def count_windows(
    token_ids: I32_1D,
    offsets: I64_1D,
    window: int,
    slot_of_word: I32_1D,
    slot_of_place: I32_1D,
    place_pointers: I64_1D,
    places: I64_1D,
    since: OUT_I64_1D,
    occurrences: OUT_I64_1D,
    pairs: OUT_I64_2D,
) -> int:
    """Count the windows that hold each watched word, and each pair within a topic.

    Equivalent to ``tests.oracle_text.count_windows``: slide a window over every document, one
    token at a time; a word is present from the window it enters to the window before the next
    token of that word leaves (even when the window holds it a second time: that is the rule of
    the implementation that published numbers come from). A shorter document, empty ones
    included, is one window. Instead of visiting every window, a word is accounted for when it
    leaves, with the windows since it came. Time O(tokens + departures * n); no memory.

    ``slot_of_word`` has the slot of each watched word, -1 for the others; an id outside it fills a
    place in the window and is not counted. ``slot_of_place``, of shape (K * n,), has that of the
    word at ``topic * n + rank``; the places of slot s stand in
    ``places[place_pointers[s] : place_pointers[s + 1]]``. ``since`` is scratch, one number a slot,
    all -1 before and after. ``occurrences`` (one a slot) and ``pairs``, of shape (K * n, n), are
    added to; a pair's count is split over its two cells. Returns the number of windows.
    """
    per_topic = pairs.shape[1]
    n_windows = 0
    for d in range(len(offsets) - 1):
        start = offsets[d]
        length = offsets[d + 1] - start
        width = min(length, window)
        windows_here = length - width + 1
        n_windows += windows_here
        # The last `width` steps only let the words of the last window leave.
        for step in range(length + width):
            leaving = step - width
            if leaving >= 0:
                word = token_ids[start + leaving]
                slot = -1
                if 0 <= word < len(slot_of_word):
                    slot = slot_of_word[word]
                if slot >= 0 and since[slot] >= 0:
                    now = min(leaving + 1, windows_here)
                    came = since[slot]
                    occurrences[slot] += now - came
                    since[slot] = -1
                    for p in range(place_pointers[slot], place_pointers[slot + 1]):
                        place = places[p]
                        first = place - place % per_topic
                        for rank in range(per_topic):
                            other = since[slot_of_place[first + rank]]
                            if other >= 0:
                                pairs[place, rank] += now - max(came, other)
            if step < length:
                word = token_ids[start + step]
                slot = -1
                if 0 <= word < len(slot_of_word):
                    slot = slot_of_word[word]
                if slot >= 0 and since[slot] < 0:
                    since[slot] = max(0, step - width + 1)
    return n_windows


@kernel
def count_documents(
    token_ids: I32_1D,
    offsets: I64_1D,
    slot_of_word: I32_1D,
    place_pointers: I64_1D,
    places: I64_1D,
    occurrences: OUT_I64_1D,
    pairs: OUT_I64_2D,
) -> None:
    """Count the documents that hold each watched word, and each pair within a topic.

    Equivalent to `count_windows`, arguments alike, with a window that holds the longest document.
    A word is paired with those of its topics that the document had before it, so that a pair that
    does not occur costs nothing. Time O(tokens + occurrences + pairs); memory O(K * n).
    """
    n_places, per_topic = pairs.shape
    n_topics = n_places // per_topic
    # The last document with a word, and with a word of a topic; the ranks of a topic in there.
    last_of_slot = np.full(len(occurrences), -1)
    last_of_topic = np.full(n_topics, -1)
    found = np.zeros(n_topics, dtype=np.int64)
    ranks = np.empty((n_topics, per_topic), dtype=np.int64)
    topic_of_place = np.arange(n_places) // per_topic
    most = 0
    for d in range(len(offsets) - 1):
        most = max(most, offsets[d + 1] - offsets[d])
    watched = np.empty(most, dtype=np.int64)
    for d in range(len(offsets) - 1):
        n_watched = 0
        # Without a branch, which would be guessed wrong where a word in four is watched.
        for t in range(offsets[d], offsets[d + 1]):
            word = token_ids[t]
            known = 0 <= word < len(slot_of_word)
            slot = slot_of_word[word if known else 0]
            watched[n_watched] = slot
            n_watched += known and slot >= 0
        for i in range(n_watched):
            slot = watched[i]
            if last_of_slot[slot] == d:
                continue
            last_of_slot[slot] = d
            occurrences[slot] += 1
            for p in range(place_pointers[slot], place_pointers[slot + 1]):
                place = places[p]
                topic = topic_of_place[place]
                if last_of_topic[topic] != d:
                    last_of_topic[topic] = d
                    found[topic] = 0
                for j in range(found[topic]):
                    pairs[place, ranks[topic, j]] += 1
                ranks[topic, found[topic]] = place - topic * per_topic
                found[topic] += 1
