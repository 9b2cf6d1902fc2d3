"""Faults of sources and positions: rule, remedy and class of each are data."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from streamlda import errors
from streamlda.stream.source import Position

_FAULTS = errors.Faults(
    {
        errors.InvalidSettingError: {
            "append": "columns can only be appended to CSV; convert the file, or leave "
            "--append out",
            "certificates": "the files of certificates and keys must be readable, and in PEM; "
            "correct their names, permissions or contents, or take the password from the key",
            "delimiter": "a delimiter must be one ASCII character, and no quote, blank or line "
            "end; leave it out to find it by the header",
            "encoding": "an encoding must be one of text that Python knows, such as cp1252, utf-16 "
            "or shift_jis; leave it out to find it by the bytes",
            "inside": "records can only be inside an object in the format json; name the format "
            "json, or leave records_field out",
            "no fields": "users, times and ids can only be read from a format with fields; name "
            "another format, or leave them out",
            "registry url": "the url of a schema registry must begin with http:// or https://, "
            "name one address, and name no user; set a username and the file of its password apart",
            "timeout": "a poll must be given 0 seconds or more",
            "url": "only local files without compression can be followed; read others from files",
        },
        errors.SourceError: {
            "closed": "the source is not open; make a new one",
            "column": "a file must have the text column, and it must hold strings; set text_field "
            "(--text-field) to one that holds text, or leave the file out (--include)",
            "gap": "a file was removed, compressed or cut before it was read to its end; put it "
            "back, or start with allow_gaps to do without the rest",
            "name": "the name of a file must be UTF-8; rename it",
            "replay": "a stream must be replayed from its start; send the same input again, or "
            "start from the beginning",
            "records": "records must be readable; check the disks of the brokers, then poll again",
            "shorter": "a file ends before what was read of it; restore it, or start from the "
            "beginning",
            "stream": "a stream must be readable; redirect a file or pipe to it",
        },
        errors.SinkAwayError: {
            # Where no restart is needed, only somebody who corrects the topic.
            "letters refused": "the brokers must take dead letters; check the topic, its "
            "max.message.bytes and the access rules, then try again",
            "letters late": "the brokers must take dead letters in time; check that they run and "
            "that all in-sync replicas answer, then try again",
        },
        errors.SourceAwayError: {
            "answer": "the brokers must answer; wait, or check that they run",
            "directory": "the directory of a file that is not read to its end is missing; bring "
            "it back, or start from the beginning",
            "topic": "a topic must exist; create it, or correct its name; who waits for it "
            "continues then",
        },
        errors.SourceRefusedError: {
            "another topic": "a topic must stay the same while it is read; start from the "
            "beginning if it was replaced by another",
            "chosen partitions": "the chosen partitions must exist; name others, or add partitions "
            "to the topic",
            "cut log": "a log must not be cut before what was read of it; the brokers lost "
            "records: start with allow_gaps to continue without what was written there since",
            "other files": "the position was made with another list of files; name the same files "
            "in the same order, or start from the beginning",
            "other log": "the position was made with another topic and the partitions; connect to "
            "the same topic with the same partitions, or start from the beginning",
            "paths": "the position was made with other paths; name the same paths, and perhaps "
            "more, or start from the beginning",
            "position": "a position must be one that position() of this connector returned; start "
            "from the beginning",
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
    rule = "files and directories must be readable"
    return errors.failure(rule, name=name, remedy=remedy, error=errors.SourceAwayError)


def import_extra(package: str, extra: str, purpose: str) -> Any:
    """Return a package, or raise `MissingExtraError`."""
    try:
        return import_module(package)
    except ImportError as error:
        raise errors.MissingExtraError(package, extra, purpose) from error
