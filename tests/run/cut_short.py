"""Private fits of small files that end behind a release, and what they leave."""

import json

import numpy as np
import pytest

from streamlda.guarantee.noise import SeededNoise
from streamlda.model.topic_model import load
from streamlda.private.release_manager import ReleaseManager
from streamlda.run import fit
from streamlda.settings.load import load_settings
from tests.service.daemon_process import texts

WINDOW = 300
KINDS = {
    "hashed": {"privacy.refinement_rounds": 1},
    "windows": {"snapshots.every": 120},
    "words": {
        "vocabulary.kind": "private",
        "vocabulary.size": 30,
        "vocabulary.documents": 150,
    },
    "users": {
        "privacy.unit": "user",
        "privacy.documents_per_user": 3,
        "source.user_field": "by",
        "snapshots.most": 1,
    },
}


class CutError(BaseException):
    """The end of a process, for the test alone."""


def write(path, documents):
    rows = [{"text": text, "by": f"user {i % 97}"} for i, text in enumerate(documents)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def two_files(folder):
    """Write two files that one stage goes over; return their folder."""
    documents = texts(460)
    write(folder / "data" / "b.jsonl", documents[:200])
    write(folder / "data" / "c.jsonl", documents[200:])
    return folder / "data"


def settings_at(folder, data, kind, **flags):
    folder.mkdir(exist_ok=True)
    given = {
        "source.files": [str(data)],
        "topics.count": 3,
        "topics.oversampling": 5,
        "privacy.epsilon": 12.0,
        "privacy.delta": 1e-3,
        "privacy.ledger": str(folder / "L"),
        "snapshots.every": WINDOW,
        "output.file": str(folder / "m"),
        "privacy.publish_useless": True,
        "checkpoint.folder": str(folder / "kept"),
        **({} if kind == "words" else {"vocabulary.hash_bits": 5}),
        **KINDS[kind],
        **flags,
    }
    return load_settings(None, {}, given, "fit")


def fitted(settings):
    said = []
    fit.fit(settings, warn=said.append)
    return load(settings.output.file), said


def draw_known_noise(patch, cut=None, *, lost=False):
    """Draw the same noise for the same release, and end at one of them; return what was drawn."""
    release, drawn = ReleaseManager.release, []

    def noted(self, name, first, last, event, draw, *about, **more):
        number = self.ledger.generation + 1

        def known(_):
            if lost and number == cut:
                raise CutError
            drawn.append((number, first, last))
            return draw(SeededNoise(number))

        found = release(self, name, first, last, event, known, *about, **more)
        if number == cut:
            raise CutError
        return found

    patch.setattr(ReleaseManager, "release", noted)
    return drawn


def assert_same(model, other):
    for name in ("components", "alpha", "background", "prevalence"):
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name), name)
    for name in ("settings", "diagnostics", "documents_seen", "vocabulary"):
        assert getattr(model, name) == getattr(other, name), name
    differing = {"ledger"}
    assert model.privacy.keys() == other.privacy.keys()
    for name in model.privacy.keys() - differing:
        assert model.privacy[name] == other.privacy[name], name


def undisturbed(data, folder, kind, monkeypatch):
    with monkeypatch.context() as patch:
        drawn = draw_known_noise(patch)
        model, _ = fitted(settings_at(folder, data, kind))
    return model, drawn


def cut_at(settings, monkeypatch, number, *, lost=False):
    with monkeypatch.context() as patch:
        draw_known_noise(patch, number, lost=lost)
        with pytest.raises(CutError):
            fitted(settings)
