"""TLS and SASL for a Kafka connection. Secrets are named, never held."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from streamlda.errors import InvalidSettingError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Security:
    """How a connection is encrypted and who it says it is.

    A secret comes from a file (the first line) or from an environment variable, whose *names* stand
    here; it is read anew for each connection, so it can be rotated.

    Attributes
    ----------
    protocol : {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
        As in Kafka's own settings.
    mechanism : {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}, optional
        For the SASL protocols.
    username : str, optional
        For the SASL protocols.
    password_file, password_env : str, optional
        Where the password is; one of them for the SASL protocols.
    ca_file : str, optional
        Certificates to trust, PEM; those of the system by default.
    certificate_file, key_file : str, optional
        Of the client, PEM, if the broker asks for them.
    key_password_file, key_password_env : str, optional
        Where the password of `key_file` is, if it has one.

    Raises
    ------
    InvalidSettingError
        For a value that is none of these, or a part that is missing or of no use.

    Notes
    -----
    The name of the broker is always checked against its certificate. ``SASL_PLAINTEXT`` with
    ``PLAIN`` sends the password as it is: for a loopback or a trusted network only.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password_file: str | None = None
    key_password_env: str | None = None

    def __post_init__(self) -> None:
        _one_of("protocol", self.protocol, PROTOCOLS)
        password = (self.password_file, self.password_env)
        if self.sasl:
            _one_of("mechanism", self.mechanism, MECHANISMS)
            if not self.username or password.count(None) != 1:
                raise InvalidSettingError(
                    "SASL needs a username and one place of the password, got "
                    f"username={self.username!r} password_file={self.password_file!r} "
                    f"password_env={self.password_env!r}; set username and one of the other two"
                )
        elif self.mechanism or self.username or password != (None, None):
            raise InvalidSettingError(
                f"a user is for the SASL protocols only, got protocol={self.protocol!r}; "
                "set protocol to SASL_SSL, or leave mechanism, username and password out"
            )
        key = (self.certificate_file, self.key_file, self.key_password_file, self.key_password_env)
        if not self.tls and (self.ca_file, *key) != (None,) * 5:
            raise InvalidSettingError(
                f"certificates are for the TLS protocols only, got protocol={self.protocol!r}; "
                "set protocol to SSL or SASL_SSL, or leave the files out"
            )
        if (self.certificate_file is None) != (self.key_file is None):
            raise InvalidSettingError(
                "a client certificate and its key must come together, got "
                f"certificate_file={self.certificate_file!r} key_file={self.key_file!r}; name both"
            )
        if key[2:].count(None) == 0 or (self.key_file is None and key[2:] != (None, None)):
            raise InvalidSettingError(
                "a key password must stand in one place and belong to a key, got "
                f"key_file={self.key_file!r} key_password_file={self.key_password_file!r} "
                f"key_password_env={self.key_password_env!r}; leave out what is too much"
            )

    @classmethod
    def of(cls, security: Self | Mapping[str, Any] | None) -> Self:
        """Return settings from a mapping of the attributes; None is a plain connection."""
        if security is None:
            return cls()
        if not isinstance(security, Mapping):
            return security
        if unknown := set(security) - set(cls.__dataclass_fields__):
            raise InvalidSettingError(
                f"settings of security must be known, got {', '.join(sorted(unknown))}; known are "
                f"{', '.join(cls.__dataclass_fields__)}"
            )
        return cls(**security)

    @property
    def sasl(self) -> bool:
        """Whether a user logs in."""
        return self.protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    def password(self) -> str | None:
        """Return the password of the user, read now; the result must not be stored or shown."""
        return _secret("password", self.password_file, self.password_env)

    def key_password(self) -> str | None:
        """Return the password of the client's key, read now."""
        return _secret("key_password", self.key_password_file, self.key_password_env)


def _one_of(name: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidSettingError(
            f"{name} must be one of {', '.join(allowed)}, got {name}={value!r}"
        )


def _secret(name: str, file: str | None, variable: str | None) -> str | None:
    if file is not None:
        try:
            secret = Path(file).read_text("utf-8").split("\n", 1)[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            # Neither the cause nor the bytes: a decoding error would show the secret.
            raise InvalidSettingError(
                f"a secret must be readable, got {name}_file={file!r} ({type(error).__name__}); "
                "check the file and its permissions"
            ) from None
        if not secret:
            raise InvalidSettingError(
                "a secret must be in the first line of its file, got "
                f"{name}_file={file!r}; write it there"
            )
        return secret
    if variable is not None:
        if not (secret := os.environ.get(variable, "")):
            raise InvalidSettingError(
                "a secret must be in the environment and not empty, got "
                f"{name}_env={variable!r}; set the variable or name a file"
            )
        return secret
    return None
