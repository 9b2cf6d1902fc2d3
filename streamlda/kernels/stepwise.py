"""A step of a stepwise refinement: topics of a minibatch's words, and the sums after it.

A minibatch of few documents has few of the words. Topics are made for these alone; only the decay
goes over all sums, and takes the mass of each topic with it.
"""

from __future__ import annotations

from streamlda.kernels import F64_1D, F64_2D, I64_1D, OUT_F32_2D, OUT_F64_2D, parallel_kernel


@parallel_kernel(lambda *inputs: (len(inputs[1]), inputs[-1].size))
def gather_topics(
    first: int,
    last: int,
    totals: F64_2D,
    words: I64_1D,
    scale: F64_1D,
    smoothing: float,
    flatness: float,
    background: F64_1D,
    topics: OUT_F32_2D,
) -> None:
    """Turn the sums of some words into their rows of the topics.

    Equivalent to ``topics[:] = (totals[words] + smoothing) * scale + flatness *
    background[words, None]``, with ``scale = (1 - flatness) / sum(totals + smoothing, axis=0)``.
    Time O(len(words) * K), no memory.
    """
    for u in range(first, last):
        w = words[u]
        flat = flatness * background[w]
        for k in range(totals.shape[1]):
            topics[u, k] = (totals[w, k] + smoothing) * scale[k] + flat


@parallel_kernel(lambda kept, words, sums, totals, masses: (len(masses), totals.size))
def take_step(
    first: int,
    last: int,
    kept: float,
    words: I64_1D,
    sums: F64_2D,
    totals: OUT_F64_2D,
    masses: OUT_F64_2D,
) -> None:
    """Let the sums by word and topic decay, add those of some words, and sum up each topic.

    Equivalent to ``totals *= kept; totals[words] += sums`` and then ``masses[t] =
    totals[V * t // T : V * (t + 1) // T].sum(axis=0)``, for words that rise. Time O(V * K),
    parallel over the T runs of words; each sum is taken in the order of the words.
    """
    n_runs, n_words = masses.shape[0], totals.shape[0]
    for run in range(first, last):
        begin, end = n_words * run // n_runs, n_words * (run + 1) // n_runs
        # The first of the words from `begin` on, by bisection.
        u, above = 0, len(words)
        while u < above:
            middle = (u + above) // 2
            if words[middle] < begin:
                u = middle + 1
            else:
                above = middle
        for k in range(totals.shape[1]):
            masses[run, k] = 0.0
        for w in range(begin, end):
            for k in range(totals.shape[1]):
                totals[w, k] *= kept
            if u < len(words) and words[u] == w:
                for k in range(totals.shape[1]):
                    totals[w, k] += sums[u, k]
                u += 1
            for k in range(totals.shape[1]):
                masses[run, k] += totals[w, k]
