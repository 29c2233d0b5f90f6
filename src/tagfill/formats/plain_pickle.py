"""Reading old pickles that hold plain data, without running any of them.

Loading a pickle can call whatever it names. This reader knows the three names that NumPy writes for an array, and puts
stand-ins of its own in their place, which accept what describes an array of integers and nothing else; any other name
ends the reading before anything is called. What can come out are arrays of integers, bytes, text, numbers, lists,
tuples and dictionaries.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import DatasetError
from tagfill.formats.text_files import needed


class _ForbiddenError(Exception):
    """The pickle asks for something that plain data does not need."""


class _Integers:
    """A type of integers, as described by the call of `numpy.dtype` and by the state that follows."""

    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "|"

    def __setstate__(self, state: object) -> None:
        order = _text(state[1]) if isinstance(state, tuple) and len(state) > 1 else ""
        if order not in ("|", "<", ">", "="):
            raise _ForbiddenError("an array in an unusual order of bytes")
        self.order = order


class _Array:
    """An array, empty until its state arrives."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: NDArray[np.integer] = np.empty(0, dtype=np.int8)

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _ForbiddenError("an array of an unusual kind")
        _, shape, kind, by_columns, content = state
        if not isinstance(kind, _Integers) or not isinstance(content, bytes) or not isinstance(shape, tuple):
            raise _ForbiddenError("an array of something other than integers")
        flat = np.frombuffer(content, dtype=np.dtype(kind.order + kind.code))
        self.values = flat.reshape(shape, order="F" if by_columns else "C")


class _Dtype:
    """Stands for `numpy.dtype`; without attributes, so that a pickle cannot change it."""

    __slots__ = ()

    def __call__(self, code: object, *options: object) -> _Integers:
        text = _text(code)
        if text not in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"):
            raise _ForbiddenError("an array of something other than integers")
        return _Integers(text)


class _Reconstruct:
    """Stands for NumPy's `_reconstruct`, which makes an empty array."""

    __slots__ = ()

    def __call__(self, kind: object, shape: object, code: object) -> _Array:
        if kind != _NDARRAY:
            raise _ForbiddenError("an array of an unusual kind")
        return _Array()


_NDARRAY = "numpy.ndarray"  # only ever handed to _Reconstruct
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype(),
}


class _Unpickler(pickle._Unpickler):  # that of Python, since that of C takes as much memory as a damaged file asks for
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise _ForbiddenError(f"{module}.{name}")
        return _KNOWN[module, name]


def load(path: Path) -> dict[Any, Any]:
    """The dictionary in a pickle of plain data; text of Python 2 comes as bytes.

    Raises:
        DatasetError: it is damaged, holds something else, or asks for more than plain data.
    """
    try:
        with needed(path, "a pickle").open("rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
    except _ForbiddenError as error:
        asked = ascii(str(error))[1:-1][:100]
        raise DatasetError(f"{path} is not read, because it asks for {asked}, and not for plain data only.") from None
    except DatasetError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        problem = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DatasetError(f"{path} is damaged ({problem}); get it anew.") from None
    if not isinstance(content, dict):
        raise DatasetError(f"{path} holds {type(content).__name__}, not a dictionary; it is another file.")
    return {key: value.values if isinstance(value, _Array) else value for key, value in content.items()}


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii", "replace")
    return value if isinstance(value, str) else ""
