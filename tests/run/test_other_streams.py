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


def test_standard_input_is_charged_by_document_under_any_name(tmp_path, fit):
    """It cannot be known before it is paid for: what was in a release is charged, never refused."""
    (tmp_path / "a.jsonl").write_bytes(lines(TEXTS[:WINDOW]))
    again = refused("fit", tmp_path / "a.jsonl", *fit)
    assert "must not be in two releases" in again
    # Ten lines of a day before, of 1,200, and all of them in another order.
    overlapping = [*TEXTS[WINDOW : 2 * WINDOW - 10], *TEXTS[20:30]]
    for name, rows in (("other", overlapping), ("third", TEXTS[:WINDOW][::-1])):
        shown = run("fit", "-", *fit, f"source.stream={name}", given=lines(rows))
        assert ("charged for each: repeated=" in shown.stderr) == (name == "third")
        assert "nothing was spent" not in shown.stderr
    report = LedgerReader(tmp_path / "L").report()
    assert {origin for each in report["snapshots"] for origin, *_ in each["documents"]} == {
        *("stdin", "other", "third")
    }
    assert report["documents"]["most"] == 3
