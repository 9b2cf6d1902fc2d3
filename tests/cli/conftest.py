"""The command line in this process."""

import json
import os
import tempfile
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from streamlda.cli import commands
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.ledger import read_report
from streamlda.settings.load import NAMES
from streamlda.simulate import PlantedLDA
from streamlda.text.vocabulary import Vocabulary


def spell_arguments(*arguments):
    """Return arguments as a shell has them: ``topics.seed=1`` is given by ``--set``."""
    parts: list[str] = []
    for part in map(str, arguments):
        by_set = part.partition("=")[0] in NAMES and parts[-1:] != ["--set"]
        parts += ["--set", part] if by_set else [part]
    return parts


@contextmanager
def standard_input(data):
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        before = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)


def run(*arguments, code=0, given=b""):
    with standard_input(given):
        result = CliRunner().invoke(commands, spell_arguments(*arguments))
    assert result.exit_code == code, (result.exit_code, result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    return result


def refused(*arguments, code=78, given=b""):
    """Return what a command says that fails: one line, or one more for each of several problems."""
    result = run(*arguments, code=code, given=given)
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
    return [each["documents"][0][1:] for each in report["snapshots"]]


#: Words of letters alone, as the default pattern of tokens has them.
LETTERS = str.maketrans("0123456789", "abcdefghij")


def plant(path, n, n_words, *, n_topics=3, mean_length=40, truth=None):
    """Write documents of planted topics, a line each; the topics as a model, and their words."""
    planted = PlantedLDA(n_topics, n_words, mean_length=mean_length, seed=0)
    texts = [text.translate(LETTERS) for text in planted.texts(n)]
    as_json = path.suffix == ".jsonl"
    lines = (json.dumps({"text": text}) if as_json else text for text in texts)
    path.write_text("".join(f"{line}\n" for line in lines), "ascii")
    if truth is not None:
        words = [word.translate(LETTERS) for word in planted.words]
        truth.with_name("words").write_text("\n".join(words), "ascii")
        TopicModel(
            components=planted.components,
            prevalence=planted.alpha / planted.alpha.sum(),
            alpha=planted.alpha,
            background=planted.alpha @ planted.components / planted.alpha.sum(),
            vocabulary=Vocabulary.given(words),
        ).save(truth)


#: As for a corpus whose words are in all of its documents.
ALL_WORDS = ("vocabulary.max_document_frequency=1.0",)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Planted documents to learn from and to evaluate on, their truth, and a model."""
    folder = tmp_path_factory.mktemp("cli")
    plant(folder / "a.jsonl", 6000, 200, truth=folder / "truth")
    plant(folder / "all.txt", 6300, 200)
    lines = (folder / "all.txt").read_text("ascii").splitlines(keepends=True)
    (folder / "held_out.txt").write_text("".join(lines[6000:]), "ascii")
    run("fit", folder / "a.jsonl", "-k", 3, "-o", folder / "model", *ALL_WORDS)
    return folder
