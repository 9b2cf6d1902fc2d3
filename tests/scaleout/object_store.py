"""Fits of objects of an S3-compatible server: run as ``python -m tests.scaleout.object_store``.

Needs s3fs and moto's server, which the tests install into an environment of their own. Writes what
it found as JSON to standard output.
"""

import gzip
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from streamlda.run.cluster import fit_on_cluster
from streamlda.run.fit import fit
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA
from tests.scaleout.conftest import cluster_of, wait_until

BUCKET, FILES, RECORDS = "bucket", 4, 1000


@contextmanager
def object_store():
    """Start a server of this machine, and let everything here use it."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "name",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        wait_until(lambda: answers(port))
        yield
    finally:
        server.kill()
        server.wait()


def answers(port):
    with closing(socket.socket()) as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def put(store, folder):
    """Write the same files into a folder and a bucket, the first one in gzip members."""
    texts = PlantedLDA(3, 100, seed=1, mean_length=30).texts(FILES * RECORDS)
    store.mkdir(BUCKET)
    for number in range(FILES):
        own = texts[number * RECORDS : (number + 1) * RECORDS]
        data = "".join(json.dumps({"text": text}) + "\n" for text in own).encode()
        name = f"{number}.jsonl"
        if number == 0:
            cut = range(0, len(data), 20_000)
            name, data = f"{name}.gz", b"".join(gzip.compress(data[at:][:20_000]) for at in cut)
        (folder / name).write_bytes(data)
        store.pipe(f"{BUCKET}/in/{name}", data)


def tried(folder):
    """Return whether fits of objects are those of files, here and on a cluster."""
    import s3fs

    store = s3fs.S3FileSystem()
    (folder / "in").mkdir()
    put(store, folder / "in")
    shared = {
        "topics.count": 3,
        "topics.warmup_documents": 500,
        "vocabulary.token_pattern": r"w\d+",
        "output.file": str(folder / "model"),
    }
    private = {
        "topics.count": 3,
        "vocabulary.token_pattern": r"w\d+",
        "vocabulary.hash_bits": 6,
        "privacy.epsilon": 8.0,
        "privacy.delta": 1e-4,
        "privacy.ledger": str(folder / "ledger"),
        "snapshots.every": FILES * RECORDS,
        "output.file": str(folder / "private"),
    }

    def fitted(way, source, flags, **more):
        return way(load_settings(None, {}, {"source.files": [source], **flags, **more}, "fit"))

    def same(one, other):
        equal = np.array_equal(one.model.components, other.model.components)
        return bool(equal and one.counts == other.counts)

    here, there = str(folder / "in"), f"s3://{BUCKET}/in/"
    found = {}
    whole = fitted(fit, here, shared)
    found["a folder"] = same(whole, fitted(fit, there, shared))
    found["a pattern"] = same(whole, fitted(fit, f"{there}*.jsonl*", shared))
    with cluster_of(2) as cluster:
        on = {"cluster.dask": cluster.scheduler_address, "cluster.shards": 12}
        state = {"checkpoint.folder": f"s3://{BUCKET}/state"}
        whole = fitted(fit_on_cluster, here, shared, **on)
        first = fitted(fit_on_cluster, there, shared, **on, **state)
        found["on a cluster"] = same(whole, first)
        found["a state is kept"] = store.exists(f"{BUCKET}/state/refinement.state")
        found["continued"] = same(whole, fitted(fit_on_cluster, there, shared, **on, **state))
        model = fitted(fit_on_cluster, there, private, **on).model
        found["private"] = model.privacy["statement"]
    return found


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as made, object_store():
        print(json.dumps(tried(Path(made))))
