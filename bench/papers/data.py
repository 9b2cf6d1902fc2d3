"""Data that only its user has: where it is from, its SHA-256, and how it is read."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamlda.checks import require


class Download(NamedTuple):
    """A file that anybody can get."""

    address: str
    sha256: str


DOWNLOADS = {
    "mnist": Download(
        "https://storage.googleapis.com/cvdf-datasets/mnist/train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "covertype": Download(
        "https://ndownloader.figshare.com/files/5976039",
        "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
    ),
    "corpus": Download(
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    ),
}

#: What stands in for data that only its user has: digits of scikit-learn, drawn samples.
STAND_INS = {"MNIST": "digits", "Covertype": "cover types"}


def check(name: str, path: Path) -> None:
    """Refuse a file that is not the one to download, to the last byte."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    asked = DOWNLOADS[name]
    require(
        found == asked.sha256,
        f"the file of --{name} must have the SHA-256 {asked.sha256}",
        sha256=found,
        remedy=f"download it again from {asked.address}",
    )


def read_mnist(path: Path) -> Any:
    """Return the training images, of 28 x 28 pixels from 0 to 255, shape (60000, 784)."""
    raw = gzip.decompress(path.read_bytes())
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 784)


def read_covertype(path: Path) -> Any:
    """Return the 54 attributes of every cell, without its class."""
    return np.loadtxt(path, delimiter=",", dtype=np.float32)[:, :-1]
