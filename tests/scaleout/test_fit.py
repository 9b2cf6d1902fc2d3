"""A fit on two worker processes: the topics of one process, whoever is killed on the way."""

import os
import signal
from dataclasses import replace

import dask
import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import (
    InsufficientDataError,
    InvalidDocumentsError,
    InvalidSettingError,
    SourceError,
    VocabularyError,
)
from streamlda.model.evaluation import document_completion
from streamlda.scaleout import connect, learn, learn_once, of_files, of_partitions
from streamlda.scaleout.beginning import warmup_of
from streamlda.scaleout.cluster import Run
from streamlda.simulate import PlantedLDA
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from tests.scaleout.conftest import D, cluster_of, logged, wait_until, wait_until_empty
from tests.scaleout.test_sums import relative_difference

WORDS = VocabularyLearner(
    documents=400,
    min_document_frequency=1,
    max_document_frequency=1.0,
    analyzer=TextAnalyzer(token_pattern=r"w\d+"),
)


def assert_same_state(one, other):
    mine, theirs = one.state(), other.state()
    assert mine[1] == theirs[1]
    for name in theirs[0]:
        np.testing.assert_array_equal(mine[0][name], theirs[0][name], err_msg=name)


def test_partitions_give_what_one_engine_gives_through_the_same_projection(
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
    assert (found.counts.documents, found.counts.short) == (5000, 125)
    assert (mine.tokens_seen, found.counts.tokens) == (documents.lengths.sum(),) * 2
    # Every shard was reported in every round, the last with all documents.
    labels = [label for label, _ in met]
    assert labels == [f"round {1 + i // len(cut)} of 3" for i in range(3 * len(cut))]
    assert [documents for _, documents in met[len(cut) - 1 :: len(cut)]] == [5000] * 3
    # Tasks are named by what they do, and nothing stays.
    kinds = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    wanted = {"first", "given", "sketch", "sums", "merge"}
    assert {f"streamlda-{kind}" for kind in wanted} <= kinds
    wait_until_empty(client)


@pytest.mark.parametrize("most_entries", [4_000_000, 1000])
def test_a_warm_up_without_documents_begins_again_as_in_one_process(
    client, settings, documents, most_entries, monkeypatch
):
    """Two runs of rows that are too short come first, and long rows end a warm-up early."""
    monkeypatch.setattr("streamlda.engine.warmup.WARMUP_MAX_ENTRIES", most_entries)
    short = DocumentBatch.from_matrix(np.eye(D)[np.zeros(2 * settings.warmup_documents, int)])
    parts = [short.rows(0, 400), short.rows(400, 600), documents.rows(0, 50)]
    parts += [documents.rows(50, 50), documents.rows(50, 400)]
    one = Engine.of_rounds(settings)
    one.add(DocumentBatch.joined(parts))
    found = warmup_of(Run(client), of_partitions(parts), settings, None)
    assert one.counters.projection_documents == np.count_nonzero(found.usable)
    np.testing.assert_array_equal(found.counts, documents.rows(0, found.n_documents).counts)


def test_topics_are_as_good_as_those_of_one_process(client):
    """Held-out perplexity within 1 % of a fit in one process, and far from that of one word."""
    planted = PlantedLDA(5, 400, seed=3, mean_length=40, topic_concentration=0.05)
    train, held_out = planted.documents(12_000), planted.documents(1000)
    settings = EngineSettings(
        n_components=5, n_features=400, oversampling=10, warmup_documents=1000
    )
    one = Engine.of_rounds(settings)
    one.add(train)
    parts = [train.rows(a, a + 1500) for a in range(0, 12_000, 1500)]
    models = one.snapshot(), learn(client, of_partitions(parts), settings).model()
    scores = [document_completion(held_out, m.components, m.alpha, m.background) for m in models]
    assert scores[1].perplexity < 1.01 * scores[0].perplexity
    assert scores[1].perplexity < 0.7 * scores[1].unigram_perplexity


def test_a_shared_projection_is_kept_so_that_engines_can_be_merged(
    client, settings, documents, cut
):
    beginning = Engine.of_rounds(settings)
    beginning.add(documents.rows(0, 500))
    shared = beginning.better_projection()
    there, one = (Engine(settings, shared_projection=shared) for _ in range(2))
    there.add(documents.rows(2600, 5000))
    one.add(documents)
    for fitted in (learn, learn_once):
        corpus = of_partitions(cut[:4])
        found = fitted(client, corpus, settings, shared_projection=shared).engine
        found.merge(there)
        for name in ("word_totals", "pair_cross", "triple_cross"):
            mine, theirs = (engine.state()[0][f"current.{name}"] for engine in (found, one))
            assert np.abs(mine - theirs).max() < 1e-10 * np.abs(theirs).max()
        with pytest.raises(InvalidSettingError, match="shape"):
            fitted(client, corpus, settings, shared_projection=shared[:, :-1])
    # Of documents that are numbered, the halves are those of one engine too.
    whole = learn_once(client, of_partitions(cut), settings, shared_projection=shared).engine
    assert relative_difference(whole, one) < 1e-10


def test_neither_a_killed_worker_nor_the_number_of_workers_changes_a_bit(settings, cut, tmp_path):
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    quiet.mkdir()
    killed.mkdir()
    with cluster_of(2) as own, connect(own.scheduler_address) as client:

        def run(folder, on_progress=None):
            parts = [dask.delayed(logged)(part, folder) for part in cut]
            return learn(client, of_partitions(parts), settings, on_progress=on_progress)

        undisturbed = run(quiet)
        workers, victims = client.run(os.getpid), []

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
        wait_until(lambda: len(client.nthreads()) == 1)
        alone = run(tmp_path)
    assert_same_state(found.engine, undisturbed.engine)
    assert_same_state(alone.engine, undisturbed.engine)
    assert found.counts == undisturbed.counts
    # It did matter: what the worker had done was done again.
    assert len(list(killed.iterdir())) > len(list(quiet.iterdir()))


def test_words_are_learned_from_the_first_texts_of_several_shards(client, settings):
    texts = PlantedLDA(3, D, seed=8, mean_length=15, topic_concentration=0.1).texts(900)
    parts = [texts[:150], [], texts[150:390], texts[390:]]
    found = learn_once(client, of_partitions(parts), replace(settings, refine=False), WORDS)
    assert found.vocabulary == WORDS.learn(texts[:400])
    assert found.vocabulary_documents == 400
    one = Engine(replace(settings, refine=False, n_features=found.vocabulary.n_features))
    one.add(found.vocabulary.encode(texts).batch)
    model = found.model({"corpus": "planted"})
    np.testing.assert_allclose(model.components, one.snapshot().components, 1e-10, 1e-14)
    assert (model.settings["vocabulary_documents"], model.settings["corpus"]) == (400, "planted")


def test_what_cannot_be_learned_from_is_refused_by_its_shard(client, settings, cut, tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('{"text": "w00001 w00002 w00003"}\n' * 20)
    gone = of_files(tmp_path, shards=2)
    (tmp_path / "b.jsonl").unlink()
    three = Vocabulary.given(["w00001", "w00002", "w00003"], WORDS.analyzer)
    wide, ones, blank = (
        DocumentBatch.from_matrix(matrix)
        for matrix in (np.ones((3, D + 1)), np.ones((5, D)), np.zeros((9, D)))
    )
    five, many = (replace(settings, n_components=n) for n in (5, D + 1))
    for parts, words, asked, error, wanted in (
        ([cut[0], wide], None, settings, InvalidDocumentsError, f"{D + 1}.*'partition 1'"),
        ([wide, cut[0]], None, settings, InvalidDocumentsError, f"{D + 1} expected={D}"),
        ([["some text"]], None, settings, InvalidDocumentsError, "vocabulary=None"),
        (cut, WORDS, settings, InsufficientDataError, "texts=0"),
        (cut, None, many, VocabularyError, rf"words={D} n_components={D + 1}"),
        ([ones.rows(0, 4)], None, five, InsufficientDataError, "usable=4 topics=5"),
        ([blank, blank], None, five, InsufficientDataError, "usable=0"),
        (gone, three, settings, SourceError, r"b\.jsonl"),
    ):
        corpus = parts if parts is gone else of_partitions(parts)
        with pytest.raises(error, match=wanted):
            learn(client, corpus, asked, words)
    assert learn(client, of_partitions([ones]), five).engine.documents_seen == 5
    wait_until_empty(client)
    whitening = np.ones((D, 11))
    for changed, options, wanted in (
        (replace(settings, solver="online-power"), {}, "solver='online-power'"),
        (settings, {"rounds": 0}, "rounds=0"),
        (settings, {"rounds": 2, "shared_projection": whitening}, "rounds=2"),
    ):
        with pytest.raises(InvalidSettingError, match=wanted):
            learn(client, of_partitions(cut), changed, **options)
