"""`torch.compile` of a classifier, with graphs that hold for ranges of batch sizes.

A graph per size would be compiled again for the last batch of an epoch, and for every batch with an image that cannot
be decoded; and which graph computes a batch would depend on the batches before it, so that a resumed run could end with
other bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tagfill.errors import RunError
from tagfill.models import query


def compile_forward(module: nn.Module, backend: str) -> None:
    """Compile the forward and backward passes of a module when it is first called.

    Names of weights do not change, and copies of the module are not compiled.

    Args:
        module: a classifier, changed in place.
        backend: a backend of `torch.compile`.
    """
    # Otherwise numpy is traced, which gives other last bits.
    torch.compiler.assume_constant_result(query.sine_positions)  # type: ignore[no-untyped-call]
    module.compile(backend=backend, dynamic=False)


def allow_any_batch_size(inputs: Tensor) -> None:
    """Mark inputs of a compiled module, so that a graph holds for a range of batch sizes."""
    torch._dynamo.maybe_mark_dynamic(inputs, 0)


@contextmanager
def compile_errors() -> Iterator[None]:
    """Turn a failure of the compiler in its block into a sentence."""
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        reason = getattr(error, "inner_exception", None) or error
        first = (str(reason).strip().splitlines() or [type(reason).__name__])[0]
        raise RunError(
            f"torch.compile failed ({first.removesuffix('.')}). Train without --compile, or with "
            "--set compile=aot_eager, which needs no compiler."
        ) from error
