"""What ``streamlda fit --dask`` calls: a model as from one process, or an error and no model."""

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest

from streamlda.cli.dask_fit import check_dask_usage, learn_on_dask
from streamlda.engine.settings import EngineSettings
from streamlda.errors import SourceError
from streamlda.model.topic_model import load
from streamlda.privacy.statement import check_statement
from streamlda.scaleout.cluster import ClusterError
from streamlda.simulate import PlantedLDA
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.analysis import TextAnalyzer
from tests.cli.test_cli import run

WORDS = VocabularyLearner(analyzer=TextAnalyzer(token_pattern=r"w\d+"), max_document_frequency=1.0)
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


def test_progress_names_what_is_done(cluster, files, capfd, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    learn_on_dask(
        cluster.scheduler_address, files, "jsonl", "body", "none", WORDS, SETTINGS, quiet=False
    )
    assert "reading: 200 documents" in capfd.readouterr().err
    plain = replace(SETTINGS, refine=False)
    learn_on_dask(
        cluster.scheduler_address, files, "jsonl", "body", "none", WORDS, plain, quiet=False
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
        ({"max_documents": 5}, "--dask and --max-documents"),
        ({"rejects": "file"}, "--dask and --rejects"),
        ({"options": {"user_field": "by"}}, "--dask and --user-field"),
        ({"options": {"keep_snapshots": True}}, "--dask and --keep-snapshots"),
        ({"options": {"snapshot_seconds": 3.0}}, "--dask and --snapshot-seconds"),
        ({"options": {"private_vocabulary": 50}}, "use --vocabulary or --hash-bits"),
        ({"options": {"mode": "prefix"}}, "--mode window"),
    ],
)
def test_what_has_no_meaning_on_a_cluster_is_refused(changes, wanted):
    plain = {"sources": ("a",), "options": {}, "max_documents": None, "rejects": None}

    def check(sources, options, **rest):
        check_dask_usage(sources, options, **rest)

    check(**plain)
    with pytest.raises(click.UsageError, match=wanted):
        check(**plain | changes)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Files of planted documents with rejects among them, and their words."""
    folder = tmp_path_factory.mktemp("records")
    planted = PlantedLDA(3, 40, seed=6, mean_length=20, topic_concentration=0.1)
    for number in range(3):
        lines = [json.dumps({"text": text}) for text in planted.texts(1400)]
        lines[5:5] = ["bad", "", "[]"]
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "words.txt").write_text("\n".join(planted.words))
    return folder


def private_options(records, to):
    """Return the command of a private fit, without the cluster."""
    return (
        *("fit", *(records / f"{number}.jsonl" for number in range(3))),
        *("-k", 3, "-o", to / "model", "--epsilon", 8, "--delta", "1e-6"),
        *("--ledger", to / "ledger", "--snapshot-every", 4000),
        *("--vocabulary", records / "words.txt", "--token-pattern", r"w\d+"),
    )


def test_a_private_fit_pays_what_one_process_pays_and_only_once(cluster, records, tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    dask = ("--dask", cluster.scheduler_address)
    done = run(*private_options(records, there), *dask)
    run(*private_options(records, here))
    mine, theirs = (
        json.loads(run("budget", to / "ledger", "--json").stdout) for to in (there, here)
    )
    for name in ("budget", "spent", "left", "generation"):
        assert mine[name] == theirs[name], name

    def paid(report):
        kept = ("cohort_id", "description", "documents", "event", "mu_squared")
        return [[each[name] for name in kept] for each in report["snapshots"]]

    assert paid(mine) == paid(theirs)
    assert len(paid(mine)) >= 4
    one, other = load(there / "model"), load(here / "model")
    assert one.vocabulary == other.vocabulary
    assert one.documents_seen == other.documents_seen == 4000
    for name in ("statement", "epsilon", "delta", "cohort", "stages", "vocabulary", "noise"):
        assert one.privacy[name] == other.privacy[name], name
    check_statement(one.privacy)
    assert "3 topics over 40 words (public)" in done.stderr
    assert "private: epsilon 8, delta 1e-06 for each document (add-remove)" in done.stderr
    # The same documents again, there or here: nothing is spent, and the models stay.
    for to, options in ((there, ()), (there, dask), (here, dask)):
        before = (to / "model").read_bytes(), (to / "ledger").read_bytes()
        refused = run(*private_options(records, to), *options, code=1)
        assert "documents must not be in two releases" in refused.stderr
        assert ((to / "model").read_bytes(), (to / "ledger").read_bytes()) == before


def test_a_private_fit_that_cannot_be_paid_reads_nothing(records, tmp_path):
    """It is refused by the ledger before the cluster is asked."""
    run(*private_options(records, tmp_path))
    refused = run(*private_options(records, tmp_path), "--dask", "nonsense://x", code=1)
    assert "documents must not be in two releases" in refused.stderr
