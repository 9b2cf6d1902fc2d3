"""Engines of every kind with streams that take them through all of their phases."""

import json
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from streamlda.container import to_json
from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.phase import Counters
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import WarmUp
from streamlda.model.evaluation import document_completion, matched_l1_error
from streamlda.simulate import PlantedLDA
from streamlda.storage.checkpoint import capture_state, write_state

PLANTED = {"n_components": 4, "n_features": 150, "warmup_documents": 400, "oversampling": 10}
TEXT = {"n_components": 12, "n_features": 300, "warmup_documents": 300, "oversampling": 10}
#: Of three samples at most: 12 a count by tokens, 5 another one, 24 a document.
SAMPLES_BYTES = 12 * 2 * 2**19 + 5 * 2**20 + 24 * 32_000
ROUNDS = {"documents_per_round": 100, "n_iterations": 4, "n_restarts": 6}


def planted(seed=7):
    return PlantedLDA(4, 150, seed=seed, topic_concentration=0.1)


@cache
def planted_documents():
    rows = planted().documents(12_000).to_csr().tolil()
    rows[::20] = 0
    return DocumentBatch.from_matrix(rows.tocsr())


def text_corpus(seed=2):
    """Documents that mix more topics than an engine takes by default."""
    return PlantedLDA(12, 300, alpha_0=4.0, mean_length=30, topic_concentration=0.03, seed=seed)


@cache
def text_documents():
    return text_corpus().documents(6000)


@cache
def turning_documents():
    """Topics change after 1000 documents."""
    return DocumentBatch.joined([text_documents().rows(0, 1000), text_corpus(3).documents(1500)])


@cache
def early_turning_documents():
    """Topics change within a warm-up of 1000, of which a fit may be made again."""
    return DocumentBatch.joined([text_documents().rows(0, 430), text_corpus(3).documents(1200)])


@cache
def shared_projection():
    learner = Engine(EngineSettings(**PLANTED, refine=False))
    learner.add(planted_documents().rows(0, 3000))
    return learner.new_beginning()


@cache
def shared_start():
    learner = Engine(EngineSettings(**TEXT))
    learner.add(text_documents().rows(0, 3100))
    return learner.new_beginning()


class Kind(NamedTuple):
    """Settings, a stream, and where its phases change or are under way."""

    settings: dict[str, Any]
    documents: Any
    cuts: list[int]
    begins: str = "alone"
    #: Documents behind a cut after which two engines are compared.
    after: int = 1500

    def engine(self, **changes):
        settings = EngineSettings(**{**self.settings, **changes})
        given = {"projection": shared_projection, "start": shared_start}
        shared = {f"shared_{name}": make() for name, make in given.items() if name == self.begins}
        return Engine(settings, **shared)


ONLINE = {**PLANTED, **ROUNDS, "solver": "online-power", "refine": False, "warmup_documents": 600}


KINDS = {
    "sums": Kind({**PLANTED, "refine": False}, planted_documents, [1, 400, 2001]),
    "shared": Kind(PLANTED, planted_documents, [0, 401], "projection"),
    "started": Kind(TEXT, text_documents, [0, 29, 1000], "start", after=700),
    # Too few documents for a refinement: topics stay spectral.
    "follows": Kind({**PLANTED, "warmup_documents": 150}, planted_documents, [150, 2100]),
    "refining": Kind(TEXT, text_documents, [0, 1, 300, 345, 2000, 3330], after=700),
    "turning": Kind(TEXT, turning_documents, [990, 999, 1021, 1085, 2010], after=500),
    "started-turning": Kind(TEXT, turning_documents, [1000, 1200], "start", after=500),
    "turning-early": Kind(
        {**TEXT, "warmup_documents": 1000},
        early_turning_documents,
        [399, 520, 801, 1500],
        after=300,
    ),
    "online-power": Kind(ONLINE, planted_documents, [600, 651, 860, 2750]),
}
#: Of these, sums do not depend on the cut into batches either.
EXACT = [name for name in KINDS if name not in ("sums", "shared", "follows")]


def summing(settings):
    return Engine.of_phase(WarmUp(settings, Counters(), refines=False))


def fed(learner, documents, start=0, stop=None, size=None):
    stop = len(documents) if stop is None else stop
    for first in range(start, stop, size or max(stop - start, 1)):
        learner.add(documents.rows(first, min(first + size, stop) if size else stop))
    return learner


def copied(state):
    """Return a state as a file gives it back, which shares no memory with the engine."""
    arrays, values = state
    return {name: array.copy() for name, array in arrays.items()}, json.loads(to_json(values))


def resumed(learner):
    return Engine.from_state(*copied(learner.state()))


def state_bytes(learner):
    """Bytes of all but the samples, which have a bound of their own."""
    arrays = learner.state()[0]
    samples = [name for name in arrays if name.startswith("measures.")]
    assert sum(arrays.pop(name).nbytes for name in samples) <= SAMPLES_BYTES
    return sum(array.nbytes for array in arrays.values())


def assert_same_state(one, other):
    assert_equal_states(one.state(), other.state())


def assert_equal_states(one, other):
    (mine, my_values), (theirs, their_values) = one, other
    assert json.loads(to_json(my_values)) == json.loads(to_json(their_values))
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


def assert_same_model(one, other):
    for name in ("components", "alpha", "background"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.diagnostics == other.diagnostics
    assert (one.documents_seen, one.tokens_seen) == (other.documents_seen, other.tokens_seen)


def error(truth, model):
    model = model.snapshot() if isinstance(model, Engine) else model
    return matched_l1_error(truth.components, model.components).mean


def perplexity(model, held_out):
    return document_completion(held_out, model.components, model.alpha, model.background).perplexity


def save_state(path, learner):
    write_state(path, *capture_state(learner, {}, None))
