"""What ``streamlda fit --dask`` calls: a model as from one process, or an error and no model."""

import json
from pathlib import Path

import click
import pytest

from streamlda.analysis import TextAnalyzer
from streamlda.cli.dask_fit import check_dask_usage, learn_on_dask
from streamlda.engine_settings import EngineSettings
from streamlda.errors import SourceError
from streamlda.scaleout.cluster import ClusterError
from streamlda.simulate import PlantedLDA
from streamlda.words import WordsToLearn

WORDS = WordsToLearn(analyzer=TextAnalyzer(token_pattern=r"w\d+"), max_document_frequency=1.0)
SETTINGS = EngineSettings(n_components=3, n_features=8000)


@pytest.fixture
def files(tmp_path):
    planted = PlantedLDA(3, 40, seed=2, mean_length=15, topic_concentration=0.1)
    for number in range(3):
        lines = [json.dumps({"body": text}) for text in planted.texts(200)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join([*lines, "bad"]))
    return (str(tmp_path),)


def test_documents_of_files_become_a_model_and_a_summary(cluster, files, capfd):
    model, ingested = learn_on_dask(
        cluster.scheduler_address, files, "auto", "body", "infer", WORDS, SETTINGS, quiet=True
    )
    assert 20 < model.vocabulary.n_features <= 40
    assert model.components.shape == (3, model.vocabulary.n_features)
    assert model.documents_seen == ingested.engine.documents_seen == 600
    assert model.vocabulary == ingested.vocabulary
    assert model.settings["vocabulary_documents"] == ingested.vocabulary_documents == 600
    assert ingested.counts.documents == 600
    assert ingested.counts.rejects == {"not-json": 3}
    assert ingested.seconds > 0
    assert not ingested.stopped
    assert ingested.failure is None
    assert capfd.readouterr().err == ""


def test_progress_names_the_round(cluster, files, capfd, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    learn_on_dask(
        cluster.scheduler_address, files, "jsonl", "body", "none", WORDS, SETTINGS, quiet=False
    )
    assert "round 3 of 3" in capfd.readouterr().err


def test_what_fails_returns_nothing(cluster, files):
    arguments = (files, "auto", "body", "infer", WORDS, SETTINGS, True)
    with pytest.raises(ClusterError, match="a Dask scheduler must answer"):
        learn_on_dask("nonsense://x", *arguments)
    with pytest.raises(SourceError, match="text_field='text'"):
        learn_on_dask(
            cluster.scheduler_address, (csv(files),), "csv", "text", "infer", WORDS, SETTINGS, True
        )


def csv(files):
    path = Path(files[0]) / "x.csv"
    path.write_text("body,other\nsome words,1\n")
    return str(path)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"sources": ("-",)}, "standard input"),
        ({"private": True}, "--dask and --epsilon"),
        ({"max_documents": 5}, "--dask and --max-documents"),
        ({"rejects": "file"}, "--dask and --rejects"),
    ],
)
def test_what_has_no_meaning_on_a_cluster_is_refused(changes, wanted):
    plain = {"sources": ("a",), "private": False, "max_documents": None, "rejects": None}
    check_dask_usage(**plain)
    with pytest.raises(click.UsageError, match=wanted):
        check_dask_usage(**plain | changes)
