"""Both engines return results in order, raise the errors of tasks, and replace a dead process.

Tasks are defined inside tests, so that they are pickled by value.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import tagfill
from tagfill.engines import TASKS_PER_CORE, create_engine
from tagfill.errors import ImageError, TagfillError
from tagfill.experiments.runs import Outcome, RunJob
from tagfill.training import make_recipe


@pytest.fixture(scope="module")
def ray_instance() -> Iterator[None]:
    """A real Ray instance with two workers, which Tagfill then uses."""
    engine = create_engine("ray", workers=2)
    ray = engine._import_ray()  # type: ignore[attr-defined]
    engine._start(ray)  # type: ignore[attr-defined]
    yield
    ray.shutdown()


@pytest.fixture(params=["joblib", "ray"])
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "ray":
        request.getfixturevalue("ray_instance")
    return request.param


def test_results_come_in_the_order_of_items(name: str) -> None:
    def slow_if_small(number: int) -> int:
        import time

        time.sleep(0.2 if number == 0 else 0.0)
        return -number

    assert list(create_engine(name, workers=2).map(slow_if_small, [0, 1, 2, 3])) == [0, -1, -2, -3]


def test_tasks_run_in_other_processes_at_once(name: str, tmp_path: Path) -> None:
    """Each task waits for the other, so they would never end one after the other."""

    def meet(own: int) -> int:
        import os
        import time
        from pathlib import Path

        (Path(tmp_path) / str(own)).touch()
        for _ in range(600):
            if (Path(tmp_path) / str(1 - own)).exists():
                return os.getpid()
            time.sleep(0.05)
        raise TimeoutError

    processes = set(create_engine(name, workers=2).map(meet, [0, 1]))

    assert len(processes | {os.getpid()}) == 3


def test_what_a_task_raises_is_raised(name: str) -> None:
    def refuse(image: str) -> None:
        raise ImageError(image, "it is cut short")

    with pytest.raises(ImageError, match=r"^Image a\.jpg: it is cut short\.$") as caught:
        list(create_engine(name, workers=2).map(refuse, ["a.jpg"]))
    assert caught.value.image == "a.jpg"


def test_nothing_to_do(name: str) -> None:
    def never(item: int) -> int:
        raise AssertionError

    assert list(create_engine(name, workers=2).map(never, [])) == []


def test_ray_starts_a_task_again_whose_process_was_killed(ray_instance: None, tmp_path: Path) -> None:
    def dies_once(number: int) -> int:
        import os
        import signal
        from pathlib import Path

        been_here = Path(tmp_path) / "been-here"
        if number == 1 and not been_here.exists():
            been_here.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert list(create_engine("ray", workers=2).map(dies_once, [0, 1, 2])) == [0, 1, 2]
    assert (tmp_path / "been-here").exists()


def test_a_machine_without_a_folder_is_named(ray_instance: None, tmp_path: Path) -> None:
    def never(item: int) -> int:
        raise AssertionError

    sentence = rf"The machine {socket.gethostname()} \(127\.0\.0\.1\) of the Ray cluster has no {tmp_path}/photos"
    with pytest.raises(TagfillError, match=sentence):
        list(create_engine("ray", workers=2).map(never, [0, 1], needs=[tmp_path, tmp_path / "photos"]))


def test_more_tasks_than_are_sent_ahead(ray_instance: None) -> None:
    def square(number: int) -> int:
        return number**2

    numbers = range(3 * TASKS_PER_CORE * 2)
    assert list(create_engine("ray", workers=2).map(square, numbers)) == [number**2 for number in numbers]


def test_a_task_that_always_dies_ends_in_a_sentence() -> None:
    def die(signal_number: int) -> None:
        os.kill(os.getpid(), signal_number)

    with pytest.raises(TagfillError, match="A worker process was killed; repeat the command"):
        list(create_engine("joblib", workers=2).map(die, [signal.SIGKILL, signal.SIGKILL]))


def test_ray_listens_to_this_machine_alone(ray_instance: None) -> None:
    """Of the addresses that processes of Ray listen at, as the kernel lists them, none is reachable from outside."""
    listening = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                listening[fields[9]] = _address(fields[1].rsplit(":", 1)[0])
    owned = {inode: listening[inode] for inode in _sockets_of_descendants() if inode in listening}

    assert owned
    assert {address for address in owned.values() if not address.startswith("127.")} <= {"::1", "::ffff:127.0.0.1"}


def _address(text: str) -> str:
    words = bytes.fromhex(text)
    raw = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def _sockets_of_descendants() -> Iterator[str]:
    """Inodes of the sockets that this process and all below it hold."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    mine = {os.getpid()}
    while grown := {child for child, parent in parents.items() if parent in mine} - mine:
        mine |= grown
    for process in mine:
        for link in Path(f"/proc/{process}/fd").glob("*"):
            try:
                target = str(link.readlink())
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                yield target[8:-1]


@pytest.mark.long
def test_a_comparison_over_ray_resumes_the_run_of_a_killed_worker(ray_instance: None, tmp_path: Path) -> None:
    """The worker dies when its third epoch ends, having saved after the second; the run ends as one that lived."""
    full = tagfill.scenes.make(tmp_path / "full", train=24, val=8, test=8, size=64)
    tagfill.protocols.single_positive(full, seed=1200).save(tmp_path / "single")
    backbone = {"backbone": "test_efficientnet", "pretrained": False, "image_size": 64}
    tagfill.features(tmp_path / "single", out=tmp_path / "cache", views="eval", **backbone)  # type: ignore[arg-type]
    recipe = make_recipe(
        {
            **backbone,
            "dataset": str(tmp_path / "single"),
            "features": str(tmp_path / "cache"),
            "method": "role",
            "stages": [{"name": "main", "input": "cache", "epochs": 5}],
        },
        "the settings",
    )
    jobs = [RunJob(f"run {at}", recipe, tmp_path / f"run-{at}", "test") for at in range(2)]

    def dies_in_its_third_epoch(job: RunJob) -> Outcome:
        import os
        import signal

        from tagfill.experiments.runs import run_job
        from tagfill.training import Saving, start
        from tagfill.training.trainer import Trainer

        if job.title == "run 1" and not job.folder.exists():
            log_epoch = Trainer._log_epoch

            def die_after_logging(self, line, *arguments):  # type: ignore[no-untyped-def]
                log_epoch(self, line, *arguments)
                if line["epoch"] == 3:
                    os.kill(os.getpid(), signal.SIGKILL)

            Trainer._log_epoch = die_after_logging  # type: ignore[method-assign]
            start(tagfill.Dataset.open(job.recipe.dataset), job.recipe, out=job.folder, saving=Saving(every_steps=1))
        return run_job(job)

    lived, died = create_engine("ray", workers=2).map(dies_in_its_third_epoch, jobs)

    assert died.error is None
    assert (died.score, died.validation, died.epoch) == (lived.score, lived.validation, lived.epoch)
    metrics = [(job.folder / "metrics.jsonl").read_bytes() for job in jobs]
    assert metrics[0] == metrics[1]
    epochs = [json.loads(line)["epoch"] for line in (jobs[1].folder / "timings.jsonl").read_text().splitlines()]
    assert epochs == [1, 2, 3, 3, 4, 5]  # the third was made twice, the first two were not


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "dask"}, "There is no engine 'dask'"),
        ({"name": "joblib", "address": "10.0.0.1:6379"}, "needs --engine ray"),
        ({"name": "ray", "address": "10.0.0.1:6379", "workers": 2}, "leave out --jobs or --ray-address"),
    ],
)
def test_contradicting_options_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(TagfillError, match=sentence):
        create_engine(**options)  # type: ignore[arg-type]
