"""Faults of a fit on many workers: rule, remedy and class of each are data."""

from __future__ import annotations

from streamlda.documents import CHECK_TEXTS, MIN_TOKENS
from streamlda.engine.settings import WHITENED_TENSOR
from streamlda.errors import (
    Faults,
    InsufficientDataError,
    InvalidDocumentsError,
    InvalidSettingError,
    LedgerError,
    SourceError,
    VocabularyError,
)


class ClusterError(SourceError):
    """A Dask cluster that cannot be reached, does not fit, or was lost."""


_FAULTS = Faults(
    {
        ClusterError: {
            "answer": "a Dask scheduler must answer; start it (dask scheduler), check the address "
            "and its port, and make a new client",
            "client": "a Dask collection must be learned from on a cluster; make a client first: "
            'distributed.Client("tcp://host:8786"), or distributed.Client() for the cores of this '
            "machine",
            "killer": "a task must not end its worker; see the logs of the workers, which nothing "
            "but this task seems to end",
            "lost scheduler": "a scheduler must stay until the end; start the cluster and fit "
            "again",
            "lost workers": "a cluster must have workers until the end; start workers and fit "
            "again",
            "room for tasks": "a worker must have room for its tasks; give workers more memory, "
            "or cut the documents into more shards",
            "room for sums": "a worker must have room for a projection and the sums it merges, or "
            "the topics of a refinement; give workers that much (dask worker --memory-limit), or "
            "take fewer words or topics",
            "versions": "packages must have the same versions here and on the cluster; install "
            "the same on all machines",
            "worker": "a Dask cluster must have a worker; start some: dask worker ADDRESS "
            "--nthreads 1",
        },
        InsufficientDataError: {
            "few usable": f"there must be at least as many documents of {MIN_TOKENS} known words "
            f"as topics; ask for fewer topics, or {CHECK_TEXTS}",
            "few documents": "each shard must have a document for each step of a refinement; cut "
            "the documents into fewer shards, of like size",
            "no documents": "there must be a document in some shard; check the paths and the text "
            "field, or where partitions come from",
            "stopped": "a run must continue until some shard was read and topics were made; "
            "nothing was saved: start it again",
        },
        InvalidDocumentsError: {
            "blocks": "blocks of an array must be whole rows; rechunk it: array.rechunk({1: -1})",
            "documents": "a shard must have the documents that were counted in it; let it come "
            "out the same each time",
            "frame": "a data frame must have one column, of texts; select it first: "
            'frame.select("text")',
            "missing": "every document of a stage must be summed once; sum all shards, and let "
            "them come out the same each time they are made",
            "no words": "texts must be read by a vocabulary; pass a Vocabulary or "
            "VocabularyLearner, or partitions of counts",
            "partitions": "partitions must be a Dask bag or array, or a list with at least 1 of "
            "them; pass a list of partitions",
            "texts": "a partition must be a list of texts or a matrix of counts; make it one first",
            "words": "documents must have a column for each word of the vocabulary; give all "
            "partitions the same columns, and the settings their number",
        },
        InvalidSettingError: {
            "effort": "quick and thorough fits must be made in one process; set it to 'auto' or a "
            "number for a collection",
            "private collection": "a private fit must be of a matrix, or of files on a cluster; "
            "fit a matrix, or run streamlda fit --dask",
            "solver": f"shards are summed by solver={WHITENED_TENSOR!r} alone; choose the other "
            "solver, or fit in one process",
            "seeds": "seeded topics must be learned in one process; leave them out on a cluster",
            "stage": "sums must be of the stage that is merged or released; sum all documents "
            "through the stage that was handed out, and keep no sums from one stage to the next "
            "or from one fit to another",
            "state": "a fit must continue from a state of the same files, settings and shards; "
            "give them as they were, or take an empty folder",
            "twice": "each document must be summed once; merge sums of disjoint spans, each shard "
            "once",
        },
        LedgerError: {
            "spent": "documents must not be in two releases, and a fit on a cluster cannot "
            "continue after one; leave out the files that were in releases, or fit in one process",
        },
        SourceError: {
            "changed": "files must not change while a cluster reads them; fit files that nobody "
            "writes to",
            "memory files": "files of a cluster must be seen by all workers, and memory:// is of "
            "this process alone; write them to a file system or an object store that all machines "
            "reach",
            "records": "workers must find the records that the ledger will know; nothing was "
            "released: fit files that nobody writes to, and that all machines see alike",
        },
        VocabularyError: {
            "few words": "there must be at least as many words as topics; ask for fewer topics, or "
            "learn words from more documents or with a higher max_document_frequency",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check
