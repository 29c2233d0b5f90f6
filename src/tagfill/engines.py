"""Engines that run independent tasks in parallel: on the cores of this machine, or on a cluster.

    joblib    processes on this machine, one per core
    ray       Ray (extra `ray`): a local instance, or a cluster by its address

A task is a function of one item; both are sent to another process, so an item holds everything that the task needs.
Results come in the order of the items:

    for outcome in create_engine("ray", workers=2).map(train_one, jobs):
        ...

Ray repeats a task whose process or machine died, so a task must be able to continue from the files that the dead one
left, as runs do from their checkpoints. On a cluster, all machines must see the same folders; `needs` names files that
prove it, and a machine that lacks one is named. Scheduling is left to the libraries.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tagfill.errors import TagfillError, unknown_name

Item = TypeVar("Item")
Result = TypeVar("Result")

RETRIES = 3
"""How often Ray repeats a task whose process or machine died."""

TASKS_PER_CORE = 4
"""Tasks that are sent to a cluster ahead of time, so that items of a long list do not fill its memory."""

_LOOPBACK = "127.0.0.1"
_OBJECT_STORE = 100_000_000  # bytes; results are small, and Ray's default is a third of the memory
_HINT = "repeat the command to continue, with fewer --jobs if memory is short"


class Engine(Protocol):
    """Runs tasks in parallel."""

    @property
    def workers(self) -> int | None:
        """Number of processes on this machine; None is one per core."""
        ...

    @property
    def address(self) -> str | None:
        """Of a cluster, which has a number of processes of its own."""
        ...

    def map(
        self, task: Callable[[Item], Result], items: Sequence[Item], *, needs: Sequence[Path] = ()
    ) -> Iterator[Result]:
        """Yield the result of the task for each item, in order, as soon as it is available.

        Args:
            task: a module-level function, so that other processes can import it; it may be called twice for an item
                if a process died.
            items: arguments of the task; they are sent to other processes.
            needs: files and folders that every machine must have, by absolute path.

        Raises:
            TagfillError: if processes die repeatedly, or a machine lacks what it needs. An exception of a task is
                raised unchanged.
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

    def map(
        self, task: Callable[[Item], Result], items: Sequence[Item], *, needs: Sequence[Path] = ()
    ) -> Iterator[Result]:
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

    def map(
        self, task: Callable[[Item], Result], items: Sequence[Item], *, needs: Sequence[Path] = ()
    ) -> Iterator[Result]:
        ray = self._import_ray()
        if not ray.is_initialized():
            self._start(ray)
            weakref.finalize(self, ray.shutdown)  # the next call uses the same processes, which have loaded libraries
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_run_on_machine)
        ahead = max(TASKS_PER_CORE * int(ray.cluster_resources().get("CPU", 1)), 1)
        waiting = deque[Any]()
        try:
            for item in items:
                waiting.append(remote.remote(task, item, [str(path) for path in needs]))
                if len(waiting) >= ahead:
                    yield self._result(ray, waiting.popleft())
            while waiting:
                yield self._result(ray, waiting.popleft())
        finally:  # after an error, the cluster must not go on with the rest
            if ray.is_initialized():
                for reference in waiting:
                    ray.cancel(reference)

    def _result(self, ray: Any, reference: Any) -> Any:
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # the original exception, without Ray's description of the worker
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
            raise TagfillError(f"The process of a task died {RETRIES + 1} times; {_HINT}.") from None
        except (ray.exceptions.ObjectLostError, ray.exceptions.NodeDiedError):
            raise TagfillError(f"The machine of a task was lost {RETRIES + 1} times; {_HINT}.") from None

    def _import_ray(self) -> Any:
        """Import Ray without usage statistics and, unless there is a cluster, bound to the loopback address."""
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "error")  # warnings would surround our own sentence
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
            reason = str(error).splitlines()[0].rstrip(".")
            if self.address and "RAY_AUTH_MODE" not in os.environ:
                reason += "; if it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
            raise TagfillError(f"Cannot reach {where}: {reason}.") from None


def _run_on_machine(task: Callable[[Item], Result], item: Item, needs: Sequence[str]) -> Result:
    """Run a task if this machine has everything that it needs."""
    for path in needs:
        if not Path(path).exists():
            raise TagfillError(
                f"The machine {_machine()} of the Ray cluster has no {path}, which the others have; mount the same "
                "folders under the same paths on all machines, or take this one out of the cluster."
            )
    return task(item)


def _machine() -> str:
    """The name and address of the machine that a task runs on."""
    import ray

    return f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"


ENGINES: dict[str, Callable[[int | None, Any], Engine]] = {"joblib": _Joblib, "ray": _Ray}
