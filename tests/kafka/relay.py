"""A relay between a client and a broker, which lets connections fall silent."""

import socket
from contextlib import suppress
from threading import Thread


class Relay:
    """Passes connections on to an address."""

    def __init__(self, target, *, port=0):
        self._target = target.split(":")
        self._server = socket.create_server(("127.0.0.1", port))
        self._opened, self._held, self._silences = [self._server], False, 0
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        Thread(target=self._accept, daemon=True).start()

    def fall_silent(self):
        """Pass on nothing of any connection from now on, and close none: they are half-open."""
        self._silences += 1
        self._held = True

    def go_on(self):
        """Pass new connections on; those that fell silent stay so."""
        self._held = False

    def _accept(self):
        with suppress(OSError):
            while True:
                client = self._server.accept()[0]
                self._opened.append(client)
                if self._held:
                    continue
                there = socket.create_connection((self._target[0], int(self._target[1])))
                self._opened.append(there)
                for way in ((client, there), (there, client)):
                    Thread(target=self._pass_on, args=way, daemon=True).start()

    def _pass_on(self, source, target):
        silences = self._silences
        with suppress(OSError):
            while part := source.recv(2**16):
                if silences != self._silences:
                    return
                target.sendall(part)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._server.shutdown(socket.SHUT_RDWR)
        for each in self._opened:
            each.close()
