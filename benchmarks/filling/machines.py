"""What happens when a machine is lost: commands on a Ray cluster, and training by torchrun.

<!-- numbers: cluster -->
<!-- numbers: torchrun -->
"""

from __future__ import annotations

from typing import Any

from filling.results import results, table

COMMANDS = {
    "features": "`tagfill features`, {photos:,} photos at {image_size} pixels",
    "compare": "`tagfill compare`, two methods with two seeds, {epochs} epochs",
    "predict": "`tagfill predict`, {photos:,} photos",
}


def cluster(arguments: str, top: str) -> str:
    """Each command in one process, on the cluster, and on the cluster with a node killed."""
    del arguments, top
    found = results("cluster")
    assert found is not None, "run python benchmarks/cluster/run.py first"
    rows = [_cluster_row(COMMANDS[name].format(**found), case) for name, case in found["cases"].items()]
    head = ["command", "one process", "cluster", "cluster, one node killed", "killed after", "same bytes"]
    return f"""{table(head, rows)}

{written(found)}

A node that does not see a folder ends each command with exit code 2 and a sentence, here of `compare`:

> {found["lacking"]["compare"]}"""


def _cluster_row(title: str, case: dict[str, Any]) -> list[str]:
    killed = case["killed"]
    return [
        title,
        f"{case['one']['seconds']:.0f} s",
        f"{case['cluster']['seconds']:.0f} s",
        f"{killed['seconds']:.0f} s",
        f"{killed['task_seconds']:.0f} s of tasks",
        "yes" if case["cluster"]["same"] and killed["same"] else "**no**",
    ]


def torchrun(arguments: str, top: str) -> str:
    """Two agents, undisturbed and with something killed."""
    del arguments, top
    found = results("torchrun")
    assert found is not None, "run python benchmarks/torchrun/run.py first"
    rows = [
        [name, f"{case['seconds']:.0f} s", f"{case['epochs_repeated']}", "yes" if case["same"] else "**no**"]
        for name, case in found["cases"].items()
    ]
    setting = (
        f"`{found['method']}` on features of {found['scenes']} scenes, {found['epochs']} epochs, a checkpoint every "
        f"{found['save_steps']} steps."
    )
    return f"{table(['two agents', 'time', 'epochs repeated', 'same bytes'], rows)}\n\n{setting} {written(found)}"


def written(found: dict[str, Any]) -> str:
    """Which command made these results, and where."""
    machine = found["machine"]
    return f"Written by `{found['command']}` at commit `{found['commit']}` on {machine['cores']} cores."
