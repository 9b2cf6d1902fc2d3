"""Objects of an S3-compatible server, by their URLs."""

import json

import pytest

from tests.scaleout.environments import output_of

#: What the server and its client are: some 40 packages.
WANTED = ("s3fs==2026.9.0", "moto[server]==5.2.5")


@pytest.mark.packaging
def test_fits_of_objects_are_those_of_files(tmp_path):
    """The server is a process that speaks S3 by HTTP (moto); the client is fsspec's, s3fs."""
    found = output_of("tests.scaleout.object_store", tmp_path / "environment", *WANTED)
    assert json.loads(found) == {
        "a folder": True,
        "a pattern": True,
        "on a cluster": True,
        "a state is kept": True,
        "continued": True,
        "private": "private",
    }
