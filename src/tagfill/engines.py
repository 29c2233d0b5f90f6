"""Engines that run independent tasks in parallel: on the cores of this machine, or on a cluster.

    joblib    processes on this machine, one per core
    ray       Ray (extra `ray`): a local instance, or a cluster by its address

A task is a function of one item; both are sent to another process, so an item holds everything that the task needs.
Results come in the order of the items:

    for outcome in create_engine("ray", workers=2).map(train_one, jobs):
        ...

Ray repeats a task whose process died, so a task must be able to continue from the files that the dead one left, as runs
do from their checkpoints. On a cluster, all machines must see the same folders. Scheduling is left to the libraries.
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
"""How often Ray repeats a task whose process died."""

_LOOPBACK = "127.0.0.1"
_OBJECT_STORE = 100_000_000  # bytes; results are small, and Ray's default is a third of the memory
_HINT = "repeat the command to continue, with fewer --jobs if memory is short"


class Engine(Protocol):
    """Runs tasks in parallel."""

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield the result of the task for each item, in order, as soon as it is available.

        Args:
            task: a module-level function, so that other processes can import it; it may be called twice for an item
                if a process died.
            items: arguments of the task; they are sent to other processes.

        Raises:
            TagfillError: if processes die repeatedly. An exception of a task is raised unchanged.
        """
        ...


def create_engine(name: str = "joblib", *, workers: int | None = None, address: str | None = None) -> Engine:
    """Create an engine by its name.

    Args:
        name: a name from `ENGINES`.
        workers: number of processes on this machine; one per core by default.
        address: address of a running Ray cluster, such as `10.0.0.1:6379` or `auto`; without it, Ray stays on this
            machine.

    Example:
        >>> list(create_engine("joblib", workers=1).map(abs, [-2, 3]))
        [2, 3]
    """
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    if address is not None and name != "ray":
        raise TagfillError(f"--ray-address needs --engine ray, not {name}; change one of them.")
    if address is not None and workers is not None:
        raise TagfillError(
            "--jobs is the number of processes on this machine, but a Ray cluster has its own; leave out --jobs or "
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
            raise TagfillError(f"A worker process was killed; {_HINT}.") from None


@dataclass(frozen=True)
class _Ray:
    workers: int | None
    address: str | None

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        ray = self._import_ray()
        started_here = not ray.is_initialized()
        if started_here:
            self._start(ray)
        try:
            remote = ray.remote(num_cpus=1, max_retries=RETRIES)(task)
            for reference in [remote.remote(item) for item in items]:
                try:
                    yield ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None  # the original exception, without Ray's description of the worker
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
                    raise TagfillError(f"The process of a task died {RETRIES + 1} times; {_HINT}.") from None
        finally:
            if started_here:
                ray.shutdown()

    def _import_ray(self) -> Any:
        """Import Ray without usage statistics and, unless there is a cluster, bound to the loopback address."""
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        if self.address is None:
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # then Ray binds to 127.0.0.1
        try:
            import ray
        except ImportError:
            raise TagfillError("--engine ray needs Ray; install it with: pip install 'tagfill[ray]'.") from None
        return ray

    def _start(self, ray: Any) -> None:
        if self.address is None and ray.util.get_node_ip_address() != _LOOPBACK:
            raise TagfillError(
                "Ray was imported before Tagfill could restrict it to this machine, and would listen on the network; "
                "set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 first, or call ray.init yourself."
            )
        workers = (self.workers or os.cpu_count()) if self.address is None else None
        try:
            ray.init(
                address=self.address or "local",
                num_cpus=workers,
                include_dashboard=None if self.address else False,
                object_store_memory=None if self.address else _OBJECT_STORE,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except (ConnectionError, TimeoutError, RuntimeError) as error:
            where = f"the Ray cluster at {self.address}" if self.address else "a Ray instance"
            raise TagfillError(f"Cannot reach {where}: {str(error).splitlines()[0].rstrip('.')}.") from None


ENGINES: dict[str, Callable[[int | None, Any], Engine]] = {"joblib": _Joblib, "ray": _Ray}
