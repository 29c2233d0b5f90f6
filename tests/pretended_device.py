"""A pretended accelerator: tensors on the device `meta` that keep their values, and a count of what the host waits for.

Real accelerators refuse to mix their tensors with those of the CPU, and wait whenever a value travels to the host. Here
a tensor on the pretended device wraps one of the CPU, so that whole steps can run with real numbers, backward passes
included: the device is called `meta` because that is the one whose backward passes a CPU build of torch runs. Devices
are mixed by the rules of torch: only numbers (tensors without dimensions) of the CPU, and indices, may join.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
aten = torch.ops.aten

# Their result depends on values, which the host has to know before it can go on.
_WAIT = {
    aten._local_scalar_dense.default: "item",
    aten.is_nonzero.default: "bool",
    aten.equal.default: "equal",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten.bincount.default: "bincount",
    aten._unique2.default: "unique",
    aten.unique_consecutive.default: "unique",
    aten.unique_dim.default: "unique",
    aten.repeat_interleave.Tensor: "repeat_interleave",
}
_INDEXED = (
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
)
_COPIES = (aten.copy_.default, aten._to_copy.default)


class DeviceTensor(Tensor):
    """A tensor on the pretended device.

    Attributes:
        values: the numbers, on the CPU.
    """

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> DeviceTensor:
        with torch.inference_mode(False):  # tensors of that mode cannot be wrapped
            made = torch.Tensor._make_wrapper_subclass(
                cls, values.shape, strides=values.stride(), dtype=values.dtype, device=DEVICE
            )
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        raise RuntimeError(f"{function} runs outside of the pretended device")

    def tolist(self) -> Any:
        """As plain numbers, which torch refuses for its subclasses."""
        return self.detach().cpu().tolist()

    def __repr__(self) -> str:
        return f"DeviceTensor({self.values})"


@dataclass
class Traffic:
    """What went over the border between host and device.

    Attributes:
        waits: names of the operations for which the host waits for the device. A plain copy to the device is one of
            them, since it waits for what was computed before.
        uploads: number of copies to the device that do not wait.
    """

    waits: list[str] = field(default_factory=list)
    uploads: int = 0


class PretendedDevice(TorchDispatchMode):
    """Within its block, `DEVICE` is an accelerator; `traffic` counts since the last `reset`."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic = Traffic()

    def reset(self) -> Traffic:
        """Start to count again; returns what was counted."""
        counted, self.traffic = self.traffic, Traffic()
        return counted

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = dict(options or {})
        tensors = [value for value in tree_flatten((arguments, options))[0] if isinstance(value, Tensor)]
        here = any(isinstance(value, DeviceTensor) for value in tensors)
        asked = options.get("device")
        if function in _COPIES:
            return self._copy(function, arguments, options)
        if here:
            self._check(function, arguments, tensors)
            self._count(function, arguments)
        wrap = here if asked is None else torch.device(asked).type == DEVICE.type
        if asked is not None:
            options["device"] = torch.device("cpu")
        known: dict[int, Tensor] = {id(value.values): value for value in tensors if isinstance(value, DeviceTensor)}
        found = function(*tree_map(_values, arguments), **tree_map(_values, options))
        if function is aten._local_scalar_dense.default or not wrap:
            return found
        return tree_map(lambda value: known.get(id(value), _on_device(value)), found)

    def _copy(self, function: Any, arguments: Any, options: dict[str, Any]) -> Any:
        """Copies go between devices; one to the host waits."""
        into = arguments[0] if function is aten.copy_.default else None
        source = arguments[1] if into is not None else arguments[0]
        asked = options.get("device")
        stays = isinstance(into if into is not None else source, DeviceTensor)
        target = stays if asked is None else torch.device(asked).type == DEVICE.type
        if isinstance(source, DeviceTensor) and not target:
            self.traffic.waits.append("copy")
        if target and not isinstance(source, DeviceTensor) and source.ndim:
            self._upload(options.get("non_blocking") or (len(arguments) > 2 and arguments[2]))
        if asked is not None:
            options["device"] = torch.device("cpu")
        found = function(*tree_map(_values, arguments), **options)
        return into if into is not None else _on_device(found) if target else found

    def _check(self, function: Any, arguments: Any, tensors: list[Tensor]) -> None:
        """Raise if devices are mixed."""
        if function in _INDEXED:  # indices may be on the host
            tensors = [value for at, value in enumerate(arguments) if at != 1 and isinstance(value, Tensor)]
        strange = [value for value in tensors if not isinstance(value, DeviceTensor) and value.ndim]
        if strange or (function in _INDEXED and not isinstance(arguments[0], DeviceTensor)):
            raise RuntimeError(f"{function} mixes tensors of the device with tensors of the host")

    def _count(self, function: Any, arguments: Any) -> None:
        """Note what the host waits for."""
        if function in _WAIT:
            self.traffic.waits.append(_WAIT[function])
        if function in _INDEXED:
            indices = [at for at in arguments[1] if at is not None]
            masks = any(at.dtype in (torch.bool, torch.uint8) and isinstance(at, DeviceTensor) for at in indices)
            if masks and not (len(arguments) > 2 and arguments[2].numel() == 1 and len(indices) == 1):
                self.traffic.waits.append("mask")  # a mask as an index is a nonzero; filling with a number is not
            for _ in (at for at in indices if not isinstance(at, DeviceTensor)):
                self._upload(False)

    def _upload(self, without_waiting: object) -> None:
        if without_waiting:
            self.traffic.uploads += 1
        else:
            self.traffic.waits.append("upload")


def _values(value: Any) -> Any:
    return value.values if isinstance(value, DeviceTensor) else value


def _on_device(value: Any) -> Any:
    return DeviceTensor(value) if isinstance(value, Tensor) else value


def host(value: Tensor) -> Tensor:
    """The numbers of a tensor, without counting that they leave the device."""
    return value.values if isinstance(value, DeviceTensor) else value
