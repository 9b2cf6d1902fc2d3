"""Streams whose documents are often alike, in private runs that know documents by content."""

import numpy as np
import pytest

from streamlda.errors import LedgerError
from streamlda.run.fit import fit
from streamlda.settings.load import load_settings

WORDS = ["apple", "bread", "cheese", "dough", "eggs", "flour"]


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "words").write_text("\n".join(WORDS), "ascii")

    def of(name, texts):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), "ascii")
        flags = {
            "source.files": [str(tmp_path / name)],
            "vocabulary.file": str(tmp_path / "words"),
            "topics.count": 2,
            "snapshots.every": 600,
            "privacy.epsilon": 20.0,
            "privacy.delta": 1e-6,
            "privacy.ledger": str(tmp_path / "ledger"),
            "output.file": str(tmp_path / "model"),
        }
        given = {name: v if isinstance(v, list) else str(v) for name, v in flags.items()}
        return load_settings(environment={}, flags=given, command="fit")

    return of


@pytest.mark.parametrize("distinct", [20, 200])
def test_texts_that_come_again_and_again_are_different_documents_of_a_run(settings, distinct):
    rng = np.random.default_rng(distinct)
    few = [" ".join(rng.choice(WORDS[:3] if i % 2 else WORDS[3:], 8)) for i in range(distinct)]
    texts = rng.choice(few, 600).tolist()
    assert len(fit(settings("texts", texts)).model.components) == 2
    # Those of another run are not, in another order and under another name.
    with pytest.raises(LedgerError, match="must not be in two releases"):
        fit(settings("others", texts[::-1]))


def test_a_file_of_texts_that_come_again_may_grow(settings):
    rng = np.random.default_rng(1)
    few = [" ".join(rng.choice(WORDS[:3] if i % 2 else WORDS[3:], 8)) for i in range(40)]
    texts = rng.choice(few, 1200).tolist()
    fit(settings("texts", texts[:600]))
    assert fit(settings("texts", texts)).counts.records == 600
