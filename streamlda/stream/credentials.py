"""How a connection to brokers is secured, and where secrets stand: named, never held."""

from __future__ import annotations

import os
from pathlib import Path

from streamlda.checks import failure, require

#: Ways to connect to Kafka, and to log in there; the names are Kafka's own.
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def read_secret(file: str | None, variable: str | None) -> str:
    """Return the first line of a file or, without one, the value of an environment variable.

    The result must not be stored or shown; read it for each use, so that it can be rotated. No
    error holds any of it, in its message or in what it is chained to.

    Raises
    ------
    InvalidSettingError
        If the file cannot be read, or the secret is empty.
    """
    found = os.environ.get(variable or "", "")
    if file is not None:
        try:
            found = Path(file).read_text("utf-8").split("\n", 1)[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            # Not chained: a decoding error shows the bytes.
            raise failure(
                "the file of a secret must be readable",
                file=file,
                error_type=type(error).__name__,
                remedy="correct the name or the permissions",
            ) from None
    require(
        found,
        "a secret must not be empty",
        file=file,
        variable=variable,
        remedy="write it into the first line of the file, or set the variable",
    )
    return found
