"""The loop of a fit: how much it reads, also of a topic without end, and what ends it."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.errors import InsufficientDataError, InvalidSettingError, SourceError
from streamlda.model.topic_model import load
from streamlda.run.fit import fit
from streamlda.run.parts import check_outputs
from streamlda.settings.build import engine_settings
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA
from streamlda.storage.snapshots import Snapshots
from tests.cli.test_fit import fail_behind


@pytest.mark.parametrize("learned", [True, False])
def test_a_stop_learns_from_all_that_was_read_and_a_source_without_topics_raises(
    tmp_path, monkeypatch, learned
):
    monkeypatch.setattr("streamlda.run.fit.POLL_RECORDS", 10)
    (tmp_path / "a.txt").write_text("apple\n" + "apple bread cheese\n" * 59)
    (tmp_path / "words").write_text("apple\nbread\ncheese\n")
    given = {"source.files": [str(tmp_path / "a.txt")], "output.file": str(tmp_path / "m")}
    words = {"max_document_frequency": "1.0"} if learned else {"file": str(tmp_path / "words")}
    given |= {"topics.count": 1, **{f"vocabulary.{key}": value for key, value in words.items()}}
    settings, read = load_settings(None, {}, given, "fit"), []
    # Nothing is read after a stop before the start, and a failure before topics is raised.
    with pytest.raises(InsufficientDataError, match="documents=0"):
        fit(settings, should_stop=lambda: True)
    for records in (0, 1):
        with monkeypatch.context() as patch:
            fail_behind(patch, records)
            with pytest.raises(SourceError, match="answering"):
                fit(settings)
    assert not (tmp_path / "m").exists()
    found = fit(
        settings,
        should_stop=lambda: read[-1:] == [20],
        on_progress=lambda _, counts: read.append(counts.documents),
    )
    assert (found.model.documents_seen, found.stopped, read) == (19, True, [10, 20])


@pytest.mark.parametrize("route", ["fit", "run"])
@pytest.mark.parametrize(
    ("output", "name", "rule"),
    [
        # A file of a folder that is read, a list of stop words, and another name of a file.
        ("output.file", "in/a.txt", "replace what is read"),
        ("output.file", "stop", "replace what is read"),
        ("output.file", "link", "replace what is read"),
        # A run that is refused later would leave what is taken for the rest of another ledger.
        *((f"output.{name}", "L.releases", "the output") for name in ("file", "folder")),
        ("checkpoint.folder", "L.releases", "where a ledger"),
    ],
)
def test_no_output_replaces_what_is_read_or_what_a_new_ledger_will_have(
    tmp_path, route, output, name, rule
):
    (tmp_path / "in").mkdir()
    kept = {tmp_path / "in/a.txt": "apple bread cheese\n" * 9, tmp_path / "stop": "the\n"}
    for path, text in kept.items():
        path.write_text(text)
    (tmp_path / "link").hardlink_to(tmp_path / "in/a.txt")
    paths = {"output.file": "m", "vocabulary.stop_words": "stop", output: name}
    given = {key: str(tmp_path / value) for key, value in paths.items()}
    given |= {"source.kind": "files", "source.files": [str(tmp_path / "in")]}
    if name == "L.releases":
        given |= {"privacy.epsilon": 1.0, "privacy.delta": 1e-6, "snapshots.every": 600}
        given |= {"privacy.ledger": str(tmp_path / "L"), "vocabulary.hash_bits": 5}
    with pytest.raises(InvalidSettingError, match=rule):
        check_outputs(load_settings(None, {}, given, route))
    assert {path: path.read_text() for path in kept} == kept
    assert {path.name for path in tmp_path.iterdir()} == {"in", "stop", "link"}


def cut_short(settings, polls=3):
    left = iter([False] * polls)
    return fit(settings, should_stop=lambda: next(left, True))


def test_a_run_whose_vocabulary_grows_continues_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("streamlda.run.fit.POLL_RECORDS", 170)
    texts = PlantedLDA(4, 60, seed=1, mean_length=20).texts(900)
    later = [text.replace("w0003", "w1003") for text in texts[450:]]
    (tmp_path / "a.txt").write_text("\n".join(texts[:450] + later))
    given = {"source.files": [str(tmp_path / "a.txt")], "topics.count": 3, "snapshots.every": 300}
    given |= {"vocabulary.token_pattern": r"w\d+", "vocabulary.size": 60}
    given |= {"vocabulary.documents": 200, "topics.warmup_documents": 200}
    given |= {"vocabulary.grow_every": 150, "vocabulary.max_document_frequency": 1.0}
    given |= {"topics.representative_documents": 1}

    def model_of(name, run=fit, **more):
        flags = {**given, "output.file": str(tmp_path / name), **more}
        return run(load_settings(None, {}, flags, "fit")).model

    whole = model_of("whole")
    kept = {"checkpoint.folder": str(tmp_path / "kept")}
    model_of("first", cut_short, **kept)
    parts = model_of("second", **kept)
    np.testing.assert_array_equal(parts.components, whole.components)
    assert parts.vocabulary == whole.vocabulary
    assert parts.representative_documents == whole.representative_documents
    assert parts.settings["vocabulary_changes"]["entered"] > 5
    assert sum(word.startswith("w1") for word in whole.vocabulary.words) >= 5
    with pytest.raises(InvalidSettingError, match=r"the checkpoints, got vocabulary\.g"):
        model_of("third", **kept, **{"vocabulary.grow_every": 151})


def test_a_checkpoint_holds_how_text_is_read_and_a_finished_run_gives_its_topics_again(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(PlantedLDA(3, 40, seed=1).texts(600)))
    given = {"source.files": [str(tmp_path / "a.txt")], "topics.count": 3}
    given |= {"vocabulary.token_pattern": r"w\d+", "checkpoint.folder": str(tmp_path / "kept")}

    def model_of(**more):
        flags = {**given, "output.file": str(tmp_path / "model"), **more}
        return fit(load_settings(None, {}, flags, "fit")).model

    np.testing.assert_array_equal(model_of().components, model_of().components)
    for wrong in ({"vocabulary.stop_words": "none"}, {"source.text_field": "body"}):
        with pytest.raises(InvalidSettingError, match=r"of the checkpoints, got (voc|sou)"):
            model_of(**wrong)


@pytest.mark.parametrize("every", [None, 300], ids=["once", "on the way"])
def test_files_give_the_topics_of_a_fit_of_all_documents(tmp_path, monkeypatch, every):
    monkeypatch.setattr("streamlda.engine.settings.REFINING_WARMUP", 400)
    corpus = PlantedLDA(3, 90, seed=1, mean_length=40, topic_concentration=0.05)
    texts = corpus.texts(900)
    (tmp_path / "a.txt").write_text("\n".join(texts))
    given = {"source.files": [str(tmp_path / "a.txt")], "topics.count": 3}
    given |= {"vocabulary.token_pattern": r"w\d+", "checkpoint.folder": str(tmp_path / "kept")}
    given |= {"vocabulary.max_document_frequency": 1.0, "output.file": str(tmp_path / "model")}
    if every is not None:
        given |= {"snapshots.every": every, "output.folder": str(tmp_path / "snapshots")}
    asked = load_settings(None, {}, given, "fit")
    # Cut short on the way, it comes to the same.
    monkeypatch.setattr("streamlda.run.fit.POLL_RECORDS", 170)
    cut_short(asked)
    found = fit(asked)
    batch = found.pipeline.vocabulary.encode(texts).batch
    _, fitted = Engine.fit(engine_settings(asked, batch.n_features, keeps=True), batch)
    np.testing.assert_array_equal(found.model.components, fitted.components)
    assert found.model.documents_seen == 900


def test_a_timeline_counts_the_documents_of_each_day(tmp_path):
    """One an hour; of fifty three have no time that can be read."""
    bad, start = {7: None, 8: "soon", 9: "2019-02-30"}, datetime(2019, 3, 1, tzinfo=UTC)
    times = [bad.get(i % 50, (start + timedelta(hours=i)).isoformat()) for i in range(600)]
    texts = PlantedLDA(3, 40, seed=1, mean_length=20).texts(600)
    rows = ({"text": text, "at": {"time": time}} for text, time in zip(texts, times, strict=True))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"source.files": [str(tmp_path / "a.jsonl")], "source.time_field": "at.time"}
    given |= {"topics.count": 3, "vocabulary.token_pattern": r"w\d+", "snapshots.every": 300}
    given |= {"output.file": str(tmp_path / "m"), "output.folder": str(tmp_path / "snapshots")}
    found = fit(load_settings(None, {}, given, "fit"))
    timeline = found.model.timeline
    days = np.bincount([i // 24 for i in range(600) if i % 50 not in bad])
    assert timeline.unit == "day"
    assert timeline.starts.tolist() == [start.timestamp() + 86_400 * day for day in range(25)]
    assert timeline.documents.tolist() == days.tolist()
    assert (timeline.undated, timeline.late) == (found.counts.undated, 0) == (36, 0)
    snapshots = Snapshots(tmp_path / "snapshots")
    assert snapshots.topics(snapshots.latest())["timeline"]["unit"] == "day"
    assert snapshots.summary(snapshots.latest()).interval["documents"] == 300


@pytest.mark.long
def test_a_topic_is_read_to_its_present_end_and_continues_from_there(topics, topic, tmp_path):
    texts = PlantedLDA(3, 40, seed=0, mean_length=20).texts(1200)
    records = [json.dumps({"text": text}).encode() for text in texts]
    topics.fill(topic, records[:700])
    (tmp_path / "all.jsonl").write_bytes(b"\n".join(records))
    common = {"topics.count": 3, "topics.refine": False, "vocabulary.documents": 300}
    common |= {"vocabulary.token_pattern": r"w\d+", "output.file": str(tmp_path / "model")}
    kept = {"kafka.bootstrap": topics.bootstrap, "kafka.topic": topic}
    kept["checkpoint.folder"] = str(tmp_path / "kept")

    def fitted(**flags):
        return fit(load_settings(None, {}, common | flags, "fit"))

    first = fitted(**kept)
    assert (first.counts.documents, first.stopped) == (700, False)
    topics.send(topic, records[700:])
    both = fitted(**kept)
    assert both.counts.documents == load(tmp_path / "model").documents_seen == 1200
    whole = fitted(**{"source.files": [str(tmp_path / "all.jsonl")]})
    np.testing.assert_array_equal(both.model.components, whole.model.components)
