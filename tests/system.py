"""What the tests need besides Python packages: Java, Maven, Chromium. ``python -m tests.system``.

What is missing is installed with apt-get where that is allowed (as root, or by sudo without a
password). Where it is not, one line says what to install, and the tests use what there is.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cache import cache_folder, remember_failure, remembered_failure
from tests.kafka.jars import JAVA_VERSION, BrokerUnavailable, jars_folder, java, keytool, program

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 900.0
# Of each kind, the packages in the order in which they are tried.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "java": (f"openjdk-{JAVA_VERSION}-jre-headless", "default-jre-headless"),
    "maven": ("maven",),
    "chromium": ("chromium",),
}


def missing(cache: Path) -> list[str]:
    """Return what is not there, of the keys of PACKAGES."""
    found = []
    try:
        keytool(java())
    except BrokerUnavailable:
        found.append("java")
    try:
        # Maven only fetches.
        jars_folder(cache).exists() or program("mvn")
    except BrokerUnavailable:
        found.append("maven")
    chosen = os.environ.get("STREAMLDA_TEST_CHROMIUM")
    if not any(shutil.which(name) for name in ([chosen] if chosen else CHROMIUM)):
        found.append("chromium")
    return found


def administrator() -> list[str] | None:
    """Return what to put before a command that needs root, None if there is no way."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and call([sudo, "-n", "true"]) is None:
        return [sudo, "-n"]
    return None


def call(command: list[str]) -> str | None:
    """Run a command; returns None, or the end of what it said if it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout + done.stderr).strip()[-300:] if done.returncode else None


def install_package(get: list[str], packages: tuple[str, ...]) -> str | None:
    """Install the first of the packages that apt knows; returns None, or why it failed."""
    for package in packages:
        if call(["apt-cache", "show", "--no-all-versions", package]) is None:
            return call([*get, "install", "--no-install-recommends", package])
    return f"there is no package {' or '.join(packages)}"


def install(wanted: list[str], cache: Path) -> dict[str, str]:
    """Install what can be; returns why not, by what is still missing."""
    if shutil.which("apt-get") is None:
        return dict.fromkeys(wanted, "there is no apt-get")
    before = administrator()
    if before is None:
        return dict.fromkeys(wanted, "apt-get needs root, or sudo without a password")
    # A service of the host must not ask anything, or be restarted, because of a test.
    get = [*before, "env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1"]
    get += ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120"]
    failed, updated = {}, False
    for what in wanted:
        print(f"Installing {what} with apt-get ...", flush=True)
        why = install_package(get, PACKAGES[what])
        # Package lists are brought up to date at most once, and only on need.
        if why and not updated:
            updated = True
            why = call([*get, "update"]) or install_package(get, PACKAGES[what])
        if what in missing(cache):
            failed[what] = why or "its package is there, and it cannot be used"
            remember_failure(cache, what, failed[what])
    return failed


def main() -> None:
    cache = cache_folder()
    wanted = missing(cache)
    failed = {what: why for what in wanted if (why := remembered_failure(cache, what))}
    if new := [what for what in wanted if what not in failed]:
        failed |= install(new, cache)
    if failed:
        reasons = "; ".join(f"{what}: {why}" for what, why in failed.items())
        packages = " ".join(PACKAGES[what][0] for what in failed)
        print(f"Please install what the tests miss (on Debian and Ubuntu: {packages}). {reasons}")


if __name__ == "__main__":
    main()
