"""A cluster of two worker processes on this machine, and the documents that it learns from."""

import contextlib
import itertools
import logging
import os
import time

import numpy as np
import pytest
import scipy.sparse

from streamlda.documents import DocumentBatch
from streamlda.engine.settings import EngineSettings
from streamlda.scaleout import connect
from streamlda.simulate import PlantedLDA
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.analysis import TextAnalyzer

D = 60

#: No wait ends before, on however slow or busy a machine, unless something is wrong.
SECONDS = 300


@contextlib.contextmanager
def cluster_of(workers, **options):
    """Start a cluster whose workers a nanny starts again when they are killed."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        **options,
    ) as cluster:
        yield cluster


def learner_of_all_words(documents):
    limits = {"min_document_frequency": 1, "max_document_frequency": 1.0}
    analyzer = TextAnalyzer(token_pattern=r"w\d+")
    return VocabularyLearner(documents=documents, analyzer=analyzer, **limits)


def logged(part, folder):
    (folder / f"{time.monotonic_ns()}-{os.getpid()}").touch()
    return part


@pytest.fixture(scope="package")
def cluster():
    with cluster_of(2) as started:
        yield started


@pytest.fixture
def client(cluster):
    with connect(cluster.scheduler_address, timeout_seconds=SECONDS) as connected:
        yield connected


@pytest.fixture(scope="session")
def settings():
    return EngineSettings(n_components=3, n_features=D, warmup_documents=300, oversampling=8)


@pytest.fixture(scope="session")
def documents():
    planted = PlantedLDA(3, D, seed=4, mean_length=12, topic_concentration=0.1)
    batch = planted.documents(5000)
    counts = scipy.sparse.csr_matrix((batch.counts, batch.word_ids, batch.row_pointers), (5000, D))
    kept = scipy.sparse.diags_array((np.arange(5000) % 40 > 0).astype(float))
    return DocumentBatch.from_matrix(kept @ counts)


@pytest.fixture(scope="session")
def cut(documents):
    ends = [0, 700, 701, 1500, 2600, 2600, 3333, 4100, 5000]
    return [documents.rows(a, b) for a, b in itertools.pairwise(ends)]
