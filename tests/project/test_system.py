"""What `make system` installs, what it says where it may not, and that it asks once."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.jars import jars_folder
from tests.system import CHROMIUM

ROOT = Path(__file__).resolve().parents[2]


class Machine:
    """A path with no programs but those that are put there, and a cache of its own."""

    def __init__(self, folder):
        self.programs = folder / "programs"
        self.cache = folder / "cache"
        self.calls = folder / "calls"
        self.programs.mkdir(parents=True)
        self.calls.write_text("")
        for tool in ("env", "true"):
            (self.programs / tool).symlink_to(shutil.which(tool) or "")

    def add(self, name, script="exit 0"):
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def add_java(self, version="17.0.15"):
        self.add("java", f"echo 'openjdk version \"{version}\"' >&2")
        self.add("keytool")

    def add_apt(self, *, known, install, root=True):
        """Add apt-get, which knows a package by a pattern of sh, or all after an update."""
        lists = self.programs.parent / "lists"
        # Whether there is root is asked of the system, so sudo is always used here.
        self.add("sudo", f'{"" if root else "exit 1"}\nshift; exec "$@"')
        self.add("apt-cache", f"case $3 in {known}) exit 0;; esac; [ -e {lists} ]")
        self.add(
            "apt-get",
            f'for last; do :; done; echo "$last" >>{self.calls}\n'
            f"if [ $last = update ]; then : >{lists}; exit 0; fi\n{install}",
        )

    def run(self):
        code = "import os, tests.system; os.geteuid = lambda: 1; tests.system.main()"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PATH": str(self.programs), "STREAMLDA_TEST_CACHE": str(self.cache)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def called(self):
        return self.calls.read_text().split()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def installing(machine):
    """Return a script that puts the programs of a package where they are found."""
    ready = Machine(machine.programs.parent / "ready")
    ready.add_java("21.0.1")
    ready.add("mvn")
    ready.add("chromium")
    return (
        "case $last in *jre*) new='java keytool';; maven) new=mvn;; *) new=$last;; esac\n"
        f"cd {ready.programs} && {shutil.which('cp')} $new {machine.programs}"
    )


def test_nothing_is_done_where_all_is_there(machine):
    machine.add_java()
    machine.add("mvn")
    machine.add("google-chrome")
    machine.add_apt(known="*", install="exit 1")
    assert machine.run() == ""
    assert machine.called() == []


def test_what_is_missing_is_installed_once(machine):
    machine.add_apt(known="*", install=installing(machine))
    said = machine.run().splitlines()
    assert said == [f"Installing {what} with apt-get ..." for what in ("java", "maven", "chromium")]
    wanted = ["openjdk-17-jre-headless", "maven", "chromium"]
    assert machine.called() == wanted
    assert machine.run() == ""
    assert machine.called() == wanted


def test_lists_are_brought_up_to_date_on_need_and_another_java_will_do(machine):
    machine.add("mvn")
    machine.add_apt(known="default-jre*", install=installing(machine))
    machine.run()
    assert machine.called() == ["default-jre-headless", "update", "chromium"]


@pytest.mark.parametrize("name", CHROMIUM)
def test_each_name_of_the_browser_counts_and_maven_is_not_needed_where_kafka_is(name, machine):
    machine.add_java()
    machine.add(name)
    jars_folder(machine.cache).mkdir(parents=True)
    assert machine.run() == ""


def test_where_it_may_not_one_line_says_what_to_install(machine):
    machine.add_java("11.0.2")
    machine.add("mvn")
    packages = "openjdk-17-jre-headless chromium"
    (line,) = machine.run().splitlines()
    assert line.startswith(f"Please install what the tests miss (on Debian and Ubuntu: {packages})")
    assert "there is no apt-get" in line
    machine.add_apt(known="*", install="exit 0", root=False)
    (line,) = machine.run().splitlines()
    assert "java: apt-get needs root, or sudo without a password" in line
    assert machine.called() == []


def test_what_failed_is_told_and_not_tried_again(machine):
    machine.add_java()
    machine.add("mvn")
    machine.add_apt(known="*", install="echo no space left; exit 100")
    first = machine.run().splitlines()
    assert first[0] == "Installing chromium with apt-get ..."
    assert first[1].endswith("chromium: no space left")
    tried = machine.called()
    (line,) = machine.run().splitlines()
    assert "chromium: no space left (it is tried again a day later" in line
    assert machine.called() == tried == ["chromium", "update", "chromium"]


def test_what_cannot_be_used_once_installed_is_told(machine):
    machine.add_java()
    machine.add("mvn")
    machine.add_apt(known="*", install="exit 0")
    for _ in range(2):
        assert "its package is there, and it cannot be used" in machine.run().splitlines()[-1]
    assert machine.called() == ["chromium"]
