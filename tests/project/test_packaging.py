"""Packages that a user gets: the wheel, the lock, and a setup that says what is missing."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCK = (ROOT / "requirements-dev.lock").read_text("utf-8")
BASE_LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PYTHONS = ("3.11.0", "3.12.0", "3.13.0")
#: The environment of a user, who has no checkout.
OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def locked_requirements(lock=LOCK):
    return [entry for entry in re.split(r"\n(?=\S)", lock.strip()) if not entry.startswith("#")]


def wanted_requirements():
    project, groups = PROJECT["project"], PROJECT["dependency-groups"].values()
    lists = [project["dependencies"], *project["optional-dependencies"].values(), *groups]
    found = [Requirement(text) for items in lists for text in items]
    return [wanted for wanted in found if wanted.name != "streamlda"]


def test_every_locked_version_is_exact_and_hashed_and_names_no_host_path_or_option():
    entry = re.compile(r"[a-z0-9-]+==\S+( ; [^\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+")
    wrong = [text[:60] for text in locked_requirements() if not entry.fullmatch(text)]
    assert wrong == []
    assert re.findall(r"^.*(?:://|^-|^\s+--(?!hash=)|@ ).*$", LOCK, flags=re.MULTILINE) == []


def test_what_streamlda_runs_on_is_locked_alike_with_and_without_the_tests():
    base = locked_requirements(BASE_LOCK)
    # What the tests need besides may need it on more platforms.
    either = [re.sub(r" ; [^\n]+(?= )", "", entry) for entry in (*base, *locked_requirements())]
    assert set(either[: len(base)]) <= set(either[len(base) :])
    names = {Requirement(entry.partition(" \\")[0]).name for entry in base}
    # The image of the daemon is made from it.
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"]]
    wanted += [text for extra in ("http", "kafka", "registry") for text in extras[extra]]
    assert {canonicalize_name(Requirement(text).name) for text in wanted} <= names
    assert "pytest" not in names


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_lock_holds_each_dependency_once_on_every_platform(python, platform):
    environment = {
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": platform,
        "platform_python_implementation": "CPython",
    }
    pins = {}
    for entry in locked_requirements():
        requirement = Requirement(entry.partition(" \\")[0])
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.name not in pins
            pins[requirement.name] = str(requirement.specifier).removeprefix("==")
    for wanted in wanted_requirements():
        name = canonicalize_name(wanted.name)
        assert wanted.specifier.contains(pins[name], prereleases=True), f"run make lock: {wanted}"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Return a copy of the tree, since a build leaves folders behind."""
    copy = tmp_path_factory.mktemp("a folder") / "copy of tree"
    leave = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=leave)
    return copy


BUILD = """
import sys
from hatchling import build
print(build.build_wheel("wheels") if sys.argv[1] == "wheel" else build.build_sdist("sdists"))
"""


def build(tree, what):
    command = [sys.executable, "-c", BUILD, what]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tree / f"{what}s" / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tree):
    return build(tree, "wheel")


@pytest.fixture(scope="module")
def sdist(tree):
    return build(tree, "sdist")


def files_of(package):
    """Return the names in a wheel of all files of a package, without the documentation."""
    paths = (path for path in package.rglob("*") if path.is_file() and "docs" not in path.parts)
    return {path.relative_to(package.parent).as_posix() for path in paths}


def test_the_wheel_holds_both_packages_whole_and_nothing_else(tree, wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    packages = tree / "streamlda", tree / "connectors" / "streamlda_connectors"
    assert packed == set().union(*map(files_of, packages))
    assert wheel.stat().st_size < 1_000_000  # As CONTRIBUTING.md says.
    for package in packages:
        assert {f"{package.name}/__init__.py", f"{package.name}/py.typed"} <= packed
    assert {"streamlda/README.md", "streamlda/report/page/report.css"} <= packed


def test_the_source_archive_has_the_licence_and_builds_the_same_wheel(sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        # Python before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    (unpacked,) = tmp_path.iterdir()
    assert (unpacked / "LICENSE").is_file()
    assert build(unpacked, "wheel").read_bytes() == wheel.read_bytes()


def test_the_lines_of_the_image_run_in_a_folder(tree, tmp_path):
    """Its COPY, RUN, ENV and ENTRYPOINT, in order; of the caches of pip and of its user ours."""
    deploy = tree / "streamlda" / "service" / "deploy"
    text = re.sub(r"(?m)^#.*\n", "", (deploy / "Containerfile").read_text("utf-8"))
    text = text.replace("-o 10001 -g 10001", f"-o {os.getuid()} -g {os.getgid()}")
    text = text.replace("--no-cache-dir ", "").replace("\\\n", " ")
    for place in ("/opt/streamlda", "/clone", "/data", "/etc/streamlda"):
        text = text.replace(place, f"{tmp_path}{place}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # What is imported is compiled then: most of what is installed is not.
    environment = OUTSIDE | {"PATH": path, "PIP_COMPILE": "0"}
    at = tmp_path
    for name, rest in (line.split(maxsplit=1) for line in text.splitlines() if line):
        if name == "WORKDIR":
            at = Path(rest)
            at.mkdir(parents=True, exist_ok=True)
        elif name == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            for each in sources:
                copy = shutil.copytree if (tree / each).is_dir() else shutil.copy
                copy(tree / each, at / target)
        elif name == "RUN":
            # The one of the image itself makes a folder that it begins in.
            subprocess.run(["bash", "-euc", rest], cwd=at, env=environment, check=True)
        elif name == "ENV":
            given = (part.split("=", 1) for part in rest.split())
            environment |= {key: value.replace("$PATH", os.defpath) for key, value in given}
        elif name == "ENTRYPOINT":
            command = [*json.loads(rest), "--check"]
    settings = Path(command[command.index("--config") + 1])
    settings.parent.mkdir(parents=True)
    shutil.copy(deploy / settings.name, settings)
    program = shutil.which(command[0], path=environment["PATH"])
    assert program == f"{tmp_path}/opt/streamlda/bin/streamlda"
    done = subprocess.run(
        [program, *command[1:]], cwd=at, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


LOAD_ALL = """
from importlib.metadata import distribution
for point in distribution("streamlda").entry_points:
    print(point.group, point.name, point.load().__module__)
"""


def fenced_lines(language):
    text = (ROOT / "README.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_an_empty_environment_takes_the_lines_of_the_readme_a_wheel_and_an_sdist(
    tree, wheel, sdist, tmp_path
):
    """Dependencies are seen, and not fetched: nothing else of this environment is."""
    python = tmp_path / "environment"
    venv.create(python, symlinks=True, with_pip=True)
    (packages,) = (python / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    (shell,) = fenced_lines("sh")
    lines = re.findall(r"(?m)^\$ (pip install .*?) +#", "".join(fenced_lines("console")))
    assert lines == ["pip install .", 'pip install ".[http,kafka]"']
    environment = {
        "PATH": f"{python}/bin{os.pathsep}{os.defpath}",
        "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_COMPILE": "0",
        "NUMBA_DISABLE_JIT": "1",
    }

    def shown(line, folder):
        command = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    for line in lines:
        assert "Successfully installed streamlda" in shown(line, tree)
    work = tmp_path / "work"
    work.mkdir()
    for name in ("reviews.csv", "more.csv"):
        texts = [
            f"{number},apples bread cheese\n{number},dates eggs figs\n" for number in range(60)
        ]
        (work / name).write_text("id,text\n" + "".join(texts))
    assert "dates" in shown(shell.replace("--topics 10", "--topics 2"), work)
    assert (work / "report.html").stat().st_size > 10_000
    for file in (wheel, sdist):
        shown("pip uninstall --quiet --yes streamlda", work)
        shown(f"pip install '{file}'", work)
        version = f"streamlda {PROJECT['project']['version']}\n"
        assert shown("streamlda --version", work) == version
        for package in ("streamlda", "streamlda_connectors"):
            where = f"python -c 'import {package}; print({package}.__file__)'"
            assert str(python) in shown(where, work)
        points = shown(f"python -c '{LOAD_ALL}'", work).splitlines()
        assert "console_scripts streamlda streamlda.__main__" in points
        announced = PROJECT["project"]["entry-points"].values()
        assert len(points) == 1 + sum(len(group) for group in announced)
