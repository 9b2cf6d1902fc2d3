"""``fit`` and ``run`` over the same files: equal counts, and the same topics to the last bit."""

import signal
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from streamlda.exit_codes import OK
from streamlda.model.topic_model import load
from streamlda.run.fit import fit
from streamlda.service.running import run
from streamlda.settings.load import load_settings
from streamlda.storage.checkpoint import Checkpoints
from tests.scaleout.test_equal import MAX_RECORD, K, corpora, write


def daemon(settings):
    """Run a daemon to the end of its files, in this process; return what it counted."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert run(settings) == OK
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    with Checkpoints.open(settings.checkpoint.folder) as store:
        return store.newest().about


@examples(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    made=corpora(),
    flags=st.sampled_from(
        [
            {"topics.refine": False, "vocabulary.documents": 90},
            {"topics.warmup_documents": 150, "vocabulary.hash_bits": 7},
            {"vocabulary.min_document_frequency": 2, "snapshots.every": 300},
        ]
    ),
)
def test_a_daemon_learns_what_a_fit_learns(made, flags):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        write(folder / "in", made)
        given = {
            "source.files": [str(folder / "in")],
            "source.kind": "files",
            "source.max_record": MAX_RECORD,
            "vocabulary.token_pattern": r"w\d+",
            "topics.count": K,
            "topics.oversampling": 10,
            # As a fit has it: one snapshot, at the end.
            "snapshots.every": 10**9,
            **flags,
        }
        here = {**given, "output.file": str(folder / "here")}
        there = {
            **given,
            **{"output.file": str(folder / "there"), "output.folder": str(folder / "snapshots")},
            **{"checkpoint.folder": str(folder / "kept"), "http.port": 0},
        }
        found = fit(load_settings(None, {}, here, "fit"))
        about = daemon(load_settings(None, {}, there, "run"))
        counts = asdict(found.counts)
        assert about["places"] == counts.pop("records")
        assert about["counts"] == counts
        one, other = load(folder / "here"), load(folder / "there")
        for name in ("components", "alpha", "background"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
        assert one.vocabulary == other.vocabulary
        assert one.settings == other.settings
