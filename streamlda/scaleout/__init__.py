"""One model from many workers: the sums of shards, on a Dask cluster or by any engine.

The driver asks for one stage after another (`sums`). `learn_once` and `sum_stages` are the
driver on Dask; `fit_with` is it for other engines, whose workers call `sums_of` and `merge`.
``StreamLDA`` takes collections of Dask and data frames of Spark (`collections`). Workers encode
documents once, to files of their own (`row_files`). Tasks are pure: the task of a lost worker is
done again, and counts once, for sums know which documents are in them.

The connections of a cluster carry raw documents and raw sums: keep it on a network of its own, or
use TLS (Dask's configuration ``distributed.comm``).
"""

from streamlda.scaleout.cluster import Progress as Progress
from streamlda.scaleout.cluster import connect as connect
from streamlda.scaleout.faults import ClusterError as ClusterError
from streamlda.scaleout.fit import ClusterFit as ClusterFit
from streamlda.scaleout.fit import fit_with as fit_with
from streamlda.scaleout.fit import learn_once as learn_once
from streamlda.scaleout.private import sum_stages as sum_stages
from streamlda.scaleout.shards import Corpus as Corpus
from streamlda.scaleout.shards import of_files as of_files
from streamlda.scaleout.shards import of_partitions as of_partitions
from streamlda.scaleout.sums import Stage as Stage
from streamlda.scaleout.sums import Sums as Sums
from streamlda.scaleout.sums import merge as merge
from streamlda.scaleout.sums import sums_of as sums_of
