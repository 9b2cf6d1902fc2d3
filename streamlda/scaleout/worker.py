"""Plugin of Dask for the workers of a fit: their memory, their folder, fewer callbacks."""

from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin
from tornado.ioloop import PeriodicCallback

from streamlda.scaleout import row_files
from streamlda.utils.process import resident_bytes, return_freed_memory

#: Fraction of its limit from which on a worker returns what was freed, and how often, in seconds.
#: At 0.8 Dask pauses it.
TRIM, EVERY_SECONDS = 0.6, 1.0

#: Callbacks that a worker makes so many times more rarely in a fit: they only watch it.
RARELY, CALLS = 10, ("profile", "profile-cycle", "tick")

NAME = "streamlda"


class FitWorker(WorkerPlugin):
    """Plugin that returns freed memory to the system while a worker takes much of its limit.

    Dask pauses a worker by what the system says it takes. The allocator keeps most of what is
    freed, and a paused worker runs nothing: without this it was seen to stay paused to the end.
    """

    idempotent = True
    name = NAME

    def setup(self, worker: Worker) -> None:
        """Keep documents in the folder of the worker, and look at its memory if it has a limit."""
        row_files.folder = worker.local_directory
        self._set_times(worker, RARELY)
        limit = worker.memory_manager.memory_limit

        def look() -> None:
            if limit is not None and resident_bytes() > TRIM * limit:
                return_freed_memory()

        worker.periodic_callbacks[NAME] = PeriodicCallback(look, 1000 * EVERY_SECONDS)
        worker.periodic_callbacks[NAME].start()

    def teardown(self, worker: Worker) -> None:
        """Leave the worker as it was."""
        row_files.folder = None
        self._set_times(worker, 1 / RARELY)
        worker.periodic_callbacks.pop(NAME).stop()

    def _set_times(self, worker: Worker, times: float) -> None:
        for name in CALLS:
            if (call := worker.periodic_callbacks.get(name)) is not None:
                call.callback_time *= times
