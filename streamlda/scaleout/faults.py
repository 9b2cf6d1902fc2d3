"""Faults of a fit on many workers: rule, remedy and class of each are data."""

from streamlda import errors
from streamlda.documents import CHECK_TEXTS, MIN_TOKENS
from streamlda.engine.settings import WHITENED_TENSOR


class ClusterError(errors.SourceError):
    """A Dask cluster that cannot be reached, does not fit, or was lost."""


_FAULTS = errors.Faults(
    {
        ClusterError: {
            "answer": "a Dask scheduler does not answer; start it (dask scheduler), check the "
            "address and its port, and make a new client",
            "client": "a Dask collection has no client; make one first: "
            'distributed.Client("tcp://host:8786"), or distributed.Client() for the cores of this '
            "machine",
            "killer": "a task ends its workers; see their logs: nothing else seems to end them",
            "lost scheduler": "the scheduler was lost; start the cluster and fit again",
            "lost workers": "the cluster has lost its workers; start workers and fit again",
            "room for tasks": "a worker lacks room for its tasks; give workers more memory, or cut "
            "the documents into more shards",
            "room for sums": "a worker lacks room for a projection and the sums it merges, or the "
            "topics of a refinement; give workers that much (dask worker --memory-limit), or take "
            "fewer words or topics",
            "versions": "packages differ in version here and on the cluster; install the same on "
            "all machines",
            "worker": "the Dask cluster has no worker; start some: dask worker ADDRESS --nthreads "
            "1",
        },
        errors.InsufficientDataError: {
            "few usable": f"documents of {MIN_TOKENS} known words are too few for the topics; ask "
            f"for fewer topics, or {CHECK_TEXTS}",
            "few documents": "a shard has fewer documents than a refinement has steps; cut the "
            "documents into fewer shards, of like size",
            "no documents": "no shard has a document; check the paths and the text field, or where "
            "partitions come from",
            "stopped": "the run was stopped before topics were made; nothing was saved: start it "
            "again",
        },
        errors.InvalidDocumentsError: {
            "blocks": "blocks of an array are no whole rows; rechunk it: array.rechunk({1: -1})",
            "documents": "a shard has other documents than were counted in it; let it come out the "
            "same each time",
            "frame": "a data frame is not one column of texts; select it first: "
            'frame.select("text")',
            "missing": "sums are not of all documents of the stage; sum all shards, and let them "
            "come out the same each time they are made",
            "no words": "texts have no vocabulary; pass a Vocabulary or VocabularyLearner, or "
            "partitions of counts",
            "partitions": "partitions must be a Dask bag or array, or a list with at least 1 of "
            "them; pass a list of partitions",
            "texts": "a partition is no list of texts or matrix of counts; make it one first",
            "words": "documents have other columns than the words of the vocabulary; give all "
            "partitions the same columns, and the settings their number",
        },
        errors.InvalidSettingError: {
            "effort": "a collection takes no quick or thorough fit; set it to 'auto' or a number",
            "private collection": "a collection cannot be fitted privately; fit a matrix, or run "
            "streamlda fit --dask",
            "solver": f"shards cannot be summed by the solver; choose {WHITENED_TENSOR!r}, or "
            "fit in one process",
            "seeds": "seeded topics cannot be learned on a cluster; fit in one process",
            "stage": "sums are of another stage; sum all documents through the stage that was "
            "handed out, and keep no sums from one stage to the next or from one fit to another",
            "state": "the state is of other files, settings or shards; give them as they were, or "
            "take an empty folder",
            "twice": "documents are summed twice; merge sums of disjoint spans, each shard once",
        },
        errors.LedgerError: {
            "spent": "documents were released before, and a fit on a cluster cannot "
            "continue after one; leave out the files that were in releases, or fit in one process",
        },
        errors.SourceError: {
            "changed": "files changed while a cluster read them; fit files that nobody writes to",
            "memory files": "files in the memory of this process cannot be seen by workers; write "
            "them to a file system or an object store that all machines reach",
            "records": "workers find other records than the ledger will know; nothing was "
            "released: fit files that nobody writes to, and that all machines see alike",
        },
        errors.VocabularyError: {
            "few words": "there are fewer words than topics; ask for fewer topics, or learn words "
            "from more documents or with a higher max_document_frequency",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check
