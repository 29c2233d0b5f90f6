"""Extract and cache features of a frozen backbone.

Example: `tagfill features scenes --views eval,flip,crops:2 --out scenes-features`

Example: `tagfill features photos --at blocks.5 --out photos-blocks5`

Example: `tagfill features photos --from photos-blocks5 --out photos-features`

Example: `tagfill features photos --engine ray --ray-address auto --out photos-features`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal


def features(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder.")],
    backbone: flags.Backbone = "tf_efficientnet_lite0",
    pretrained: flags.Pretrained = "bundled",
    views: Annotated[
        str | None,
        typer.Option(
            help="`eval`, `flip`, `crops:N`, `pairs:N`; all except eval only for training images.",
            show_default="eval,flip,crops:2, or those of --from",
        ),
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            metavar="STAGE",
            help="Store the output of this stage, such as `blocks.5` or `layer3`, for `train --train top`.",
        ),
    ] = "features",
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="CACHE", help="Compute from this cache of an inner stage, not from the images."),
    ] = None,
    image_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Side of the square input, or HEIGHTxWIDTH as in 224x320."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="`auto`, `uint8`, `float16` or `float32`.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Cache folder; by default in Tagfill's own cache.")] = None,
    max_gb: Annotated[
        float | None, typer.Option(min=0, help="Refuse a cache that takes more disk.", show_default="what is free")
    ] = None,
    seed: flags.Seed = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Processes that decode images; results do not change.",
            show_default="half of the cores if more than two",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the network; one per core by default.")] = None,
    max_bad_images: Annotated[
        float, typer.Option(min=0, max=1, help="Share of images that may fail to decode.")
    ] = 0.01,
    engine: flags.WorkEngine = None,
    jobs: flags.Jobs = None,
    ray_address: flags.RayAddress = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every file again and check its hash.")] = False,
    device: flags.Device = "auto",
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> None:
    """Extract; an interrupted extraction continues, and existing views are kept."""
    import torch

    from tagfill import experiments
    from tagfill.data import verify_cache as verify_files

    if threads is not None:
        torch.set_num_threads(threads)
    progress = terminal.progress(quiet)
    cache = experiments.features(
        dataset,
        backbone=backbone,
        pretrained=flags.parse_pretrained(pretrained),
        image_size=image_size,
        views=views,
        at=at,
        source=source,
        out=out,
        dtype=dtype,
        max_gb=max_gb,
        seed=seed,
        workers=workers,
        max_bad_images=max_bad_images,
        device=device,
        engine=engine,
        jobs=jobs,
        ray_address=ray_address,
        progress=progress,
    )
    if verify:
        progress.say(f"verified {verify_files(cache, progress) / 1e6:,.1f} MB")
    if as_json:
        terminal.show_json(
            {"folder": str(cache.folder.absolute()), "views": list(cache.manifest.views), "at": cache.at}
        )
        return
    terminal.show(str(cache.folder))
    top = " --train top" if cache.manifest.inner else ""
    terminal.next_step(f"tagfill train {dataset} --features {cache.folder}{top}", quiet=quiet)
