"""Standard input and files that grow: known by slots under a name, and by content under any."""

import json
import subprocess
import sys

import pytest

from streamlda.privacy.ledger import LedgerReader
from streamlda.utils.exit_codes import CONFIGURATION
from tests.cli.conftest import refused
from tests.service.daemon_process import texts

#: Records of a window: the first stage has 18 of them.
WINDOW = 1200
TEXTS = texts(2 * WINDOW)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with words, and a ledger with what was released from standard input."""
    folder = tmp_path_factory.mktemp("streams")
    words = sorted({word for text in TEXTS for word in text.split() if word.isalpha()})
    (folder / "words").write_text("\n".join(words), "ascii")
    assert fit(folder, TEXTS[:WINDOW])[0] == 0
    return folder


def options(folder):
    return [
        *("--format", "jsonl", "-k", 2, "-o", folder / "m", "--epsilon", 12, "--delta", "1e-3"),
        *("--ledger", folder / "L", "--vocabulary", folder / "words", "--snapshot-every", WINDOW),
    ]


def fit(folder, documents, stream="stdin"):
    """Fit documents from standard input; return exit code and messages."""
    data = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    command = [
        "-P",
        "-m",
        "streamlda",
        "fit",
        "-",
        *options(folder),
        *("--set", f"source.stream={stream}"),
    ]
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        input=data,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.long
def test_standard_input_is_known_by_content_under_any_name(folder):
    before = LedgerReader(folder / "L").generation
    (folder / "a.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in TEXTS[:WINDOW]), "utf-8"
    )
    code, said = fit(folder, TEXTS[:WINDOW], stream="other")
    assert (code, "must not be in two releases" in said) == (CONFIGURATION, True), said
    again = refused("fit", folder / "a.jsonl", *options(folder))
    assert "must not be in two releases" in again
    assert LedgerReader(folder / "L").generation == before
    # In another order, the first stage says too little.
    assert fit(folder, TEXTS[:WINDOW][::-1], stream="third")[0] == CONFIGURATION
    assert LedgerReader(folder / "L").generation <= before + 1
    assert fit(folder, TEXTS[WINDOW:], stream="other")[0] == 0
    origins = [each["documents"] for each in LedgerReader(folder / "L").report()["snapshots"]]
    assert {origin for ((origin, *_),) in origins} >= {"stdin", "other"}
