"""Event time from a file to snapshots and metrics: a stream whose last 40 % are of one theme."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from streamlda.run.fit import fit
from streamlda.service.status import Status
from streamlda.settings.load import load_settings
from streamlda.storage.snapshots import Snapshots
from streamlda.storage.store import Store
from tests.service.planted import words
from tests.service.test_status import shares

DOCUMENTS, EVERY, THEMES = 1800, 300, 4
START = datetime(2019, 3, 1, tzinfo=UTC)
BAD_TIMES = {7: None, 8: "soon", 9: "2019-02-30"}


def time_of(i):
    """Return the time of a document, one an hour; a few have none."""
    return BAD_TIMES.get(i % 50, (START + timedelta(hours=i)).isoformat())


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    rng = np.random.default_rng(0)
    names = np.array(words(20 * THEMES)).reshape(THEMES, 20)
    path = tmp_path_factory.mktemp("source") / "dated.jsonl"
    with path.open("w", encoding="ascii") as file:
        for i in range(DOCUMENTS):
            theta = rng.dirichlet(np.full(THEMES, 0.1))
            if i >= 0.6 * DOCUMENTS:
                theta = 0.2 * theta + 0.8 * np.eye(THEMES)[2]
            z = rng.choice(THEMES, 30, p=theta)
            text = " ".join(names[z, rng.integers(20, size=30)])
            file.write(json.dumps({"text": text, "at": {"time": time_of(i)}}) + "\n")
    return path


def learned(source, folder, **options):
    """Fit, and return the result and the snapshots."""
    flags = {
        "source.files": [str(source)],
        "source.time_field": "at.time",
        "snapshots.every": EVERY,
        "topics.count": THEMES,
        "topics.warmup_documents": EVERY,
        "topics.oversampling": 5,
        "vocabulary.documents": EVERY,
        "output.file": str(folder / "model"),
        "output.folder": str(folder / "snapshots"),
        "checkpoint.folder": str(folder / "checkpoints"),
    }
    found = fit(load_settings(environment={}, flags=flags, command="fit"), **options)
    return found, Snapshots(folder / "snapshots")


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    return learned(source, tmp_path_factory.mktemp("whole"))


def test_the_topics_of_a_theme_that_comes_rise_in_snapshots_and_metrics(whole):
    _, snapshots = whole
    status, seen = Status(private=False, stream="s"), []
    for summary in snapshots.summaries():
        status.note_snapshot(summary)
        of_interval = {topic: share for (of, topic), share in shares(status).items() if of != "all"}
        assert list(of_interval.values()) == summary.interval["prevalence"]
        seen.append(of_interval)
    theme = max(seen[-1], key=seen[-1].get)
    assert seen[-1][theme] > 0.7
    assert seen[-1][theme] >= 1.5 * seen[0][theme]
    assert Store.open(output=snapshots.folder, private=False).newest_summary().number == len(seen)


def test_a_timeline_counts_the_documents_of_each_day(whole):
    found, snapshots = whole
    timeline = found.model.timeline
    dated = [i for i in range(DOCUMENTS) if i % 50 not in BAD_TIMES]
    days, documents = np.unique([i // 24 for i in dated], return_counts=True)
    first = int(START.timestamp())
    assert timeline.unit == "day"
    assert timeline.starts.tolist() == [first + 86_400 * int(day) for day in days]
    assert timeline.documents.tolist() == documents.tolist()
    assert (timeline.undated, timeline.late) == (found.counts.undated, 0)
    assert snapshots.topics(snapshots.latest())["timeline"]["unit"] == "day"
