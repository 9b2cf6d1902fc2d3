"""Standard input: known by slots under a name, and by content under any."""

import json

import pytest

from streamlda.privacy.ledger import LedgerReader
from tests.cli.conftest import refused, run
from tests.service.daemon_process import texts

#: Records of a window: the first stage has 18 of them.
WINDOW = 1200
TEXTS = texts(2 * WINDOW)


def lines(documents):
    return "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()


@pytest.fixture
def fit(tmp_path):
    """The arguments of a fit to a ledger that has a release of standard input."""
    words = sorted({word for text in TEXTS for word in text.split() if word.isalpha()})
    (tmp_path / "words").write_text("\n".join(words), "ascii")
    common = (
        *("--format", "jsonl", "-k", 2, "-o", tmp_path / "m", "--epsilon", 12, "--delta", "1e-3"),
        *("--ledger", tmp_path / "L", "--vocabulary", tmp_path / "words"),
        *("--snapshot-every", WINDOW),
    )
    run("fit", "-", *common, given=lines(TEXTS[:WINDOW]))
    return common


def test_standard_input_is_known_by_content_under_any_name(tmp_path, fit):
    before = LedgerReader(tmp_path / "L").generation
    (tmp_path / "a.jsonl").write_bytes(lines(TEXTS[:WINDOW]))
    again = refused("fit", tmp_path / "a.jsonl", *fit)
    assert "must not be in two releases" in again
    run("fit", "-", *fit, "source.stream=other", given=lines(TEXTS[:WINDOW]), code=78)
    assert LedgerReader(tmp_path / "L").generation == before
    # In another order, the first stage says too little.
    run("fit", "-", *fit, "source.stream=third", given=lines(TEXTS[:WINDOW][::-1]), code=78)
    assert LedgerReader(tmp_path / "L").generation <= before + 1
    run("fit", "-", *fit, "source.stream=other", given=lines(TEXTS[WINDOW:]))
    origins = [each["documents"] for each in LedgerReader(tmp_path / "L").report()["snapshots"]]
    assert {origin for ((origin, *_),) in origins} >= {"stdin", "other"}
