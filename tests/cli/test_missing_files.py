"""Every argument and option that takes a file, with none there: one line that names it."""

import shlex

import pytest
from click.testing import CliRunner

from streamlda.cli import commands

FIT = "fit {folder}/a.jsonl -k 3 -o {new}/m"
PRIVATE = f"{FIT} --epsilon 5 --delta 1e-3 --ledger {{new}}/L --snapshot-every 300"


@pytest.mark.parametrize(
    "command",
    [
        *(f"{FIT} --{name}" for name in ("seed-topic", "vocabulary", "stop-words", "config")),
        *(f"{FIT} --set {name}=" for name in ("vocabulary.phrases", "topics.projection_file")),
        f"{PRIVATE} --set privacy.public_model=",
        f"{PRIVATE} --set vocabulary.hash_bits=4 --seed-topic",
        *("topics", "budget", "projection -o {new}/o", "report -o {new}/o", "site show"),
        *("reduce -k 1 -o {new}/o", "merge {folder}/model -o {new}/o"),
        *("compare {folder}/model", "infer {folder}/model", "evaluate {folder}/model"),
        "report {folder}/model --time-field t -o {new}/o --format jsonl --over-time",
    ],
)
@pytest.mark.parametrize("what", ["gone", "a folder"])
def test_a_file_that_is_none_is_named_with_what_to_do(folder, tmp_path, command, what):
    path = tmp_path / what
    (tmp_path / "a folder").mkdir()
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
    rule, _, found = line.partition(", got ")
    assert "must" in rule
    assert f"='{path}'" in found
    assert "; " in found
    assert "Errno" not in line
