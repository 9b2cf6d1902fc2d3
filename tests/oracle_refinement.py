"""Slow twins of the refinement kernels: plain loops over lists, one document at a time.

The twins draw the same random numbers as the kernels, so that tests compare single samples. They
compute in single precision as the kernels do, so that choices agree to the last bit.
"""

from itertools import pairwise

import numpy as np
from scipy.special import digamma, gammaln

from streamlda.kernels.refinement import stream_key, unit

F32 = np.float32


def iterate_documents(batch):
    for d in range(batch.n_documents):
        entries = range(batch.row_pointers[d], batch.row_pointers[d + 1])
        yield [(e, int(batch.word_ids[e]), float(batch.counts[e])) for e in entries]


def expect_topics(batch, words, alpha, inner_iterations):
    """Return responsibilities by definition: each entry sums all other entries again."""
    return expect_and_score(batch, words, alpha, inner_iterations)[0]


def expect_and_score(batch, words, alpha, inner_iterations):
    """Return responsibilities, and the log-likelihood of the words of each document."""
    words, alpha = words.astype(np.float64), alpha.astype(np.float64)
    responsibilities, nats = np.zeros((len(batch.counts), len(alpha))), []
    for document in iterate_documents(batch):
        for iteration in range(inner_iterations):
            nats.append(0.0)
            for e, word, count in document:
                seen = [o for o in document if iteration > 0 or o[0] < e]
                parts = (c * responsibilities[o] for o, _, c in seen)
                rest = sum(parts, start=np.zeros(len(alpha)))
                if iteration > 0:
                    rest = rest - min(count, 1.0) * responsibilities[e]
                p = words[word] * (alpha + rest)
                responsibilities[e] = p / p.sum()
                nats[-1] += count * np.log(p.sum() / (alpha + rest).sum())
    return responsibilities, np.array(nats[inner_iterations - 1 :: inner_iterations])


def collapse_topics(batch, alpha, smoothing, relaxation, masses, responsibilities, totals):
    """Run CVB0 with over-relaxation in double precision; sum again for every entry."""
    gamma, totals = responsibilities.astype(np.float64), totals.astype(np.float64)
    for document in iterate_documents(batch):
        for e, word, count in document:
            own = min(count, 1.0) * gamma[e]
            tokens = sum((c * gamma[o] for o, _, c in document), start=np.zeros(len(alpha)))
            p = (totals[word] - own + smoothing) / (masses + len(totals) * smoothing)
            p = p * (alpha + tokens - own)
            found = np.maximum(gamma[e] + relaxation * (p / p.sum() - gamma[e]), 0.0)
            found = found / found.sum()
            totals[word] += count * (found - gamma[e])
            gamma[e] = found
    return gamma, totals


def resample_topics(batch, token_pointers, words, own, alpha, seed, first, sweep, topics):
    """Draw a topic for each token: by the topics of its document, else by the prior."""
    topics = list(topics)
    sums = np.cumsum(words * alpha, axis=1, dtype=F32)
    for d, document in enumerate(iterate_documents(batch)):
        tokens = [
            t for e, _, _ in document for t in range(token_pointers[e], token_pointers[e + 1])
        ]
        present, has = [], dict.fromkeys(range(len(alpha)), 0)

        def enter(k, present=present, has=has):
            if not has[k]:
                present.append(k)
            has[k] += 1

        def leave(k, present=present, has=has):
            has[k] -= 1
            if not has[k]:
                # The last topic of the list moves to the free place.
                present[present.index(k)] = present[-1]
                present.pop()

        for t in tokens:
            if topics[t] >= 0:
                enter(topics[t])
        key = stream_key(seed, first + d, sweep)
        for e, word, _ in document:
            for t in range(token_pointers[e], token_pointers[e + 1]):
                others, running, before = words[word].copy(), sums[word].copy(), topics[t]
                if before >= 0:
                    leave(before)
                    others[before] -= own[before]
                    running[before:] -= own[before] * alpha[before]
                ends, total = [], F32(0)
                for k in present:
                    total = total + others[k] * F32(has[k])
                    ends.append(total)
                u = unit(key, t - tokens[0]) * (total + running[-1])
                if u < total:
                    chosen = next(k for k, end in zip(present, ends, strict=True) if u < end)
                else:
                    later = np.flatnonzero(u - total < running[:-1])
                    chosen = int(later[0]) if len(later) else len(alpha) - 1
                enter(chosen)
                topics[t] = chosen
    return topics


def posterior(tokens, words, alpha):
    """Return the probability of each assignment of topics to the tokens of a document."""
    K = len(alpha)
    found = np.zeros((K,) * len(tokens))
    for z in np.ndindex(*found.shape):
        n, p = np.zeros(K), 1.0
        for word, k in zip(tokens, z, strict=True):
            p *= words[word, k] * (alpha[k] + n[k])
            n[k] += 1
        found[z] = p
    return found / found.sum()


def dirichlet_multinomial(counts, alpha):
    """Return the log-likelihood of alpha for topic counts of documents, up to a constant."""
    lengths = counts.sum(axis=1)
    whole = gammaln(alpha.sum()) - gammaln(alpha.sum() + lengths)
    return float(whole.sum() + (gammaln(alpha + counts) - gammaln(alpha)).sum())


def variational_responsibilities(
    counts, word_ids, row_pointers, words, alpha, max_iterations, tolerance
):
    responsibilities, norms = [], []
    for first, last in pairwise(row_pointers):
        ids, c = word_ids[first:last], counts[first:last]
        gamma = alpha + c.sum() / len(alpha)
        for _ in range(max_iterations + 1):
            phi = np.exp(digamma(gamma)) * words[ids]
            phi /= phi.sum(axis=1, keepdims=True)
            before, gamma = gamma, alpha + c @ phi
            if np.mean(abs(gamma - before)) < tolerance:
                break
        responsibilities.append(phi)
        norms.append(np.linalg.norm(c[:, None] * phi))
    return np.concatenate(responsibilities), np.array(norms)
