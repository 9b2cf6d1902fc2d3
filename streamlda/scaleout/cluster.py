"""The cluster: reached, checked, given tasks and waited for. Only this module knows Dask."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from streamlda.engine.settings import EngineSettings
from streamlda.errors import MissingExtraError, StreamLDAError
from streamlda.scaleout.faults import check, fault
from streamlda.stream.counts import RecordCounts

if TYPE_CHECKING:
    from dask.delayed import Delayed
    from distributed import Client

#: Gets what is being done, what was met so far, and how many of how many parts of it are done.
Progress = Callable[[str, RecordCounts, int, int], None]

#: Packages that must be the same everywhere, for messages to be read and kernels to be equal.
ALIKE = ("python", "streamlda", "numpy", "numba", "scipy", "dask", "distributed", "cloudpickle")

#: Longest wait for a worker, at the beginning or after the last one is gone, in seconds.
PATIENCE_SECONDS = 60.0

#: Times that a task is given to further workers after it, or somebody else, ended as many as Dask
#: allows (4): spot machines go away by dozens.
MOST_LOSSES = 25

#: How often workers are looked at while a result is waited for, in seconds.
POLL_SECONDS = 0.5


#: Bytes of a worker that has loaded the kernels and does nothing (200 MB were measured), and of a
#: block of documents while it is read (60 MB).
IDLE_BYTES, BLOCK_BYTES = 200e6, 64e6

#: Sets of sums that a worker may have: three while two are merged, and others that wait for theirs.
SETS = 6

#: Fraction of its limit at which a worker of Dask pauses.
PAUSE = 0.8


class StoppedError(Exception):
    """The caller wants the end; never leaves this package."""


def require_dask() -> None:
    """Raise `MissingExtraError` if distributed is not installed."""
    if find_spec("distributed") is None:
        raise MissingExtraError("distributed", "dask", "learning on a Dask cluster")


@contextmanager
def connect(address: str, *, timeout_seconds: float = 10.0) -> Iterator[Client]:
    """Reach a scheduler, check its cluster (`check_cluster`), and leave it at the end."""
    require_dask()
    import warnings

    from distributed import Client

    try:
        # Asked first: a client that cannot connect leaves a thread behind, and one that is then
        # collected while the next one starts was seen to wait for it, and it for the other.
        asyncio.run(_answers(address, timeout_seconds))
        with warnings.catch_warnings():
            # Versions that differ are an error here, raised below.
            warnings.filterwarnings("ignore", "(?s).*Mismatched versions found")
            client = Client(address, timeout=timeout_seconds, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError, MemoryError) as error:
        # Of a program that is no scheduler, the first bytes are taken for a length.
        problem = type(error).__name__
        raise fault("answer", address=address, seconds=timeout_seconds, problem=problem) from error
    with client:
        check_cluster(client, timeout_seconds)
        yield client


async def _answers(address: str, timeout_seconds: float) -> None:
    """Raise what connecting raises, if it does."""
    from distributed.comm.core import connect as reach
    from distributed.security import Security

    security: Any = Security()  # type: ignore[no-untyped-call]
    options = security.get_connection_args("client")
    comm: Any = await reach(address, timeout=timeout_seconds, **options)  # type: ignore[no-untyped-call]
    await comm.close()


def check_cluster(client: Client, timeout_seconds: float = PATIENCE_SECONDS) -> None:
    """Raise `ClusterError` if the scheduler is gone, there is no worker, or versions differ."""
    try:
        client.wait_for_workers(1, timeout=timeout_seconds)
        found: Any = client.get_versions(packages=ALIKE[1:])
    except TimeoutError as error:
        raise fault("worker", workers=0, seconds=timeout_seconds) from error
    except OSError as error:
        raise fault("answer", problem=type(error).__name__) from error
    differing = list[str]()
    for name in ALIKE:
        # Of Python two numbers.
        most = 2 if name == "python" else None
        ours, *theirs = (
            ".".join(str(about["packages"][name]).split(".")[:most])
            for about in (found["client"], found["scheduler"], *found["workers"].values())
        )
        if others := {*theirs} - {ours}:
            differing.append(f"{name}={ours} there={','.join(sorted(others))}")
    check(not differing, "versions", differing="; ".join(differing))


class MemoryPlan(NamedTuple):
    """Most bytes of one worker and of the driver, and bytes of a set of sums."""

    worker: float
    driver: float
    sums: float

    @classmethod
    def of(cls, settings: EngineSettings, n_features: int) -> Self:
        """Return the plan for V words, as many triple columns as the settings say."""
        d, t, k = n_features, settings.n_triple_columns, settings.n_components
        m = min(d, settings.n_columns)
        sums, projection = 8.0 * (3 * d + d * m + d * t + 2 * t**2 + 2 * t**3), 8.0 * d * m
        refinement = 24.0 * d * k + 2**25 if settings.refines else 0.0
        worker = IDLE_BYTES + BLOCK_BYTES + max(projection + SETS * sums, refinement)
        return cls(worker, IDLE_BYTES + 2 * projection + sums + refinement, sums)


def plan_memory(client: Client, settings: EngineSettings, n_features: int, shards: int) -> str:
    """Return a line about the memory of a fit; `ClusterError` unless every worker has room."""
    workers: Any = client.scheduler_info()["workers"]
    limit = min(float(about["memory_limit"] or "inf") for about in workers.values())
    plan, fewer = MemoryPlan.of(settings, n_features), n_features
    while fewer > settings.n_components and MemoryPlan.of(settings, fewer).worker > PAUSE * limit:
        fewer //= 2
    about = {"needed_mb": round(plan.worker / PAUSE / 1e6), "words": n_features}
    about |= {"topics": settings.n_components, "words_with_room": fewer}
    fits = plan.worker <= PAUSE * limit
    check(fits, "room for sums", **about, memory_limit_mb=round(limit / 1e6) if not fits else None)
    of = "no limit" if limit == float("inf") else f"{limit / 1e6:,.0f} MB"
    return (
        f"cluster: workers {len(workers):,}, shards {shards:,}; a worker takes at most "
        f"{plan.worker / 1e6:,.0f} MB (of {of}) beside documents, the driver "
        f"{plan.driver / 1e6:,.0f} MB and the first documents; a set of sums is "
        f"{plan.sums / 1e6:,.1f} MB; documents are kept as counts on the disks of workers"
    )


class SentValue:
    """A value that is sent with the tasks. What it is does not show where tasks are shown."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "SentValue()"

    def __call__(self) -> Any:
        """Return the value."""
        return self.value


class Run:
    """The tasks of one fit: made, computed in one graph, waited for.

    Tasks are named ``streamlda-KIND-RUN-NUMBER``, so that the dashboard counts them by kind.
    """

    def __init__(
        self,
        client: Client,
        patience_seconds: float = PATIENCE_SECONDS,
        should_stop: Callable[[], bool] = lambda: False,
        state_folder: str | None = None,
    ) -> None:
        self._client: Any = client
        self._patience, self._state_folder = patience_seconds, state_folder
        self._should_stop = should_stop
        self.stopped = False
        self._id = f"r{secrets.token_hex(4)}0"
        self._made = 0

    @contextmanager
    def set_workers(self) -> Iterator[None]:
        """Let workers have a plugin until the end of the block (`streamlda.scaleout.worker`)."""
        from streamlda.scaleout.worker import NAME, FitWorker

        self._client.register_plugin(FitWorker())
        try:
            yield
        finally:
            # Another fit on the cluster may have ended it, and a lost scheduler is said elsewhere.
            with suppress(OSError, ValueError, TimeoutError):
                if self._client.status == "running":
                    self._client.unregister_worker_plugin(NAME)

    def task(self, kind: str, function: Callable[..., Any], *arguments: Any) -> Delayed:
        """Return a call to be made on a worker; arguments may be tasks, or small values."""
        from dask.delayed import delayed

        self._made += 1
        name = f"streamlda-{kind}-{self._id}-{self._made}"
        make: Any = delayed(function, pure=False, traverse=False)
        return make(*arguments, dask_key_name=name)  # type: ignore[no-any-return]

    def send(self, value: Any) -> Any:
        """Return a placeholder for a value in a graph, sent once; tasks and futures stay."""
        from dask.base import is_dask_collection
        from distributed import Future

        if value is None or is_dask_collection(value) or isinstance(value, Future):
            return value
        return self.task("given", SentValue(value))

    def tree(self, kind: str, join: Callable[..., Any], leaves: Sequence[Delayed]) -> Delayed:
        """Return the task that joins all leaves, neighbours first: the order is always the same."""
        level = list(leaves)
        while len(level) > 1:
            pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
            level = [self.task(kind, join, *own) if own[1:] else own[0] for own in pairs]
        return level[0]

    def start(self, tasks: Sequence[Delayed]) -> list[Any]:
        """Begin to compute tasks; their results, arguments of others, stay until `release`."""
        import dask

        # The projection goes to the scheduler once, and it is as large as it is.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return list(self._client.compute(list(tasks)))

    def release(self, futures: Sequence[Any]) -> None:
        """Keep results of `start` only as long as running tasks need them."""
        for future in futures:
            future.release()

    def compute(
        self, tasks: Sequence[Delayed], on_result: Callable[[Any], None] | None = None
    ) -> list[Any]:
        """Compute tasks and return their results, each given to `on_result` as it comes.

        What a task raised is raised, and all tasks are cancelled then; so they are where the caller
        wants the end (`StoppedError`, once). Tasks of workers that are killed are given to others.
        """
        from distributed import CancelledError, KilledWorker

        futures, results, losses = self.start(tasks), dict[str, Any](), Counter[Any]()
        done = SimpleQueue[Any]()
        alone_since: float | None = None
        try:
            for future in futures:
                future.add_done_callback(done.put)
            while len(results) < len(futures):
                if self._should_stop() and not self.stopped:
                    self.stopped = True
                    raise StoppedError
                try:
                    future = done.get(timeout=POLL_SECONDS)
                    results[future.key] = future.result()
                except Empty:
                    now = time.monotonic()
                    alone_since = None if self._client.nthreads() else alone_since or now
                    if alone_since is not None and now - alone_since > self._patience:
                        raise fault("lost workers", workers=0, seconds=self._patience) from None
                except KilledWorker as error:
                    losses[error.task] += 1
                    self._check_killer(error, losses[error.task])
                    self._client.sync(self._retry, future.key)
                    future.add_done_callback(done.put)
                else:
                    if on_result is not None:
                        on_result(results[future.key])
            return [results[future.key] for future in futures]
        except BaseException as error:
            # Also at Ctrl-C: what is not done yet is wanted by nobody.
            with suppress(OSError):
                self._client.cancel(futures, force=True)
            # Asking a lost scheduler raises an OSError without a number.
            own = isinstance(error, StreamLDAError) or getattr(error, "errno", 0) is not None
            if isinstance(error, CancelledError) or not own:
                kept = "nothing was written"
                if self._state_folder is not None:
                    kept = f"the last round of a refinement is in {self._state_folder}"
                raise fault("lost scheduler", problem=type(error).__name__, kept=kept) from error
            raise

    async def _retry(self, key: str) -> None:
        """As `Client.retry`, which knows no tasks but those that it has futures of."""
        client = self._client
        for each in await client.scheduler.retry(keys=[key], client=client.id):
            if each in client.futures:
                client.futures[each].retry()

    def _check_killer(self, error: Any, times: int) -> None:
        """Raise `ClusterError` if a task ended its workers, not somebody from outside."""
        logs: Any = self._client.get_worker_logs(nanny=True)
        full = sum("memory budget" in line for own in logs.values() for _, line in own)
        about = {"task": error.task, "losses": times, "workers_out_of_memory": full}
        check(not full, "room for tasks", **about)
        check(times < MOST_LOSSES, "killer", **about)
