"""The command line in this process."""

import pytest
from click.testing import CliRunner

from streamlda.cli import commands
from streamlda.privacy.ledger import read_report
from streamlda.settings.load import NAMES


def spelled(*arguments):
    """Return arguments as a shell has them: ``topics.seed=1`` is given by ``--set``."""
    parts: list[str] = []
    for part in map(str, arguments):
        by_set = part.partition("=")[0] in NAMES and parts[-1:] != ["--set"]
        parts += ["--set", part] if by_set else [part]
    return parts


def run(*arguments, code=0):
    result = CliRunner().invoke(commands, spelled(*arguments))
    assert result.exit_code == code, (result.exit_code, result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    return result


def refused(*arguments, code=78):
    """Return what a command says that fails: one line, or one more for each of several problems."""
    result = run(*arguments, code=code)
    first, *problems = result.stderr.splitlines()
    assert first.startswith("streamlda: error: ")
    assert all(line.startswith("- ") for line in problems)
    assert result.stdout == ""
    return result.stderr


def check_releases(to):
    """Check that what lies beside a ledger is what it says: no release that was not paid for."""
    report = read_report(to / "L")
    committed = [each for each in report["snapshots"] if each["state"] == "committed"]
    releases = to / "L.releases"
    files = {path.name for path in releases.glob("*.safetensors")}
    assert files == {each["artifact"].split("/")[-1] for each in committed}
    assert len(files) + len(list(releases.glob("*.new"))) <= len(report["snapshots"])
    return report


def slots_of(report):
    """Return the first record slot of each release, and that behind its last."""
    return [each["documents"][0][1:] for each in report["snapshots"]]


SIZES = ("--topics", 3, "--mean-length", 40, "--vocabulary-size")

#: As for a corpus whose words are in all of its documents.
ALL_WORDS = ("vocabulary.max_document_frequency=1.0",)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Planted documents to learn from and to evaluate on, their truth, and a model."""
    folder = tmp_path_factory.mktemp("cli")
    simulate = ("simulate", *SIZES, 200)
    run(*simulate, "-n", 6000, "-o", folder / "a.jsonl", "--truth", folder / "truth")
    run(*simulate, "-n", 6300, "-o", folder / "all.txt")
    lines = (folder / "all.txt").read_text("ascii").splitlines(keepends=True)
    (folder / "held_out.txt").write_text("".join(lines[6000:]), "ascii")
    fitted = run("fit", folder / "a.jsonl", "-k", 3, "-o", folder / "model", *ALL_WORDS)
    (folder / "summary").write_text(fitted.stderr, "utf-8")
    return folder
