"""Where independent tasks run: on the cores of this machine, or over a cluster.

    joblib    processes of this machine, one a core
    ray       Ray (extra `ray`): a local instance of it, or a cluster by its address

A task is a function of one item, and an item is everything that it needs: both travel to another process. Results come
in the order of the items. Whoever adds work for an engine writes one function and one list:

    for outcome in create_engine("ray", workers=2).map(make, jobs):
        ...

Ray gives a task whose process died to another process, so a task must be able to meet what a dead one left on disk and
go on from there, as runs do from their checkpoints. On a cluster, folders must be where every machine finds them.
Scheduling is left to the two libraries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tagfill.errors import TagfillError, unknown_name

Item = TypeVar("Item")
Result = TypeVar("Result")

RETRIES = 3
"""How often Ray starts a task again whose process died."""

_LOOPBACK = "127.0.0.1"
_STORE = 100_000_000  # bytes for results on their way, which are small; Ray would take a third of the memory
_AGAIN = "give the same command again to go on where it stopped, with fewer --jobs if memory is short"


class Engine(Protocol):
    """Runs tasks somewhere."""

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Results of a task for each item, in their order, as they come.

        Args:
            task: a function of a module, so that another process finds it; it may be called again for an item whose
                process died.
            items: what the task is called with; they are sent to other processes.

        Raises:
            TagfillError: if processes die again and again; what a task itself raises is raised here.
        """
        ...


def create_engine(name: str = "joblib", *, workers: int | None = None, address: str | None = None) -> Engine:
    """An engine by its name.

    Args:
        name: a name from `ENGINES`.
        workers: processes at once on this machine; one a core by default.
        address: of a Ray cluster that runs already, as in `10.0.0.1:6379` or `auto`; Ray's own default is not asked.

    Example:
        >>> list(create_engine("joblib", workers=1).map(abs, [-2, 3]))
        [2, 3]
    """
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    if address is not None and name != "ray":
        raise TagfillError(f"A Ray address needs the engine ray, not {name}; give --engine ray, or leave it out.")
    if address is not None and workers is not None:
        raise TagfillError(
            "--jobs counts processes of this machine, and a Ray cluster knows its own; leave out one of --jobs and "
            "--ray-address."
        )
    return ENGINES[name](workers, address)


@dataclass(frozen=True)
class _Joblib:
    workers: int | None
    address: None

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        workers = min(self.workers or os.cpu_count() or 1, max(len(items), 1))
        try:
            yield from Parallel(n_jobs=workers, return_as="generator")(delayed(task)(item) for item in items)
        except TerminatedWorkerError:
            raise TagfillError(f"A worker process was killed; {_AGAIN}.") from None


@dataclass(frozen=True)
class _Ray:
    workers: int | None
    address: str | None

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        ray = self._ray()
        own = not ray.is_initialized()
        if own:
            self._start(ray)
        try:
            remote = ray.remote(num_cpus=1, max_retries=RETRIES)(task)
            for reference in [remote.remote(item) for item in items]:
                try:
                    yield ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None  # as the task raised it, without Ray's account of the worker
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
                    raise TagfillError(f"A task lost its process {RETRIES + 1} times; {_AGAIN}.") from None
        finally:
            if own:
                ray.shutdown()

    def _ray(self) -> Any:
        """The library, told before its import to report nothing to its makers and, alone, to stay on the loopback."""
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        if self.address is None:
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # without clusters it binds to 127.0.0.1
        try:
            import ray
        except ImportError:
            raise TagfillError("--engine ray needs Ray; install it with: pip install 'tagfill[ray]'.") from None
        return ray

    def _start(self, ray: Any) -> None:
        if self.address is None and ray.util.get_node_ip_address() != _LOOPBACK:
            raise TagfillError(
                "Ray was imported before Tagfill could keep it on this machine, and would listen to the network; "
                "set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 first, or call ray.init yourself."
            )
        workers = (self.workers or os.cpu_count()) if self.address is None else None
        try:
            ray.init(
                address=self.address or "local",
                num_cpus=workers,
                include_dashboard=None if self.address else False,
                object_store_memory=None if self.address else _STORE,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except (ConnectionError, TimeoutError, RuntimeError) as error:
            where = f"the Ray cluster at {self.address}" if self.address else "a Ray instance"
            raise TagfillError(f"Cannot reach {where}: {str(error).splitlines()[0].rstrip('.')}.") from None


ENGINES: dict[str, Callable[[int | None, Any], Engine]] = {"joblib": _Joblib, "ray": _Ray}
