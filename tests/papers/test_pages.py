"""The pages of the papers are true: imports, tests, figures and examples are what they say."""

import inspect
import re
from pathlib import Path

import pytest

from streamlda import papers

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "streamlda/papers/README.md").read_text("utf-8")
BENCH = "".join(page.read_text("utf-8") for page in sorted((ROOT / "bench").glob("*.md")))
SECTIONS = {part.partition("\n")[0]: part for part in BENCH.split("\n## ")}
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ERRATA = {
    f"{page.stem} {entry.partition('.')[0]}": entry
    for page in sorted((ROOT / "streamlda/papers/errata").glob("*.md"))
    for entry in page.read_text("utf-8").split("\n### ")[1:]
}
ROWS = [
    [cell.strip() for cell in line.strip("| \n").split(" | ")]
    for table in PAGE.split("\n| item")[1:]
    for line in table.partition("\n\n")[0].splitlines()[2:]
]
#: What is not reproduced says so, and why.
NOT_REPRODUCED = "not reproduced: "
#: There is nothing to measure.
BY_TEST = "held by its test"


def test_every_public_name_is_on_the_page_and_has_a_docstring():
    public = {name for name, value in vars(papers).items() if callable(value)}
    named = {
        name
        for _, imports, *_ in ROWS
        for name in re.findall(r"`(\w+)[`(]", imports)
        if not imports.startswith("`streamlda ")
    }
    assert named | {"make_plan"} <= public
    assert public <= set(re.findall(r"\w+", "".join(SNIPPETS)))
    for name in sorted(public):
        found = getattr(papers, name)
        assert "Parameters\n" in found.__doc__ or not inspect.signature(found).parameters, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = papers.nothing


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_tests_and_figures_that_are_there(row):
    _, _, _, tests, measured, _ = row
    for name in re.findall(r"`([\w/]+)`", tests):
        places = (ROOT / f"tests/papers/{name}.py", ROOT / f"tests/{name}.py")
        assert any(place.exists() for place in places), name
    assert set(row[1:5]) != {"-"}
    if measured == BY_TEST:
        assert tests != "-"
    if measured == BY_TEST or measured.startswith(NOT_REPRODUCED) or "](" in measured:
        return
    named = [name for name in SECTIONS if name in re.findall(r"[\w-]+", measured)]
    assert named
    text = "".join(SECTIONS[name] for name in named)
    for figure in re.findall(r"\d+\.\d+|\d,\d{3}", re.sub(r"\(paper[^)]*\)", "", measured)):
        assert figure in text, figure


@pytest.mark.parametrize("code", SNIPPETS, ids=lambda code: code.partition("\n")[0])
def test_examples_of_the_page_run(code):
    exec(compile(code, "README.md", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("name", ERRATA)
def test_an_erratum_has_a_check_that_holds(name, monkeypatch):
    (code, *none) = re.findall(r"```python\n(.*?)```", ERRATA[name], re.DOTALL) or [""]
    checks = re.findall(r"^Check: `(.+?)::(test_\w+)`$", ERRATA[name], re.MULTILINE)
    assert not none
    assert len(checks) + bool(code) == 1
    for path, test in checks:
        assert f"\ndef {test}(" in (ROOT / path).read_text("utf-8")
    monkeypatch.chdir(ROOT)
    assert not code or "assert " in code
    exec(compile(code, name, "exec"), {"__name__": "example"})
