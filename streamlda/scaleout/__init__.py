"""One model from many workers: the engine's sums, taken shard by shard on a Dask cluster.

Sums through one projection add up (`streamlda.storage.merge` says why), so a shard of the documents
is a task: it reads its documents by the pipeline of every run, folds them into one set of arrays
with the engine's own kernels, and returns that. Sets are joined in a tree; the last one is the
state of an `Engine` with a shared projection.
::

    beginning   the first documents: words, counted on workers, and at the driver a projection
    sketches    all shards, pairs only: better projections, and how many documents each shard has
    sums        all shards, through the last one: the state of one engine over all documents
    topics      at the driver

That is `learn`, whose sums can be merged with others. `learn_once` is for topics alone: workers
read the documents once and keep them, the rounds are those of one process, and then the topics
are refined by likelihood (`local_steps`). ``StreamLDA.fit`` of a Dask collection and ``streamlda
fit --dask`` go this way.

Tasks are pure: no noise, no output, no state. A task that a lost worker had done is done again,
and counts once, for sums name their shards and are never added to sums of the same shard. Private
releases (`fit_privately`) pay and draw noise once, at the driver.

`monoid` has the sums for other engines, refined and private ones too.

`connect` reaches a cluster, `of_files` and `of_partitions` say what is read, `learn`, `learn_once`
and `fit_privately` learn from it.

The connections of a cluster carry raw documents and raw sums: keep it on a network of its own, or
use TLS (Dask's configuration ``distributed.comm``).
"""

from streamlda.scaleout.cluster import ClusterError, Progress, connect, never, no_progress
from streamlda.scaleout.fit import ClusterFit, learn, learn_once, limits_with_room
from streamlda.scaleout.monoid import (
    PrivateFit,
    PrivateStage,
    Refinement,
    better_projection,
    merge,
    projection_of,
    refinement_of,
    sums_of,
    topics,
)
from streamlda.scaleout.private import fit_privately, summed_stages
from streamlda.scaleout.shards import Corpus, of_files, of_partitions

__all__ = [
    "ClusterError",
    "ClusterFit",
    "Corpus",
    "PrivateFit",
    "PrivateStage",
    "Progress",
    "Refinement",
    "better_projection",
    "connect",
    "fit_privately",
    "learn",
    "learn_once",
    "limits_with_room",
    "merge",
    "never",
    "no_progress",
    "of_files",
    "of_partitions",
    "projection_of",
    "refinement_of",
    "summed_stages",
    "sums_of",
    "topics",
]
