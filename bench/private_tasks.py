"""Tasks of the private scenarios in the child process; see `bench.tasks`.

Noise is always `SecureNoise`, so that no two runs are equal; the corpus of a scenario is fixed.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.corpus import read_counts
from bench.data import coherence, planted, zipf_topic_documents

if TYPE_CHECKING:
    from bench.measure import Meter
    from streamlda.documents import DocumentBatch
    from streamlda.private.public_start import PublicTopics

Json = dict[str, Any]

#: Documents handed over at a time.
BATCH_DOCUMENTS = 2000

#: Seed of the one corpus that all runs of a scenario share.
CORPUS_SEED = 0

#: Added to the probability of every word in a model's background.
LEAST_PROBABILITY = 1e-12

#: Most words of a document in one round of votes, as was the default of 0.1.
ONE_ROUND_WORDS = 100

#: Steps of the grid in a standard deviation, about as many as the mechanism takes.
NOISE_STEPS = 2.0**33


class Learned(NamedTuple):
    """Topics of a run, fewer than requested where noise hid the others, or none at all."""

    components: Any
    alpha: Any
    background: Any


def learn(
    batches: Iterable[DocumentBatch],
    n_features: int,
    parameters: Json,
    seed: int,
    public: PublicTopics | None = None,
) -> Any:
    """Return a function that does one pass: a private window, or without epsilon the engine."""
    from streamlda.engine.engine import Engine
    from streamlda.engine.settings import EngineSettings
    from streamlda.learner import feed
    from streamlda.private.learner import PrivateLearner
    from streamlda.private.release_manager import ReleaseManager
    from streamlda.private.settings import PrivateSettings

    common = {"n_components": parameters["n_components"], "n_features": n_features, "seed": seed}

    def not_private() -> Learned:
        engine = Engine(EngineSettings(**common, warmup_documents=20_000, refine=False))
        for batch in batches:
            engine.add(batch)
        model = engine.snapshot()
        return Learned(model.components, model.alpha, model.background)

    def private() -> Learned:
        settings = PrivateSettings(
            **common,
            epsilon=parameters["epsilon"],
            delta=parameters["delta"],
            documents_per_snapshot=parameters["documents"],
            clipping=parameters["clipping"],
            neighboring_relation=parameters["neighboring_relation"],
            public_model=None if public is None else public.digest,
        )
        learner = PrivateLearner(settings, ReleaseManager(), vocabulary="public", public=public)
        for batch in batches:
            feed(learner, batch)
        snapshot = learner.last
        if snapshot is None:  # The window is over, and the noise hid all.
            flat = np.full(n_features, 1 / n_features)
            return Learned(np.empty((0, n_features)), np.empty(0), flat)
        topics = snapshot.topics
        return Learned(topics.components, topics.alpha, topics.background)

    return not_private if parameters["epsilon"] is None else private


def in_batches(documents: DocumentBatch) -> Iterator[DocumentBatch]:
    for start in range(0, len(documents), BATCH_DOCUMENTS):
        yield documents.rows(start, start + BATCH_DOCUMENTS)


def private_planted(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Planted documents drawn as they are needed; drawing is part of the time."""
    corpus = planted(parameters, CORPUS_SEED)
    n, size = parameters["documents"], BATCH_DOCUMENTS
    batches = (corpus.documents(min(size, n - start)) for start in range(0, n, size))
    run = learn(batches, parameters["n_features"], parameters, seed)
    meter.started()
    with meter.timed():
        found = run()
    return {
        "documents": n,
        "topics": len(found.components),
        **planted_error(corpus.components, found),
    }


def planted_error(truth: Any, found: Learned) -> Json:
    """Compare with planted topics; the word frequencies stand in for a topic that is not there.

    That is what a reader who is not given a topic knows at best.
    """
    from streamlda.model.evaluation import matched_l1_error

    missing = len(truth) - len(found.components)
    filled = np.vstack([found.components, np.tile(found.background, (missing, 1))])
    error = matched_l1_error(truth, filled)
    return {"l1_error": error.mean, "l1_worst_topic": float(error.per_topic.max())}


def private_corpus(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Counts of a corpus; the model is smoothed with its own, noisy background."""
    train, held_out = (read_counts(inputs["counts"], part) for part in ("train", "held_out"))
    train = train.rows(0, min(len(train), parameters.get("documents", len(train))))
    run = learn(in_batches(train), train.n_features, {**parameters, "documents": len(train)}, seed)
    meter.started()
    with meter.timed():
        found = run()
    return judged(train, held_out, found)


def judged(train: DocumentBatch, held_out: DocumentBatch, found: Learned) -> Json:
    measured: Json = {"documents": len(train), "topics": len(found.components)}
    return {**measured, **completion(train, held_out, found), **coherence(train, found.components)}


def read_texts(path: Path) -> list[str]:
    """Return the texts of JSON Lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def completion(train: DocumentBatch, held_out: DocumentBatch, found: Learned) -> Json:
    """Return perplexities on the same tokens: of the model, and of the true word frequencies.

    The latter are those of the whole corpus, so that they miss no word; the held-out documents,
    few of many, are in them to the baseline's advantage.

    Raises
    ------
    ValueError
        If a held-out token could not be scored by both.
    """
    from streamlda.model.evaluation import document_completion

    components, alpha = found.components, found.alpha
    if not len(components):
        components, alpha = found.background[None], np.ones(1)
    parts = (
        np.bincount(part.word_ids, part.counts, minlength=part.n_features)
        for part in (train, held_out)
    )
    counted = np.sum(list(parts), axis=0)
    # Without noise a word that only held-out documents have would have no probability at all.
    known = found.background + LEAST_PROBABILITY
    own = document_completion(held_out, components, alpha, known / known.sum())
    true = document_completion(held_out, components, alpha, counted / counted.sum())
    if own.held_out_tokens != true.held_out_tokens:
        raise ValueError(
            "every held-out token must be scored by both, got "
            f"scored={own.held_out_tokens}, {true.held_out_tokens}; the backgrounds must be "
            "positive for every word that occurs"
        )
    return {
        "perplexity": own.perplexity,
        "unigram_perplexity": true.unigram_perplexity,
        "held_out_documents": own.documents,
    }


def private_pass(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """One pass over counts in memory, topics included."""
    if inputs:
        train = read_counts(inputs["counts"], "train")
    else:
        train = zipf_topic_documents(
            parameters["documents"], parameters["n_features"], np.random.default_rng(CORPUS_SEED)
        )
    parameters = {**parameters, "documents": len(train)}
    run = learn(list(in_batches(train)), train.n_features, parameters, seed)
    meter.started()
    with meter.timed():
        found = run()
    return {"documents": len(train), "topics": len(found.components)}


def private_command(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """From text to model file by `streamlda fit`, words hashed so that they are public."""
    from streamlda.model.topic_model import load

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if inputs:
            texts, field = Path(inputs["corpus"]), inputs["text_field"]
        else:
            texts, field = folder / "texts.jsonl.gz", "text"
            write_texts(texts, parameters)
        with gzip.open(texts, "rb") as lines:
            slots = sum(1 for line in lines if line.strip())
        command = [sys.executable, "-m", "streamlda", "fit", str(texts), "--quiet"]
        command += ["--text-field", field, "--seed", str(seed), "--set", "vocabulary.hash_bits=13"]
        command += ["--topics", str(parameters["n_components"]), "--output", str(folder / "model")]
        if parameters["epsilon"] is not None:
            command += ["--epsilon", str(parameters["epsilon"])]
            command += ["--delta", str(parameters["delta"]), "--snapshot-every", str(slots)]
            command += ["--ledger", str(folder / "ledger")]
            command += ["--set", "privacy.publish_useless=true"]
        meter.started()
        with meter.timed():
            subprocess.run(command, check=True)
        model = load(folder / "model")
        return {
            "documents": slots,
            "topics": model.n_components,
            "private": model.privacy["statement"] == "private",
        }


def write_texts(path: Path, parameters: Json) -> None:
    """Write the documents of `private_pass` as text; words are made of letters."""
    documents = zipf_topic_documents(
        parameters["documents"], parameters["n_features"], np.random.default_rng(CORPUS_SEED)
    )
    letters = str.maketrans("0123456789", "abcdefghij")
    words = [f"w{j:06d}".translate(letters) for j in range(documents.n_features)]
    bounds = documents.row_pointers.tolist()
    with gzip.open(path, "wt", compresslevel=1) as file:
        for start, stop in pairwise(bounds):
            ids = np.repeat(
                documents.word_ids[start:stop], documents.counts[start:stop].astype(int)
            )
            file.write(json.dumps({"text": " ".join(words[j] for j in ids.tolist())}) + "\n")


def private_noise(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Draw secure noise, and compute the table of noise multipliers."""
    from streamlda.guarantee.noise import SecureNoise
    from streamlda.papers.wang_anandkumar.compositions import wang_anandkumar_table

    noise = SecureNoise()
    noise.discrete_gaussian(NOISE_STEPS, 1000)
    meter.started()
    with meter.timed():
        drawn = noise.discrete_gaussian(NOISE_STEPS, parameters["values"])
    rows = wang_anandkumar_table()
    return {
        "values": parameters["values"],
        "stddev_over_sigma": float(drawn.std()) / NOISE_STEPS,
        "wang_anandkumar": [
            [row.delta, row.releases, row.formula_noise_multiplier, row.needed_noise_multiplier]
            for row in rows
        ],
    }


def private_words(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Choose words from the first documents, beside one round of uniform weights."""
    from streamlda.guarantee.noise import SecureNoise
    from streamlda.private.budget import words_and_delta
    from streamlda.stream.source import open_source
    from streamlda.text.analysis import TextAnalyzer

    split = TextAnalyzer(stop_words="english").build_analyzer()
    source = open_source("files", inputs["corpus"], text_field=inputs["text_field"])
    documents: list[list[str]] = []
    while len(documents) < parameters["documents"]:
        batch = source.poll(5000)
        documents += [split(text) for text in batch.documents]
        if batch.exhausted:
            break
    source.close()
    documents = documents[: parameters["documents"]]
    tokens = Counter(token for document in documents for token in document)
    meter.started()
    measured: Json = {"documents": len(documents)}
    with meter.timed():
        for epsilon in parameters["epsilons"]:
            selection = words_and_delta(epsilon, parameters["delta"], "add-remove").selection
            for document in documents:
                selection.add(document)
            uniform = one_round(documents, selection.noise_multiplier, selection.delta)
            two = {found.word for found in selection.release(SecureNoise())}
            for how, words in (("words", two), ("one round", uniform)):
                share = sum(tokens[word] for word in words) / tokens.total()
                measured[f"{how}, epsilon {epsilon:g}"] = len(words)
                measured[f"share of {how}, epsilon {epsilon:g}"] = share
    return measured


def one_round(documents: Iterable[list[str]], multiplier: float, delta: float) -> set[str]:
    """Return the words of Gopi et al. 2020: weights 1 / sqrt(t), 100 words a document at most.

    For comparison only: its noise is no release, and its words of a long document are the first.
    """
    from scipy.stats import norm

    votes: dict[str, float] = {}
    for document in documents:
        kept = list(dict.fromkeys(document))[:ONE_ROUND_WORDS]
        for word in kept:
            votes[word] = votes.get(word, 0.0) + len(kept) ** -0.5
    sizes = np.arange(1, ONE_ROUND_WORDS + 1)
    quantiles = norm.isf(-np.expm1(np.log1p(-delta) / sizes))
    threshold = float(np.max(sizes**-0.5 + multiplier * quantiles))
    noise = multiplier * np.random.default_rng().standard_normal(len(votes))
    pairs = zip(votes, noise + list(votes.values()), strict=True)
    return {word for word, noisy in pairs if noisy > threshold}


PRIVATE_TASKS = (
    private_planted,
    private_corpus,
    private_pass,
    private_command,
    private_noise,
    private_words,
)
