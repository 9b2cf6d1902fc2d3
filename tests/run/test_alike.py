"""Streams whose documents are often alike, in private runs that know documents by content."""

import numpy as np
import pytest

from streamlda.errors import LedgerError
from streamlda.privacy.ledger import Cohort, Ledger
from streamlda.privacy.ledger.sketches import SKETCH
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


def test_a_ledger_without_its_key_does_not_tell_how_many_documents_or_which_are_alike(
    settings, tmp_path
):
    # Few documents in the first stage, all of them equal: and equal to those of the next.
    fit(settings("texts", ["apple bread cheese dough"] * 600))
    with Ledger.open(tmp_path / "ledger") as ledger:
        rows = ledger._file.rows()
        cohorts = [Cohort.from_json(row.body) for row in rows if row.kind == "intent"]
        sketches = [cohort.fingerprints.sketch for cohort in cohorts]
        opened = [ledger.key.opened(sketch) for sketch in sketches]
    assert {len(sketch) for sketch in sketches} == {3 + SKETCH}
    values = [value for sketch in sketches for value in sketch]
    assert len(set(values)) == len(values) > SKETCH
    # Numbers of 64 bits: the mean of the high ones is 1/2 but with probability 1e-6.
    assert abs(np.mean([value >> 63 for value in values]) - 0.5) < 2.5 / np.sqrt(len(values))
    assert len({sketch.values for sketch in opened}) == len(opened[0].values) == 1
    assert sum(sketch.documents for sketch in opened) == 600
