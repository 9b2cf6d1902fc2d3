"""States of the daemon for systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from streamlda.service.logs import log


class Supervisor:
    """Sends states to systemd by a datagram; does nothing under anything else.

    Under systemd, ``NOTIFY_SOCKET`` is set.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        address = (os.environ if environment is None else environment).get("NOTIFY_SOCKET", "")
        # A name in the abstract namespace is written with @ in place of its first byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._is_ready = False

    def ready(self) -> None:
        """Say that the daemon has started: it consumes, or waits for what is away."""
        if not self._is_ready:
            self._is_ready = True
            self._send(f"READY=1\nMAINPID={os.getpid()}")

    def alive(self) -> None:
        """Say that the loop went round: to be called by the loop itself, and by nothing else."""
        if self._is_ready:
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that it is about to end."""
        self._send("STOPPING=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            # A supervisor that does not read must not hold up the loop.
            sender.setblocking(False)
            try:
                sender.sendto(state.encode("ascii"), self._address)
            except BlockingIOError:
                log("debug", "supervisor-busy")
            except OSError as error:
                # A supervisor that is gone must not end the daemon: the log says so.
                log("warning", "supervisor-away", error=type(error).__name__)
                self._address = ""
