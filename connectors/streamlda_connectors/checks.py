"""Faults of sources and positions: finding, remedy and class of each are data."""

from importlib import import_module
from typing import Any

from streamlda import errors
from streamlda.stream.source import Position

_FAULTS = errors.Faults(
    {
        errors.InvalidSettingError: {
            "append": "columns can only be appended to CSV; convert the file, or leave "
            "--append out",
            "certificates": "certificates or keys cannot be read as PEM; correct their names, "
            "permissions or contents, or take the password from the key",
            "delimiter": "delimiter must be one ASCII character, and no quote, blank or line end; "
            "leave it out to find it by the header",
            "encoding": "Python knows no such encoding of text; name another, such as cp1252, or "
            "leave it out to find it by the bytes",
            "inside": "records can only be inside an object in the format json; name the format "
            "json, or leave records_field out",
            "no fields": "users, times and ids can only be read from a format with fields; name "
            "another format, or leave them out",
            "registry url": "the url of the schema registry is not one http:// or https:// address "
            "without a user; set a username and the file of its password apart",
            "timeout": "timeout_seconds must be 0 or more",
            "url": "only local files without compression can be followed; read others from files",
        },
        errors.SourceError: {
            "closed": "the source is not open; make a new one",
            "column": "the file has no such column of text; set text_field (--text-field) to one "
            "that holds text, or leave the file out (--include)",
            "gap": "a file was removed, compressed or cut before it was read to its end; put it "
            "back, or start with allow_gaps to do without the rest",
            "name": "the name of a file is not UTF-8; rename it",
            "replay": "the stream is not replayed from its start; send the same input again, or "
            "start from the beginning",
            "records": "records cannot be read; check the disks of the brokers, then poll again",
            "shorter": "a file ends before what was read of it; restore it, or start from the "
            "beginning",
            "stream": "the stream cannot be read; redirect a file or pipe to it",
        },
        errors.SinkAwayError: {
            # Where no restart is needed, only somebody who corrects the topic.
            "letters refused": "the brokers refuse dead letters; check the topic, its "
            "max.message.bytes and the access rules, then try again",
            "letters late": "the brokers took no dead letters in time; check that they run and "
            "that all in-sync replicas answer, then try again",
        },
        errors.SourceAwayError: {
            "answer": "the brokers do not answer; wait, or check that they run",
            "directory": "the directory of a file that is not read to its end is missing; bring "
            "it back, or start from the beginning",
            "topic": "the topic does not exist; create it, or correct its name; who waits for it "
            "continues then",
        },
        errors.SourceRefusedError: {
            "another topic": "the topic was replaced by another while it was read; start from "
            "the beginning",
            "chosen partitions": "the topic lacks chosen partitions; name others, or add them",
            "cut log": "the log was cut before what was read of it; the brokers lost records: "
            "start with allow_gaps to continue without what was written there since",
            "other files": "the position was made with another list of files; name the same files "
            "in the same order, or start from the beginning",
            "other log": "the position was made with another topic and the partitions; connect to "
            "the same topic with the same partitions, or start from the beginning",
            "paths": "the position was made with other paths; name the same paths, and perhaps "
            "more, or start from the beginning",
            "position": "position() of this connector never returned the position; start from the "
            "beginning",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check


def with_reason(error: errors.StreamLDAError, reason: str) -> errors.StreamLDAError:
    """Return an error that says by a word, ``cause:detail``, why something is away or refused."""
    assert isinstance(error, errors.SourceError | errors.SinkAwayError)
    error.reason = reason
    return error


def check_open(closed: bool) -> None:
    """Raise `SourceError` if a source is closed."""
    check(not closed, "closed", closed=closed)


def count_at(position: Position, key: str) -> int:
    """Return the count >= 0 that stands under `key`, or raise `SourceError`."""
    value = position.get(key)
    if type(value) is not int or value < 0:
        raise not_a_position(key)
    return value


def not_a_position(key: str) -> errors.StreamLDAError:
    """Return the error for a mapping that `position` of a connector never returned."""
    return fault("position", bad_key=key)


def unreadable(name: str, error: OSError) -> errors.StreamLDAError:
    """Return the error for a file or directory that the system does not let us read."""
    why = error.strerror or type(error).__name__
    remedy = f"check that it exists and its permissions ({why})"
    rule = "a file or directory cannot be read"
    return errors.failure(rule, name=name, remedy=remedy, error=errors.SourceAwayError)


def import_extra(package: str, extra: str, purpose: str) -> Any:
    """Return a package, or raise `MissingExtraError`."""
    try:
        return import_module(package)
    except ImportError as error:
        raise errors.MissingExtraError(package, extra, purpose) from error
