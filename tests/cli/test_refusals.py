"""Refusals of every command: one line on standard error, an exit code, and nothing written."""

import shlex

import pytest
from click.testing import CliRunner

from streamlda.cli import commands
from tests.cli.conftest import refused

FIT = "fit {new}/a.txt -k 1 -o {new}/m"
CORPUS = "fit {folder}/all.txt -k 3 -o {new}/m --set"
INFER = "infer {folder}/model"
KAFKA = f"{INFER} --kafka-bootstrap 127.0.0.1:1 --kafka-topic in"
PLAN = "plan --records 1000 --epsilon 1"

#: Arguments, exit code, and words of the line.
REFUSED = [
    ("topics {folder}/held_out.txt", 65, "not written by streamlda"),
    ("fit --nonsense", 2, "No such option"),
    (f"{CORPUS} topics.cuont=3", 2, "--set topics.cuont: fit has no such setting; did you mean to"),
    (f"{CORPUS} topics.count", 2, "must be section.key=value, got 'topics.count'"),
    (f"{CORPUS} topics.restarts=x", 78, "topics.restarts must be an integer, got 'x' (flag)"),
    (f"{CORPUS} topics.count=4", 2, "topics.count is given twice, by --set and its flag"),
    (f"{CORPUS} kafka.password=secret", 2, "--set kafka.password: fit has no such setting"),
    ("run a --set infer.topic=b", 2, "run has no such setting; it is of streamlda infer"),
    ("plan --checkpoint-folder", 2, "No such option '--checkpoint-folder'"),
    ("fit a --hash-bits", 2, "is no option any more; use --set vocabulary.hash_bits=VALUE"),
    ("fit a --no-refine", 2, "--no-refine is no option any more; use --set topics.refine=false"),
    ("fit a --kafka-password-file", 2, "any more; use --set kafka.password_file=VALUE"),
    ("fit {new}/gone.txt -k 1 -o {new}/m", 74, "gone.txt"),
    (f"{FIT} source.kind=follow", 78, "source.kind follow needs a daemon (streamlda run)"),
    (f"{FIT} --topics many", 78, "--topics must be an integer, got 'many' (flag)"),
    ("fit {new}/gone -k 2 -o {new}/m --vocabulary {new}/one", 78, "topics=2 words=1"),
    (f"{FIT} vocabulary.phrases={{new}}/one", 78, "phrase='apple' words=1; leave it out"),
    ("fit {new}/a.txt -k 4 -o {new}/m", 78, "words=3 in_too_many_documents=0; ask"),
    (f"{FIT} -o {{new}}/a.txt", 78, "replace what is read"),
    (f"{FIT} -o {{new}}", 78, "no regular file"),
    (f"{FIT} -o {{new}}/no/m", 78, "missing or not writable"),
    (KAFKA, 78, "--output-topic must be set for Kafka"),
    (f"{KAFKA} --output-topic in", 78, "must be a topic of its own"),
    (f"{KAFKA} --output-topic out --output x", 2, "must be left out with --kafka-topic"),
    (f"{KAFKA} --output-topic out dead_letters.topic=out", 78, "must be a topic of its own"),
    (f"{INFER} {{folder}}/a.jsonl --append", 78, "to CSV, got format='jsonl'"),
    (f"{INFER} {{folder}}/a.jsonl {{folder}}/a.jsonl --append", 78, "to one file, got files=2"),
    (f"{INFER} a.csv --append --top 1", 2, "leave out --top and --dask"),
    ("plan --records 1000", 2, "set --epsilon and --delta"),
    (PLAN, 78, "--epsilon needs --delta"),
    ("doctor --kafka-bootstrap localhost:9", 78, "must name files, or for a stream kafka.topic"),
]


@pytest.mark.parametrize(("given", "code", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_refusal_is_one_line_and_an_exit_code(folder, tmp_path, monkeypatch, given, code, words):
    monkeypatch.delenv("STREAMLDA_KAFKA_BOOTSTRAP", raising=False)
    texts = {"a.txt": "apple bread cheese\n" * 9, "one": "apple\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "ascii")
    said = refused(*shlex.split(given.format(folder=folder, new=tmp_path)), code=code)
    assert words in said
    assert said.count("\n") == 1
    assert "=secret" not in said
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts


PRIVATE = "--epsilon 5 --delta 1e-3 --ledger {new}/L --snapshot-every 300"


@pytest.mark.parametrize(
    "command",
    [
        *(f"{FIT} --{name}" for name in ("vocabulary", "stop-words", "config")),
        *(f"{FIT} --set {name}=" for name in ("vocabulary.phrases", "topics.projection_file")),
        f"{FIT} {PRIVATE} --set privacy.public_model=",
        *("topics", "budget", "projection -o {new}/o", "report -o {new}/o", "site show"),
        *("reduce -k 1 -o {new}/o", "merge {folder}/model -o {new}/o"),
        *("compare {folder}/model", "infer {folder}/model", "evaluate {folder}/model"),
    ],
)
@pytest.mark.parametrize("what", ["gone", "a folder"])
def test_a_file_that_is_none_is_named_with_what_to_do(folder, tmp_path, command, what):
    path = tmp_path / what
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a.txt").write_text("apple bread cheese\n" * 9, "ascii")
    arguments = shlex.split(command.format(folder=folder, new=tmp_path))
    if what == "a folder" and command.startswith("merge"):
        # With model files it is one of checkpoints.
        arguments.remove(str(folder / "model"))
    if command.endswith("="):
        arguments[-1] += str(path)
    else:
        arguments.append(str(path))
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code in (65, 74, 78), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("streamlda: error: ")
    found = line.partition(", got ")[2]
    assert f"='{path}'" in found
    assert "; " in found
    assert "Errno" not in line
