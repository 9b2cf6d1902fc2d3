"""TLS and SASL for a Kafka connection. Secrets are named, never held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from streamlda.checks import one_of, require
from streamlda.stream.credentials import (
    MECHANISMS,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    PROTOCOLS,
    read_secret,
)


@dataclass(frozen=True, slots=True)
class Security:
    """Encryption and login of a connection.

    A secret comes from a file (the first line) or from an environment variable, whose *names* stand
    here; it is read for each connection, so it can be rotated.

    Attributes
    ----------
    protocol : {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
        As in Kafka's own settings.
    mechanism : str, optional
        For the SASL protocols: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
    username : str, optional
        For PLAIN and SCRAM.
    password_file, password_env : str, optional
        Where the password is; one of them.
    token_file, token_env : str, optional
        Where the token for OAUTHBEARER is that another program renews; one of them.
    ca_file : str, optional
        Certificates to trust, PEM; those of the system by default.
    certificate_file, key_file : str, optional
        Of the client, PEM, if the broker asks for them.
    key_password_file, key_password_env : str, optional
        Where the password of `key_file` is, if it has one.

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
    token_file: str | None = None
    token_env: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password_file: str | None = None
    key_password_env: str | None = None

    def __post_init__(self) -> None:
        one_of(PROTOCOLS, protocol=self.protocol)
        if self.sasl:
            one_of(MECHANISMS, mechanism=self.mechanism)
        password = (self.password_file, self.password_env)
        token = (self.token_file, self.token_env)
        key_password = (self.key_password_file, self.key_password_env)
        files = (self.ca_file, self.certificate_file, self.key_file, *key_password)
        given = {name: value for name, value in asdict(self).items() if value is not None}
        user, no_user = self.username and password.count(None) == 1, {self.username, *password}
        for holds, rule, remedy in (
            (
                self.mechanism not in PASSWORD_MECHANISMS or not self.sasl or user,
                "SASL needs a username and one source of the password",
                "set username, and password_file or password_env",
            ),
            (
                self.mechanism != OAUTHBEARER or (no_user == {None} and token.count(None) == 1),
                "OAUTHBEARER needs one source of the token",
                "set token_file or token_env, and no user",
            ),
            (
                self.mechanism == OAUTHBEARER or set(token) == {None},
                "tokens are for OAUTHBEARER only",
                "set mechanism to OAUTHBEARER, or leave the token out",
            ),
            (
                self.sasl or {self.mechanism, *no_user} == {None},
                "a user is for the SASL protocols only",
                "set protocol to SASL_SSL, or leave mechanism, username and password out",
            ),
            (
                self.tls or set(files) == {None},
                "certificates are for the TLS protocols only",
                "set protocol to SSL or SASL_SSL, or leave the files out",
            ),
            (
                (self.certificate_file is None) == (self.key_file is None),
                "a client certificate and its key must come together",
                "name both",
            ),
            (
                key_password.count(None) > (0 if self.key_file else 1),
                "a key password must have one source and belong to a key",
                "leave out what is too much",
            ),
        ):
            require(holds, rule, remedy=remedy, **given)

    @classmethod
    def of(cls, security: Self | Mapping[str, Any] | None) -> Self:
        """Return settings from a mapping of the attributes; None is a plain connection."""
        if security is None:
            return cls()
        if not isinstance(security, Mapping):
            return security
        check_names(cls, security)
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
        """Return the password of the user, read now; it must not be stored or shown."""
        file, variable = self.password_file, self.password_env
        return read_secret(file, variable) if file or variable else None

    def token(self) -> str:
        """Return the token that another program renews, read now."""
        return read_secret(self.token_file, self.token_env)

    def key_password(self) -> str | None:
        """Return the password of the client's key, read now."""
        file, variable = self.key_password_file, self.key_password_env
        return read_secret(file, variable) if file or variable else None


def check_names(settings: Any, given: Mapping[str, Any]) -> None:
    """Raise `InvalidSettingError` if one of the names is no field of a dataclass of settings."""
    known = settings.__dataclass_fields__
    require(
        set(given) <= set(known),
        f"options must be among {', '.join(known)}",
        unknown=", ".join(sorted(set(given) - set(known))),
        remedy="correct the name",
    )
