"""Security of connections to brokers, and secrets that are named and never held."""

import os
from pathlib import Path

from streamlda.errors import require

#: Ways to connect to Kafka, and to log in there; the names are Kafka's own.
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER, AWS_MSK_IAM, GSSAPI = "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"
MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER, AWS_MSK_IAM, GSSAPI)


def read_secret(file: str | None, variable: str | None) -> str:
    """Return the first line of a file or, without one, the value of an environment variable.

    Read it for each use, so that it can be rotated. No error holds any of it.
    """
    problem = ""
    try:
        if file is None:
            found = os.environ.get(variable or "", "")
        else:
            found = Path(file).read_text("utf-8").split("\n", 1)[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        found, problem = "", type(error).__name__
    # Raised here and not above: the context of an error would hold bytes that are not UTF-8.
    about = {"variable": variable} if file is None else {"file": file, "problem": problem}
    remedy = "write it into the first line of the file, or set the variable"
    require(found, "the secret cannot be read, or is empty", **about, remedy=remedy)
    return found
