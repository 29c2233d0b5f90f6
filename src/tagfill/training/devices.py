"""Devices and processes: the only file that knows Lightning Fabric.

Fabric launches processes, wraps modules, and runs backward passes and collectives. It does not touch data loaders,
seeds or checkpoints. Each stage wraps the bare module again and builds a new optimizer: a module that is unfrozen
inside an existing wrapper silently stops sharing gradients.
"""

from __future__ import annotations

import gc
import json
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from tagfill.contract import Batch, Ranks
from tagfill.errors import TagfillError
from tagfill.models import choose_device
from tagfill.models.compilation import allow_any_batch_size, compile_forward

_PRECISIONS: dict[str, Any] = {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}


class Devices:
    """One or several processes that train together.

    Args:
        processes: on this machine; torchrun and SLURM's srun set their own number.
        device: `cpu`, `cuda`, `mps`, or `auto`: CUDA or MPS if there is one, else the CPU.
        precision: of the network's arithmetic: `float32`, `bfloat16` or `float16`, the latter two mixed.
        compiler: backend of `torch.compile`; None does not compile.

    Attributes:
        ranks: collective operations of the processes.
        scaled: whether gradients are scaled, as for float16 on accelerators.
    """

    def __init__(
        self, processes: int = 1, device: str = "auto", precision: str = "float32", compiler: str | None = None
    ) -> None:
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        processes, machines = _launched(processes)
        world = processes * machines
        self._fabric = Fabric(
            accelerator=choose_device(device).type,
            devices=processes,
            num_nodes=machines,
            strategy="ddp" if world > 1 else "auto",
            precision=_PRECISIONS[precision],
        )
        self._fabric.launch()
        self.ranks: Ranks = Ranks() if world == 1 else _FabricRanks(self._fabric)
        self.scaled = getattr(self._fabric.strategy.precision, "scaler", None) is not None
        self._compiler = compiler
        self._plain = world == 1 and precision == "float32"  # nothing to share or to convert

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return self._fabric.device

    @property
    def main(self) -> bool:
        """Whether this process is the one that writes shared files."""
        return self.ranks.rank == 0

    def wrap(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Any]:
        """Wrap a module so that it shares gradients between processes and computes in the precision of the run.

        If the run compiles, the module is compiled in place.

        One process in float32 needs no wrapper: Fabric's walks through all inputs and outputs, which takes as long as a
        step on pooled features.

        Returns:
            The module to call, and the optimizer to step.
        """
        if self._compiler is not None:
            compile_forward(module, self._compiler)
        if self._plain:
            return module.to(self.device), optimizer
        wrapped, stepper = self._fabric.setup(module, optimizer)
        return wrapped, stepper

    def place(self, batch: Batch) -> Batch:
        """Move the inputs and labels of a batch to the device."""
        placed = batch if self.device.type == "cpu" else batch.to(self.device)
        if self._compiler is not None:
            allow_any_batch_size(placed.inputs)
        return placed

    def seed(self, seed: int) -> None:
        """Seed the random numbers of the network."""
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would look for accelerators each time
        else:
            torch.manual_seed(seed)

    def sharing(self, wrapped: nn.Module, now: bool) -> AbstractContextManager[None]:
        """A context whose passes share gradients between processes if `now`, and only accumulate them otherwise."""
        if self.ranks.world == 1:
            return nullcontext()
        return self._fabric.no_backward_sync(wrapped, enabled=not now)  # type: ignore[arg-type]

    def clip(self, wrapped: nn.Module, stepper: Any, norm: float) -> Tensor | None:
        """Scale gradients down so that their norm over all weights is at most `norm`.

        Returns:
            The norm before that; None in half precision, which skips a step whose gradients are not finite and lowers
            their scale.
        """
        found = self._fabric.clip_gradients(wrapped, stepper, max_norm=norm, error_if_nonfinite=False)
        return None if self.scaled or found is None else found.detach()

    def backward(self, loss: Tensor) -> None:
        """Compute gradients of the loss, averaged over processes."""
        if self._plain:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self._fabric.backward(loss)

    def release_memory(self) -> None:
        """Return the memory of tensors that are gone to the device, before a step is repeated with less of it."""
        gc.collect()  # errors and modules refer to each other
        if self.device.type != "cpu":
            torch.get_device_module(self.device).empty_cache()

    def share_buffers(self, module: nn.Module) -> None:
        """Copy the buffers of the main process, such as batch norm statistics, to all processes."""
        if self.ranks.world > 1:
            for buffer in module.buffers():
                buffer.copy_(self.ranks.sum(buffer if self.main else torch.zeros_like(buffer)))

    def state_dict(self) -> dict[str, Any]:
        """The scale of gradients in half precision; empty in float32."""
        return dict(self._fabric.strategy.precision.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        if state:
            self._fabric.strategy.precision.load_state_dict(state)

    def any_rank(self, condition: bool) -> bool:
        """Whether a condition holds in any process."""
        return condition if self.ranks.world == 1 else bool(self.ranks.sum(torch.tensor(int(condition))))

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.ranks.world > 1:
            self._fabric.barrier()

    def gather_json(self, content: Any) -> list[Any]:
        """Gather a small plain value of every process, in the order of ranks."""
        if self.ranks.world == 1:
            return [json.loads(json.dumps(content))]
        own = torch.frombuffer(bytearray(json.dumps(content).encode()), dtype=torch.uint8)
        return [json.loads(bytes(part.tolist())) for part in self.ranks.gather(own)]

    def on_main(self, work: Callable[[], Any]) -> Any:
        """Call a function in the main process only, and return its plain value in all processes.

        A `TagfillError` is raised in every process.
        """
        if self.ranks.world == 1:
            return work()
        outcome: dict[str, Any] = {}
        if self.main:
            try:
                outcome = {"value": work()}
            except TagfillError as error:
                outcome = {"error": str(error)}
        outcome = self.gather_json(outcome)[0]
        if "error" in outcome:
            raise TagfillError(outcome["error"])
        return outcome["value"]


def launched_processes(processes: int) -> int:
    """All processes of this run, on all machines."""
    local, machines = _launched(processes)
    return local * machines


def _launched(processes: int) -> tuple[int, int]:
    """Processes per machine, and machines, as set by the launcher of this process."""
    environment = os.environ
    if "LOCAL_WORLD_SIZE" in environment:  # torchrun
        local = int(environment["LOCAL_WORLD_SIZE"])
        return local, int(environment["WORLD_SIZE"]) // local
    if "SLURM_PROCID" in environment and environment.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        machines = int(environment.get("SLURM_NNODES", "1"))
        return int(environment["SLURM_NTASKS"]) // machines, machines
    return processes, 1


class _FabricRanks(Ranks):
    """Ranks of a Fabric that was launched."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self.rank, self.world = fabric.global_rank, fabric.world_size

    def sum(self, values: Tensor) -> Tensor:
        total = self._fabric.all_reduce(values.clone().to(self._fabric.device), reduce_op="sum")
        assert isinstance(total, Tensor)
        return total.to(values.device)

    def gather(self, values: Tensor) -> list[Tensor]:
        sizes = self._gather(torch.tensor([len(values)])).flatten().tolist()
        padded = values.new_zeros((max(sizes), *values.shape[1:]))
        padded[: len(values)] = values
        gathered = self._gather(padded)
        return [part[:size] for part, size in zip(gathered, sizes, strict=True)]

    def _gather(self, values: Tensor) -> Tensor:
        own = values.to(self._fabric.device).contiguous()
        gathered = [torch.empty_like(own) for _ in range(self.world)]
        torch.distributed.all_gather(gathered, own)  # Fabric's own goes through a deprecated function of torch
        return torch.stack(gathered).to(values.device)
