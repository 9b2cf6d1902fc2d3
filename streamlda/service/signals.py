"""Signals that end the process, and states of it for systemd."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from threading import Thread, Timer
from typing import NoReturn

from streamlda.service.logs import log
from streamlda.utils import exit_codes

SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: From the first signal to the end of the process, at most.
LATEST_EXIT_SECONDS = 9.7


def watch_signals(take: Callable[[int], None], late: Callable[[], None]) -> None:
    """Call `take` with the first signal, and `late` if the process goes on; the second ends it.

    All in threads, whatever the main thread does. Python's own handlers run there, and a library
    may keep it waiting: it does not return at a signal, or the signal came just before the wait
    began. Called again, it replaces what was to be called.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in SIGNALS:
        signal.signal(number, _wake)
    watch = Thread(target=_watch, args=(reader, take, late), name="streamlda-signals", daemon=True)
    watch.start()


def _wake(number: int, frame: object) -> None:
    """Interrupt what the main thread waits for; the signal itself is in the pipe."""


def _watch(reader: int, take: Callable[[int], None], late: Callable[[], None]) -> None:
    taken = False
    while True:
        for number in os.read(reader, 64):
            if number in SIGNALS:
                if taken:
                    os._exit(128 + number)
                taken = True
                timer = Timer(LATEST_EXIT_SECONDS, late)
                timer.daemon = True
                timer.start()
                take(number)


def end_at_signals() -> None:
    """Let a signal end the process at once with code 0: nothing was begun that must be finished."""
    watch_signals(_end_at_once, late=lambda: None)


def _end_at_once(number: int) -> None:
    log("info", "signal", number=number, phase="starting")
    leave(exit_codes.OK)


def leave(code: int) -> NoReturn:
    """End the process at once, whatever threads still do: all that counts is on the disk."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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
