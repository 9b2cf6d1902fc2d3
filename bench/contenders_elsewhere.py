"""Contenders that the environment of the benchmarks does not have: topica, tlda, river and MALLET.

Each is measured where it is found: topica where it is installed, the others in folders that
environment variables name (`bench/quality.md` says how they are made).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.contenders import Contender, Counts, Topics, cores, normalised, occurrences

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


def tlda(n_components: int, seed: int) -> Contender:
    """Tensor LDA of tensorly, in memory; it takes dense counts.

    The settings are the best of 24 that were tried on 20 newsgroups; its example's are worse.
    """
    sys.path.append(os.environ[TLDA_FOLDER])
    import tensorly  # type: ignore[import-not-found]
    from tlda import TLDA  # type: ignore[import-not-found]

    tensorly.set_backend("numpy")

    def load(documents: Counts) -> Any:
        dense = np.zeros((len(documents.row_pointers) - 1, documents.n_features))
        rows = np.repeat(np.arange(len(dense)), np.diff(documents.row_pointers))
        dense[rows, documents.word_ids] = documents.counts
        return dense

    def fit(dense: Any) -> Topics:
        model = TLDA(
            n_topic=n_components,
            alpha_0=1.0,
            n_iter_train=2000,
            n_iter_test=10,
            learning_rate=1e-3,
            pca_batch_size=1000,
            theta=5.005,
            random_seed=seed,
        )
        model.fit(dense)
        # Its weights are nearly those of one topic alone.
        return normalised(model.unwhitened_factors.T), np.full(n_components, 1 / n_components)

    return Contender(load, fit)


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
