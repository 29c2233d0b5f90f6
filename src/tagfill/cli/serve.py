"""Serve a trained model over HTTP.

Example: `tagfill serve runs/photos-en` and then `curl -F images=@photo.jpg http://127.0.0.1:8316/predict`

Example: `tagfill serve model.onnx --host 0.0.0.0 --token "a long secret" --batch-size 32`
"""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError


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
    app = create_app(predictor, limits=limits, batch_size=batch_size, wait=wait_ms / 1000)
    signal.signal(signal.SIGTERM, flags.interrupt)
    with http.listen(host, port) as listening:
        address = http.address_of(host, listening.getsockname()[1], None)
        terminal.progress(quiet).say(f"{len(predictor.classes)} classes at {address} (press Ctrl-C to stop)")
        with suppress(KeyboardInterrupt):  # stops the server
            http.run_server(app, listening, token, limits=limits.bodies, on_stop=app.state.stop)
