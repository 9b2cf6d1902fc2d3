"""Environments of a test's own, for packages that the project does not depend on."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def output_of(module, folder, *wanted):
    """Install packages into an environment in a folder, and return what a module of tests prints.

    Behind them come the packages of the tests.
    """
    venv.create(folder, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", *wanted], check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "tests.pth").write_text(
        "\n".join([sysconfig.get_path("purelib"), str(ROOT), str(ROOT / "connectors")])
    )
    command = [str(folder / "bin" / "python"), "-m", module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
