"""Pipelines made by `open_pipeline`, and the records that tests of runs give them."""

import numpy as np

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.run.opening import capture, open_pipeline
from streamlda.settings.load import load_settings
from streamlda.storage.merge import save_projection
from streamlda.stream.source import Behind, RecordBatch
from streamlda.text.vocabulary import Vocabulary
from tests.service import planted
from tests.service.daemon_process import settings_of, texts

TEXTS = texts(700)
#: Every seventh record brings no text.
ROWS = [None if i % 7 == 3 else text for i, text in enumerate(TEXTS)]
NAMES = planted.words(200)

SMALL = {"topics.oversampling": 5, "topics.warmup_documents": 100, "snapshots.every": 200}
KINDS = {
    "given": {"vocabulary.kind": "given"},
    # No document has so few topics, so that likelihood refines them.
    "hashed": {
        "vocabulary.hash_bits": 7,
        "topics.alpha_0": 0.1,
        "topics.representative_documents": 2,
    },
    "learned": {"vocabulary.kind": "learned", "vocabulary.size": 100, "vocabulary.documents": 150}
    | {"topics.representative_documents": 1, "topics.representative_texts": True},
    "projected": {},
    "started": {"topics.alpha_0": 10.0},
    "private": {},
}


def run_settings(kind, folder, flags=None):
    """Return the settings of a daemon with a vocabulary of this kind."""
    folder.mkdir(exist_ok=True)
    more = {**(SMALL if kind != "private" else {}), **KINDS[kind], "source.stream": "s"}
    if kind == "given":
        (folder / "words").write_text("\n".join(NAMES))
        more["vocabulary.file"] = str(folder / "words")
    if kind == "projected":
        more |= projected(folder)
    if kind == "started":
        more |= started(folder)
    flags = settings_of(folder, folder / "documents.jsonl", {**more, **(flags or {})})
    return load_settings(environment={}, flags=flags)


def new_pipeline(kind, folder, flags=None):
    """Return the pipeline of a run that begins."""
    return open_pipeline(run_settings(kind, folder, flags)).pipeline


def save(pipeline, store):
    """Save a pipeline at its records, and return whether there was something to save."""
    pipeline.behind = Behind({"at": pipeline.records}, {})
    captured = capture(pipeline, store)
    if captured is not None:
        store.write(captured)
    return captured is not None


def projected(folder):
    """Return the flags of a run through a projection over `NAMES`."""
    settings = EngineSettings(n_components=3, n_features=200, oversampling=5, refine=False)
    W = np.random.default_rng(0).normal(size=(200, 8))
    path = folder / "projection"
    save_projection(path, Engine(settings, shared_projection=W), Vocabulary.given(NAMES))
    return {"topics.projection_file": str(path)}


def started(folder):
    """Return the flags of a run from the topics of another one over `NAMES`, made once."""
    path = folder / "start"
    if not path.exists():
        words = {"topics.alpha_0": 10.0, "topics.seed": 3, "snapshots.every": 400}
        pipeline = new_pipeline("given", folder / "first", words)
        pipeline.add(RecordBatch(ROWS[:400]))
        assert pipeline.release().model is not None
        assert save_projection(path, pipeline.learner, pipeline.vocabulary).refines
    return {"topics.projection_file": str(path)}
