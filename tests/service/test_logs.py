"""Log lines: parseable, on one line each, and without what others say."""

import json
import logging
import re
from collections.abc import Iterator

import pytest

from streamlda.errors import SourceError
from streamlda.service.logs import log, log_failure, start_logging

LOGGERS = (None, "streamlda", "streamlda_connectors")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, levels = root.handlers[:], [logging.getLogger(name).level for name in LOGGERS]
    yield
    root.handlers[:] = handlers
    for name, level in zip(LOGGERS, levels, strict=True):
        logging.getLogger(name).setLevel(level)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_json_lines_parse_whatever_the_values(capfd: pytest.CaptureFixture[str]) -> None:
    start_logging("json", "debug")
    log("info", "event", number=1, share=0.5, text='a "b"\nc\x00\u2028ü', none=None, other={1, 2})
    (line,) = capfd.readouterr().err.splitlines()
    found = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
    assert found.pop("other") in ("{1, 2}", "{2, 1}")
    assert found == {
        "level": "info",
        "event": "event",
        "number": 1,
        "share": 0.5,
        "text": 'a "b"\nc\x00\u2028ü',
        "none": None,
    }


def test_console_lines_are_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    start_logging("console", "info")
    log("warning", "event", text="two\nlines", word="one", share=1 / 3)
    log("debug", "hidden")
    (line,) = capfd.readouterr().err.splitlines()
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d warning event text="two\\nlines" word=one share=0\.3333', line
    )


@pytest.mark.parametrize("style", ["json", "console"])
def test_of_other_errors_only_class_and_place_are_shown(
    capfd: pytest.CaptureFixture[str], style: str
) -> None:
    start_logging(style, "info")
    log_failure("ours", raised(SourceError("a rule, got name=value; do this")))
    log_failure("system", raised(OSError(28, "No space left on device")))
    log_failure("other", raised(ValueError("canary")))
    found = capfd.readouterr().err
    assert "a rule, got name=value; do this" in found
    assert "No space left" in found
    assert "ValueError" in found
    assert found.count("test_logs.py:") == 3
    assert "canary" not in found


@pytest.mark.parametrize("style", ["json", "console"])
def test_of_other_packages_only_the_name_is_shown(
    capfd: pytest.CaptureFixture[str], style: str
) -> None:
    start_logging(style, "debug")
    for name in ("kafka.client", "snappy", "asyncio"):
        logging.getLogger(name).warning("got %s", "canary")
        logging.getLogger(name).info("hidden")
    try:
        raise ValueError("canary")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("canary")
    logging.getLogger("streamlda_connectors.files").info("ours")
    found = capfd.readouterr().err
    assert "canary" not in found
    assert "hidden" not in found
    assert [name in found for name in ("kafka.client", "snappy", "asyncio", "uvicorn.error")] == (
        [True] * 4
    )
    assert "ours" in found
    assert len(found.splitlines()) == 5
