"""Made-up results, a planted corpus, and tasks that run in this process, for the tests of bench."""

import gzip
import json

from bench.tasks import run_here
from streamlda.simulate import PlantedLDA
from tests.cli.conftest import LETTERS

MACHINE = {
    **{"cpu": "a cpu", "cores": 2, "memory_bytes": 2**34, "system": "Linux 6.1"},
    "thread_settings": {},
}
VERSIONS = {
    **{"streamlda": "0.1.0", "python": "3.11.7", "numpy": "2.1", "numba": "0.61"},
    **{"gensim": "4.4", "scikit-learn": "1.9", "tomotopy": "0.14", "vowpalwabbit": "9.11"},
    "commit": "abc",
}

#: Parameters of a small planted corpus.
TINY = {
    **{"n_features": 30, "n_components": 3, "alpha_0": 1.0, "topic_concentration": 0.2},
    **{"mean_length": 40, "documents": 1500},
}


def result_of(name, cases, measured):
    """Return a result of these cases; `measured` is one answer for all, or makes it of a case."""
    answer = measured if callable(measured) else lambda case: dict(measured)
    return {
        **{"scenario": name, "quick": False, "date": "2026-01-02", "corpus": None},
        **{"machine": MACHINE, "versions": VERSIONS},
        "cases": {c.label: {"task": c.task, "parameters": c.parameters} for c in cases},
        "runs": [{"case": c.label, "repeat": 0, "measured": answer(c)} for c in cases],
    }


def measured_by(task, parameters, inputs=None):
    return run_here(task, parameters, inputs or {}, 0)


def planted_corpus(path, n_documents):
    texts = PlantedLDA(12, 400, seed=0).texts(n_documents)
    return write_lines(path, ({"text": text.translate(LETTERS)} for text in texts))


def write_lines(path, rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(lines.encode()))
    return path
