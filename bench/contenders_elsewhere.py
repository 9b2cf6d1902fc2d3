"""Contenders that the environment of the benchmarks does not have.

Each is measured where it is found: topica and anchortopics where they are installed, river and
MALLET in folders that environment variables name (`bench/quality.md` says how they are made).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.contenders import (
    Contender,
    Counts,
    Topics,
    cores,
    normalised,
    occurrences,
    sparse_rows,
)

#: Variables with the folders of tensorly's package `tlda`, of river, and of MALLET's jars.
TLDA_FOLDER, RIVER_FOLDER = "STREAMLDA_BENCH_TLDA", "STREAMLDA_BENCH_RIVER"
MALLET_FOLDER = "STREAMLDA_BENCH_MALLET"

#: Sweeps of MALLET between fits of its prior, as its guide has it.
MALLET_PRIOR_SWEEPS = 10


def topica(n_components: int, seed: int, model: str, **options: Any) -> Contender:
    """A model of topica: `LDA`, by one of its samplers, `OnlineLDA` or `TensorLDA`.

    Options that begin with ``fit_`` are those of its `fit`; all else is at its defaults.
    """
    import topica as library  # type: ignore[import-not-found]

    library.enable_experimental()
    of_fit = {name[4:]: value for name, value in options.items() if name.startswith("fit_")}
    of_model = {name: value for name, value in options.items() if not name.startswith("fit_")}

    def load(documents: Counts) -> Any:
        names = np.array([str(i) for i in range(documents.n_features)], dtype=object)
        tokens = [np.repeat(names[w], times).tolist() for w, times in occurrences(documents)]
        return library.Corpus.from_documents(tokens, vocabulary=names.tolist())

    def fit(corpus: Any) -> Topics:
        made = getattr(library, model)(n_components, seed=seed, **of_model)
        made.fit(corpus, **of_fit)
        alpha = np.asarray(getattr(made, "alpha", 1 / n_components), dtype=np.float64)
        return normalised(made.topic_word), np.broadcast_to(alpha, n_components).copy()

    return Contender(load, fit)


def anchortopics(n_components: int, seed: int) -> Contender:
    """Anchor words of rectified word pairs, at the defaults of anchortopics; alpha is even."""
    from anchortopics import OTFR  # type: ignore[import-not-found]

    def fit(X: Any) -> Topics:
        topics = np.maximum(OTFR(n_components, random_state=seed).fit(X).components_, 0.0)
        return normalised(topics), np.full(n_components, 1 / n_components)

    return Contender(lambda documents: sparse_rows(documents, "float64"), fit)


def mallet(n_components: int, seed: int, sweeps: int) -> Contender:
    """Gibbs sampling of MALLET in a process of its own, its prior fitted as its guide advises."""
    command = ["java", "-cp", str(Path(os.environ[MALLET_FOLDER]) / "*")]

    def load(documents: Counts) -> Any:
        folder = tempfile.TemporaryDirectory(prefix="streamlda-bench-")
        texts, held = Path(folder.name) / "texts", Path(folder.name) / "documents"
        with texts.open("w", encoding="ascii") as file:
            for row, (words, times) in enumerate(occurrences(documents)):
                file.write(f"{row}\tx\t{' '.join(map(str, np.repeat(words, times).tolist()))}\n")
        options = ["--input", str(texts), "--output", str(held), "--keep-sequence"]
        options += ["--token-regex", "[0-9]+"]
        subprocess.run(
            [*command, "cc.mallet.classify.tui.Csv2Vectors", *options],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        return folder, documents.n_features

    def fit(held: Any) -> Topics:
        folder, n_features = held
        weights, state = Path(folder.name) / "weights", Path(folder.name) / "prior"
        options = ["--input", str(Path(folder.name) / "documents"), "--random-seed", str(seed + 1)]
        options += ["--num-topics", str(n_components), "--num-iterations", str(sweeps)]
        options += ["--optimize-interval", str(MALLET_PRIOR_SWEEPS), "--num-threads", str(cores())]
        options += ["--topic-word-weights-file", str(weights), "--output-topic-keys", str(state)]
        subprocess.run(
            [*command, "cc.mallet.topics.tui.TopicTrainer", *options],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        topics = np.zeros((n_components, n_features))
        for line in weights.read_text("utf-8").splitlines():
            topic, word, weight = line.split("\t")
            topics[int(topic), int(word)] = float(weight)
        alpha = [float(line.split("\t")[1]) for line in state.read_text("utf-8").splitlines()]
        folder.cleanup()
        return normalised(topics), np.array(alpha)

    return Contender(load, fit)
