"""Objects of an S3-compatible server, by their URLs."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: What the server and its client are, for an environment of their own: some 40 packages.
WANTED = ("s3fs==2026.9.0", "moto[server]==5.2.5")


@pytest.mark.packaging
def test_fits_of_objects_are_those_of_files(tmp_path):
    """The server is a process that speaks S3 by HTTP (moto); the client is fsspec's, s3fs."""
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", *WANTED], check=True)
    # Behind its own packages come those of the tests.
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "tests.pth").write_text(
        "\n".join([sysconfig.get_path("purelib"), str(ROOT), str(ROOT / "connectors")])
    )
    python = str(folder / "bin" / "python")
    done = subprocess.run(
        [python, "-m", "tests.scaleout.object_store"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "a folder": True,
        "a pattern": True,
        "on a cluster": True,
        "a state is kept": True,
        "continued": True,
        "private": "private",
        "parts of members": 4,
    }
