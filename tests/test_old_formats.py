"""Models of every release are read; its states, checkpoints and ledgers are refused.

``tests/data/formats-0.1.tar.gz`` was written by commit 5d939e5, the release 0.1.0. ``expected.npz``
and ``expected.json`` hold what that release made of its models.
"""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from streamlda.container import read_arrays
from streamlda.errors import LedgerError, ModelFileError, OlderFormatError
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import Ledger, LedgerTerms, read_report
from streamlda.private.release_manager import RELEASE_FORMAT, RELEASE_VERSION
from streamlda.sites.federation import FederationConfig
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.storage.checkpoint import load_state
from streamlda.storage.merge import load_projection, merge_checkpoints
from streamlda.storage.snapshots import Snapshots
from streamlda.storage.store import Store

ARCHIVE = Path(__file__).parent / "data" / "formats-0.1.tar.gz"
#: As far as the arithmetic of two processors may differ.
CLOSE = {"rtol": 1e-7, "atol": 1e-10}
TERMS = LedgerTerms(epsilon=4.0, delta=1e-5)
REFUSALS = {
    "a state": (load_state, "state-refining", OlderFormatError),
    "a checkpoint": (Store.open, "checkpoints-learned", OlderFormatError),
    "a merge": (lambda path: merge_checkpoints([path]), "checkpoints-half0", OlderFormatError),
    "a projection": (load_projection, "shared.map", OlderFormatError),
    "a ledger": (lambda path: Ledger.open(path, TERMS, create=True), "daemon.ledger", LedgerError),
    "a report": (read_report, "private/window.ledger", LedgerError),
    "a release": (
        lambda path: read_arrays(path, RELEASE_FORMAT, RELEASE_VERSION),
        "daemon.ledger.releases/000001-norms.safetensors",
        OlderFormatError,
    ),
    "a config": (FederationConfig.load, "sites/roster", ModelFileError),
    "a share": (Share.load, "sites/north.share", ModelFileError),
    "a round": (Round.load, "sites/round2", ModelFileError),
}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    with tarfile.open(ARCHIVE) as archive:
        # Python before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder / "out"


@pytest.mark.parametrize("name", ["refined", "spectral", "hashed", "online", "ngrams"])
def test_models_of_earlier_versions_are_read(old, name):
    lines = (old / "documents.jsonl").read_text().splitlines()[:3]
    expected = json.loads((old / "expected.json").read_text()) | dict(np.load(old / "expected.npz"))
    model = load(old / f"model-{name}")
    wanted = expected[f"model-{name}.components"]
    order = matched_l1_error(wanted, model.components).permutation
    np.testing.assert_allclose(model.components[order], wanted, **CLOSE)
    found = [json.loads(line)["topics"] for line in expected[f"infer-{name}"].splitlines()]
    # 0.1.0 stopped its updates elsewhere, about as far from the optimum.
    inferred = model.transform([json.loads(line)["text"] for line in lines])
    np.testing.assert_allclose(inferred, found, atol=1e-4)


def test_private_models_and_snapshots_are_read(old):
    assert load(old / "private" / "window.model").privacy["statement"] == "private"
    assert [found.number for found in Snapshots(old / "snapshots-learned").summaries()] == [1, 2, 3]


@pytest.mark.parametrize("name", REFUSALS)
def test_other_files_are_refused_with_what_to_do_and_left_as_they_are(old, name):
    read, path, error = REFUSALS[name]
    files = [each for each in old.rglob("*") if each.is_file() and each.name != "lock"]
    before = {each: each.read_bytes() for each in files}
    with pytest.raises(error, match=r"earlier format .*format_version=1 .*continue with the"):
        read(old / path)
    assert {each: each.read_bytes() for each in files} == before
