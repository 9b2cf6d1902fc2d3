"""Log lines of the daemon: an event and its values, for people or as JSON; never document text."""

import json
import logging
import sys
import time
from typing import Any

from streamlda.errors import SourceError, StreamLDAError, name_errno

logger = logging.getLogger("streamlda.service")

#: Whose messages are shown. Those of other packages may quote what they read, so of their warnings
#: only the logger, the level, and the class and errno of an error are.
OURS = ("streamlda", "streamlda_connectors")

#: Of each logger of others, one line in this time.
SELDOM_SECONDS = 60.0


def log(level: str, event: str, **values: Any) -> None:
    """Log an event with plain values, at ``debug``, ``info``, ``warning`` or ``error``."""
    logger.log(logging.getLevelNamesMapping()[level.upper()], event, extra={"values": values})


def name_reason(error: BaseException) -> str:
    """Return a word for the first cause of an error: an errno or a class, never text."""
    if isinstance(error, SourceError) and error.reason:
        return error.reason
    behind = error
    while behind.__cause__ is not None:
        behind = behind.__cause__
        if isinstance(behind, SourceError) and behind.reason:
            return behind.reason
    named = name_errno(behind) or getattr(behind, "sqlite_errorname", None)
    return named or type(behind).__name__


def log_failure(event: str, error: BaseException, **values: Any) -> None:
    """Log an error: its class, where it was raised and, if the message is our own, the message."""
    values["error"] = type(error).__name__
    if isinstance(error, StreamLDAError | OSError):
        values["message"] = str(error)
    trace, calls = error.__traceback__, []
    while trace is not None:
        code = trace.tb_frame.f_code
        calls.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    values["at"] = " > ".join(calls[-6:])
    log("error", event, **values)


def start_logging(style: str, level: str) -> None:
    """Send all log lines to standard error, as ``console`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(as_json=style == "json"))
    handler.addFilter(_Seldom())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())


class _Seldom(logging.Filter):
    """Lets a line of each logger of others through once in a while, with the count of the rest.

    A client of brokers that are away says so every second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is shown."""
        if _is_ours(record):
            return True
        now = time.monotonic()
        shown, left_out = self._known.get(record.name, (-SELDOM_SECONDS, 0))
        if now - shown < SELDOM_SECONDS:
            self._known[record.name] = shown, left_out + 1
            return False
        self._known[record.name] = now, 0
        record.values = {"logger": record.name, "left_out": left_out, **_list_errors(record)}
        return True


def _list_errors(record: logging.LogRecord) -> dict[str, str]:
    """Return class and errno of an error that a line of others is about; never its text."""
    given = record.args if isinstance(record.args, tuple) else ()
    for error in (*given, record.exc_info[1] if record.exc_info else None):
        if isinstance(error, BaseException):
            number = name_errno(error)
            return {"error": type(error).__name__, **({"errno": number} if number else {})}
    return {}


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in OURS


class _Lines(logging.Formatter):
    """Lines of events, as JSON or for people."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        event = record.getMessage() if _is_ours(record) else "library"
        level, values = record.levelname.lower(), getattr(record, "values", {})
        if self._as_json:
            at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            head = {"time": f"{at}.{int(record.msecs):03d}Z", "level": level, "event": event}
            return json.dumps({**head, **values}, default=str)
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        said = " ".join(f"{name}={_plain(value)}" for name, value in values.items())
        return f"{at} {level:7} {event} {said}".rstrip()


def _plain(value: Any) -> str:
    """Return a value on one line, quoted where it holds spaces."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return json.dumps(text) if text.split() != [text] else text
