"""A fit on two worker processes: the topics of one process, whoever is killed on the way."""

import gzip
import json
import os
import signal
import time
from collections import Counter
from dataclasses import replace

import dask
import dask.bag
import numpy as np
import pytest
from streamlda.stream.ingest import Ingestion

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.errors import (
    InsufficientDataError,
    InvalidDocumentsError,
    InvalidSettingError,
    SourceError,
    VocabularyError,
)
from streamlda.model.evaluation import document_completion
from streamlda.scaleout import (
    beginning,
    connect,
    fit_files,
    fit_partitions,
    learn,
    of_files,
    of_partitions,
)
from streamlda.scaleout.shards import Rows, Shard
from streamlda.simulate import PlantedLDA
from streamlda.stream.source import open_source
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from tests.scaleout.conftest import D, cluster_of
from tests.scaleout.test_sums import relative_difference

WORDS = VocabularyLearner(
    documents=400,
    min_document_frequency=1,
    max_document_frequency=1.0,
    analyzer=TextAnalyzer(token_pattern=r"w\d+"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """900 texts in nine files, with a bad record and a short document in each."""
    made = tmp_path_factory.mktemp("texts")
    planted = PlantedLDA(3, D, seed=8, mean_length=15, topic_concentration=0.1)
    for number in range(9):
        lines = [json.dumps({"text": text}) for text in planted.texts(100)]
        lines[7:7] = ["bad", json.dumps({"text": "w00001"})]
        with gzip.open(made / f"{number}.jsonl.gz", "wt") as file:
            file.write("\n".join(lines))
    return made


def assert_same_state(one, other):
    mine, theirs = one.state(), other.state()
    assert mine[1] == theirs[1]
    for name in theirs[0]:
        np.testing.assert_array_equal(mine[0][name], theirs[0][name], err_msg=name)


def test_partitions_give_what_one_engine_gives_through_the_same_map(
    client, settings, documents, cut
):
    met = []
    found = learn(
        client,
        of_partitions(cut),
        settings,
        on_progress=lambda label, counts: met.append((label, counts.documents)),
    )
    one = Engine(settings, shared_projection=found.engine.shared_projection)
    one.add(documents)
    assert relative_difference(found.engine, one) < 1e-10
    mine, theirs = found.model(), one.snapshot()
    for name in ("components", "alpha", "background"):
        np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), 1e-10, 1e-14)
    assert mine.documents_seen == theirs.documents_seen == 4875
    assert found.counts.documents == 5000
    assert found.counts.short == 125
    assert (mine.tokens_seen, found.counts.tokens) == (documents.lengths.sum(),) * 2
    # Every shard was reported in every round, the last with all documents.
    labels = [label for label, _ in met]
    assert labels == [f"round {1 + i // len(cut)} of 3" for i in range(3 * len(cut))]
    assert [documents for _, documents in met[len(cut) - 1 :: len(cut)]] == [5000] * 3


@pytest.mark.parametrize("most_entries", [4_000_000, 1000])
def test_a_warm_up_without_documents_begins_again_as_in_one_process(
    settings, documents, most_entries, monkeypatch
):
    """Two runs of rows that are too short come first, and long rows end a warm-up early."""
    for module in ("engine.warmup", "scaleout.beginning"):
        monkeypatch.setattr(f"streamlda.{module}.WARMUP_MAX_ENTRIES", most_entries)
    short = DocumentBatch.from_matrix(np.eye(D)[np.zeros(2 * settings.warmup_documents, int)])
    first = DocumentBatch.joined([short, documents.rows(0, 350)])
    one = Engine.of_rounds(settings)
    one.add(first)
    arrays, values = one.state()
    W, behind = beginning._map_of([(Shard("a"), Rows(None, first, Counter()))], settings, None)
    assert behind == values["counters"]["behind_map"]
    np.testing.assert_array_equal(W, arrays["current.whitening"])


def test_topics_are_as_good_as_those_of_one_process(client):
    """Held-out perplexity within 1 % of a fit in one process, and far from that of one word."""
    planted = PlantedLDA(5, 400, seed=3, mean_length=40, topic_concentration=0.05)
    train, held_out = planted.documents(12_000), planted.documents(1000)
    settings = replace(new_settings(5, 400), warmup_documents=1000)
    one = Engine.of_rounds(settings)
    one.add(train)
    parts = [train.rows(a, a + 1500) for a in range(0, 12_000, 1500)]
    models = one.snapshot(), fit_partitions(client, parts, settings)
    scores = [document_completion(held_out, m.components, m.alpha, m.background) for m in models]
    assert scores[1].perplexity < 1.01 * scores[0].perplexity
    assert scores[1].perplexity < 0.7 * scores[1].unigram_perplexity


def new_settings(n_components, n_features):
    from streamlda.engine.settings import EngineSettings

    return EngineSettings(n_components=n_components, n_features=n_features, oversampling=10)


def test_files_give_the_words_and_topics_of_one_process(client, folder, settings):
    asked = replace(settings, n_features=8000)
    found = learn(client, of_files(folder, shards=4), asked, WORDS)
    engine = None

    def make(vocabulary):
        nonlocal engine
        own = replace(settings, n_features=vocabulary.n_features)
        engine = Engine(own, shared_projection=found.engine.shared_projection)
        return engine

    one = Ingestion(open_source("files", str(folder)), WORDS, make).run()
    assert found.vocabulary == one.vocabulary
    assert found.vocabulary_documents == one.vocabulary_documents == 400
    assert found.counts == one.counts
    assert one.counts.rejects == {"not-json": 9}
    assert one.counts.short >= 9
    assert relative_difference(found.engine, engine) < 1e-10
    model = found.model({"corpus": "planted"})
    np.testing.assert_allclose(model.components, engine.snapshot().components, 1e-10, 1e-14)
    assert model.settings["vocabulary_documents"] == 400
    assert model.settings["corpus"] == "planted"
    assert model.settings["n_features"] == one.vocabulary.n_features <= D
    same = fit_files(client, folder, asked, WORDS, shards=4)
    np.testing.assert_array_equal(same.components, model.components)


def test_bags_delayed_and_lists_give_the_same(client, folder, settings):
    texts = [text for shard in of_files(folder).shards for text in read_texts(shard)]
    parts = [texts[i : i + 300] for i in range(0, len(texts), 300)]
    words = Vocabulary.given([f"w{i:05}" for i in range(D)], WORDS.analyzer)
    bag = dask.bag.from_delayed([dask.delayed(list)(part) for part in parts])
    delayed = [dask.delayed(list)(part) for part in parts]
    futures = client.scatter(parts)
    found = [
        learn(client, of_partitions(given), settings, words)
        for given in (parts, bag, delayed, futures)
    ]
    for other in found[1:]:
        assert_same_state(other.engine, found[0].engine)
    assert found[0].counts.documents == 909


def read_texts(shard):
    from streamlda.scaleout.shards import rows_of

    return [text for rows in rows_of(shard, None) for text in rows.texts]


def test_a_shared_map_is_kept_so_that_engines_can_be_merged(client, settings, documents, cut):
    beginning = Engine.of_rounds(settings)
    beginning.add(documents.rows(0, 500))
    shared = beginning.better_projection()
    found = learn(client, of_partitions(cut[:4]), settings, shared_projection=shared).engine
    there = Engine(settings, shared_projection=shared)
    there.add(documents.rows(2600, 5000))
    found.merge(there)
    one = Engine(settings, shared_projection=shared)
    one.add(documents)
    for name in ("word_totals", "pair_cross", "triple_cross"):
        mine, theirs = (engine.state()[0][f"current.{name}"] for engine in (found, one))
        assert np.abs(mine - theirs).max() < 1e-10 * np.abs(theirs).max()
    with pytest.raises(InvalidSettingError, match="shape"):
        learn(client, of_partitions(cut), settings, shared_projection=shared[:, :-1])


def logged(part, folder):
    """Return a partition, and note that it was made; the task of a worker."""
    (folder / f"{time.monotonic_ns()}-{os.getpid()}").touch()
    return part


def test_neither_a_killed_worker_nor_the_number_of_workers_changes_a_bit(settings, cut, tmp_path):
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    quiet.mkdir()
    killed.mkdir()
    with cluster_of(2) as own, connect(own.scheduler_address) as client:

        def run(folder, on_progress=None):
            parts = [dask.delayed(logged)(part, folder) for part in cut]
            return learn(client, of_partitions(parts), settings, on_progress=on_progress)

        undisturbed = run(quiet)
        workers = client.run(os.getpid)
        victims = []

        def kill(label, counts):
            # The worker that made the last partition so far holds sums that are still needed.
            if label == "round 3 of 3" and not victims:
                last = max(killed.iterdir(), key=lambda path: int(path.name.split("-")[0]))
                victims.append(int(last.name.split("-")[1]))
                os.kill(victims[0], signal.SIGKILL)

        found = run(killed, kill)
        assert victims[0] in workers.values()
        assert victims[0] not in client.run(os.getpid).values()
        own.scale(1)
        while len(client.nthreads()) != 1:
            time.sleep(0.05)
        alone = run(tmp_path)
    assert_same_state(found.engine, undisturbed.engine)
    assert_same_state(alone.engine, undisturbed.engine)
    assert found.counts == undisturbed.counts
    # It did matter: what the worker had done was done again.
    assert len(list(killed.iterdir())) > len(list(quiet.iterdir()))


def test_tasks_are_named_by_what_they_do(client, settings, cut):
    learn(client, of_partitions(cut), settings)
    kinds = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    wanted = {"first", "given", "sketch", "sums", "merge"}
    assert {f"streamlda-{kind}" for kind in wanted} <= kinds


def test_nothing_is_left_on_the_cluster(client, settings, cut):
    learn(client, of_partitions(cut), settings)
    with pytest.raises(InsufficientDataError):
        learn(client, of_partitions(cut), replace(settings, n_components=D, warmup_documents=1))
    deadline = time.monotonic() + 10
    while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_fewer_documents_than_topics_are_refused(client, settings):
    few = DocumentBatch.from_matrix(np.ones((4, D)))
    asked = replace(settings, n_components=5)
    with pytest.raises(InsufficientDataError, match="usable=4 topics=5"):
        learn(client, of_partitions([few]), asked)
    enough = DocumentBatch.from_matrix(np.ones((5, D)))
    assert learn(client, of_partitions([enough]), asked).engine.documents_seen == 5
    blank = DocumentBatch.from_matrix(np.zeros((9, D)))
    for rounds in (1, 2):
        with pytest.raises(InsufficientDataError, match="usable=0"):
            learn(client, of_partitions([blank, blank]), asked, rounds=rounds)


def test_fewer_words_than_topics_are_refused(client, settings, folder):
    asked = replace(settings, n_components=D + 1)
    with pytest.raises(VocabularyError, match=rf"words=\d+ n_components={D + 1}"):
        learn(client, of_files(folder), asked, WORDS)


def test_shards_with_other_columns_are_refused_by_name(client, settings, cut):
    other = DocumentBatch.from_matrix(np.ones((3, D + 1)))
    with pytest.raises(InvalidDocumentsError, match=f"n_features={D + 1}.*'partition 2'"):
        learn(client, of_partitions([cut[0], cut[2], other, cut[3]]), settings)
    with pytest.raises(InvalidDocumentsError, match=f"n_features={D + 1} expected={D}"):
        learn(client, of_partitions([other, cut[0]]), settings)


def test_texts_and_counts_must_fit_the_words(client, settings, cut):
    with pytest.raises(InvalidDocumentsError, match="vocabulary=None"):
        learn(client, of_partitions([["some text"]]), settings)
    with pytest.raises(InsufficientDataError, match="texts=0"):
        learn(client, of_partitions(cut), settings, WORDS)


def test_a_file_that_is_gone_fails_by_its_name(client, settings, folder, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "w00001 w00002 w00003"}\n' * 20)
    corpus = of_files([tmp_path / "a.jsonl", folder], shards=3)
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(SourceError, match=r"a\.jsonl"):
        learn(client, corpus, settings, WORDS)


@pytest.mark.parametrize(
    ("changes", "options", "wanted"),
    [
        ({"solver": "online-power"}, {}, "solver='online-power'"),
        ({}, {"rounds": 0}, "rounds=0"),
        ({}, {"rounds": 2, "shared_projection": np.ones((D, 11))}, "rounds=2"),
    ],
)
def test_what_cannot_be_asked_is_refused(client, settings, cut, changes, options, wanted):
    with pytest.raises(InvalidSettingError, match=wanted):
        learn(client, of_partitions(cut), replace(settings, **changes), **options)
