"""Data that only its user has: where it is from, its SHA-256, and how it is read."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.corpus import is_archive
from streamlda.errors import InvalidSettingError, require

#: Address and SHA-256 of files that anybody can get, by the option that names them.
DOWNLOADS = {
    "mnist": (
        "https://storage.googleapis.com/cvdf-datasets/mnist/train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "covertype": (
        "https://ndownloader.figshare.com/files/5976039",
        "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
    ),
    "corpus": (
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    ),
}

#: What stands in for data that only its user has: digits of scikit-learn. Covertype has none.
STAND_IN = "digits (stand-in for MNIST)"


def list_missing(files: Mapping[str, Path], names: Iterable[str] = DOWNLOADS) -> list[str]:
    """Say where to get files, and refuse one that is not the one to download, to the last byte.

    A corpus of the user's own, JSON Lines, is taken as it is.
    """
    said = []
    for name in names:
        address, asked = DOWNLOADS[name]
        if name not in files:
            said.append(f"download {address} (SHA-256 {asked}) and pass it: --{name} FILE")
        elif name != "corpus" or is_archive(files[name]):
            with files[name].open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            require(
                digest == asked,
                f"the file of --{name} must have the SHA-256 {asked}",
                sha256=digest,
                remedy=f"download it again from {address}",
            )
    return said


def check_files(
    names: Sequence[str], files: Mapping[str, Path], stand_ins: bool
) -> tuple[str, ...]:
    """Refuse files that are missing or wrong; return the data that Figure 2 of CAPE runs on."""
    missing = list_missing(files, names)
    if missing and not (stand_ins and "mnist" in names):
        needs = "a file of this figure does not come with streamlda"
        raise InvalidSettingError(f"{needs}; {'; '.join(missing)}")
    if "mnist" not in names:
        return ()
    mnist = "MNIST" if "mnist" in files else STAND_IN
    return ("synthetic", mnist, *(["Covertype"] if "covertype" in files else []))


def read_mnist(path: Path) -> Any:
    """Return the training images, of 28 x 28 pixels from 0 to 255, shape (60000, 784)."""
    raw = gzip.decompress(path.read_bytes())
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 784)


def read_covertype(path: Path) -> Any:
    """Return the 54 attributes of every cell, without its class."""
    return np.loadtxt(path, delimiter=",", dtype=np.float32)[:, :-1]
