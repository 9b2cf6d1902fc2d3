"""``streamlda report``: the page it writes, and what it refuses."""

import pytest
from click.testing import CliRunner

from streamlda.cli import Commands
from streamlda.cli.report import labels, report
from tests.report.test_report import Page
from tests.service.planted import model, shifted, topics


def run(*arguments, code=0):
    group = Commands("streamlda", commands=[report])
    result = CliRunner().invoke(group, ["report", *map(str, arguments)])
    assert result.exit_code == code, (result.exit_code, result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    return result


@pytest.fixture
def files(tmp_path):
    for name, amount in (("old", 0.0), ("new", 0.2)):
        model(shifted(topics(), amount)).save(tmp_path / f"{name}.model")
    return tmp_path


def test_the_command_writes_a_page(files):
    target = files / "r.html"
    said = run(files / "old.model", files / "new.model", "-o", target, "--title", "T", "--words", 3)
    assert said.stderr == f"4 topics, compared over 2 models\nreport: {target}\n"
    assert said.stdout == ""
    html = target.read_text("utf-8")
    page = Page(html)
    assert page.text[""].count("T\n") == 2
    assert len(page.all("li")) < 100
    assert "old" in page.text["changes"]
    # Where files lie on this machine is nobody's business.
    assert str(files) not in html
    assert run(files / "old.model", "-o", target, "-q").stderr == ""


def test_the_command_refuses_what_it_cannot_compare_and_leaves_nothing(files):
    model(topics(), vocabulary=None).save(files / "other.model")
    target = files / "r.html"
    said = run(files / "old.model", files / "other.model", "-o", target, code=78)
    assert "first='old' second='other'" in said.stderr
    assert said.stderr.count("\n") == 1
    (files / "broken.model").write_bytes(b"no model")
    assert "broken.model" in run(files / "broken.model", "-o", target, code=65).stderr
    assert "No such file" in run(files / "missing", "-o", target, code=74).stderr
    said = run(files / "old.model", "-o", files / "old.model", code=78)
    assert "must not replace what is read" in said.stderr
    assert "must exist" in run(files / "old.model", "-o", files / "no" / "r", code=78).stderr
    assert run("-o", target, code=2).stderr
    assert not target.exists()


def test_files_of_one_name_are_told_apart():
    assert labels(["a/x.model", "b/x.model", "y"]) == ["x (1)", "x (2)", "y"]
