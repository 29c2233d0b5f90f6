"""Serve a trained model over HTTP.

Example: `tagfill serve runs/photos-en` and then `curl -F images=@photo.jpg http://127.0.0.1:8316/predict`

Example: `tagfill serve model.onnx --host 0.0.0.0 --token "a long secret" --batch-size 32`

Example: `tagfill serve runs/photos-en --label-studio --dataset photos`

With `--label-studio` it is a machine learning backend of Label Studio: it predicts tags for tasks, and adds submitted
annotations to a dataset.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError, one_of


def serve(
    run: Annotated[Path, typer.Argument(help="A run or model folder, or an ONNX file.")],
    host: Annotated[str, typer.Option(help="Listening address; remote access needs a --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8316,
    token: flags.Token = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch; 1 disables batching.")] = 16,
    wait_ms: Annotated[float, typer.Option(min=0, help="Milliseconds to wait for a batch to fill.")] = 4.0,
    queue: Annotated[int, typer.Option(min=1, help="Images that may wait; requests beyond get status 503.")] = 256,
    max_images: Annotated[int, typer.Option(min=1, help="Images per request.")] = 32,
    max_megabytes: Annotated[float, typer.Option(min=0.001, help="Largest request.")] = 32.0,
    max_megapixels: Annotated[float, typer.Option(min=0.001, help="Largest image.")] = 40.0,
    body_seconds: Annotated[float, typer.Option(min=0.1, help="Time in which a request must arrive.")] = 20.0,
    label_studio: Annotated[bool, typer.Option("--label-studio", help="Be a backend of Label Studio.")] = False,
    dataset: Annotated[
        Path | None,
        typer.Option(
            help="Label Studio: dataset folder that gets the annotations.", show_default="the dataset of the run"
        ),
    ] = None,
    boxes: Annotated[bool, typer.Option("--boxes", help="Label Studio: also predict boxes, from class maps.")] = False,
    absent_means: Annotated[
        str,
        typer.Option(help="Label Studio: what tags are that annotators do not choose, if they cannot say it."),
    ] = "unknown",
    prefix: Annotated[
        str, typer.Option(help="Label Studio: beginning of its paths that names in the dataset do not have.")
    ] = "",
    label_studio_url: Annotated[
        str | None, typer.Option(envvar="LABEL_STUDIO_URL", help="Label Studio: its address, to fetch uploaded photos.")
    ] = None,
    label_studio_token: Annotated[
        str | None, typer.Option(envvar="LABEL_STUDIO_API_KEY", help="Label Studio: a token of yours for that.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Label Studio: fetch photos from this host too; repeatable."),
    ] = None,
    device: flags.Device = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the network; one per core by default.")] = None,
    quiet: flags.Quiet = False,
) -> None:
    """Serve."""
    try:
        from tagfill.inference.serve import create_app
    except ModuleNotFoundError as error:
        raise TagfillError(f"Serving needs {error.name}; install it with: pip install 'tagfill[serve]'.") from None
    from tagfill.inference import http, open_predictor
    from tagfill.inference.serve import Limits

    http.check_token(host, token)
    predictor = open_predictor(run, device=device, threads=threads)
    limits = Limits(
        body=int(max_megabytes * 2**20),
        images=max_images,
        pixels=int(max_megapixels * 1e6),
        body_seconds=body_seconds,
        queue=queue,
    )
    progress = terminal.progress(quiet)
    with ExitStack() as stack:
        if label_studio:
            from tagfill.curation import label_studio_backend
            from tagfill.curation.submissions import open_submissions
            from tagfill.curation.task_photos import FetchLimits, TaskPhotos
            from tagfill.dataset import Dataset

            one_of("--absent-means", absent_means, ["unknown", "absent"])
            folder = dataset or _dataset_of(run)
            photos = TaskPhotos(
                Dataset.open(folder),
                prefix=prefix,
                server=label_studio_url,
                api_token=label_studio_token,
                hosts=allow_host or (),
                limits=FetchLimits(limits.body, limits.body_seconds),
            )
            backend = label_studio_backend.Backend(
                predictor,
                stack.enter_context(open_submissions(folder)),
                photos,
                boxes=boxes,
                absent_means=absent_means,
                limits=limits,
                batch_size=batch_size,
                wait=wait_ms / 1000,
                progress=progress,
            )
            app = label_studio_backend.create_backend(backend)
            what = f"{len(predictor.classes)} classes for Label Studio, annotations to {folder},"
        else:
            _refuse_alone(dataset, boxes, prefix, allow_host)
            app = create_app(predictor, limits=limits, batch_size=batch_size, wait=wait_ms / 1000)
            what = f"{len(predictor.classes)} classes"
        signal.signal(signal.SIGTERM, flags.interrupt)
        listening = stack.enter_context(http.listen(host, port))
        address = http.address_of(host, listening.getsockname()[1], None)
        progress.say(f"{what} at {address} (press Ctrl-C to stop)")
        with suppress(KeyboardInterrupt):  # stops the server
            http.run_server(app, listening, token, limits=limits.bodies, on_stop=app.state.stop)


def _refuse_alone(dataset: Path | None, boxes: bool, prefix: str, allow_host: list[str] | None) -> None:
    """Raise for options that do nothing without --label-studio; environment variables may be set for other programs."""
    given = {"--dataset": dataset, "--boxes": boxes, "--prefix": prefix, "--allow-host": allow_host}
    for name, value in given.items():
        if value:
            raise TagfillError(f"{name} is for --label-studio; add that option, or leave {name} out.")


def _dataset_of(run: Path) -> Path:
    """The dataset that a run was trained on, or that `tagfill fill` keeps beside its model."""
    from tagfill.training import Run

    found = None
    if (run / "recipe.yaml").is_file():
        found = Path(run, Run.open(run).recipe.dataset)
    elif flags.filled_folder(run.absolute().parent):
        found = run.absolute().parent / "known"
    if found is None or not (found / "dataset.yaml").is_file():
        raise TagfillError("--label-studio needs a --dataset, the folder of the dataset that gets the annotations.")
    return found
