"""Memory that a network frees and soon needs again.

glibc maps each block of some megabytes afresh and returns it to the system when it is freed. A training step on a CPU
frees and takes gigabytes, and the system has to clear every page of them again: about a third of the step. Kept
blocks do not raise the peak, since the next step takes them back. Elsewhere than on glibc nothing changes.
"""

from __future__ import annotations

import ctypes
from typing import Any

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of mallopt, see malloc.h


def disable_heap_trimming() -> bool:
    """From now on, this process and its forks keep what they free; whether that could be set."""
    library = _glibc()
    if library is None:
        return False
    return bool(library.mallopt(_MMAP_MAX, 0)) and bool(library.mallopt(_TRIM_THRESHOLD, -1))


def trim_heap() -> None:
    """Return everything that is free to the system; before a fork, whose child would hold on to it."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _glibc() -> Any:
    """The C library, if it is one with these functions."""
    try:
        library = ctypes.CDLL(None)
        library.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
        library.malloc_trim.argtypes = [ctypes.c_size_t]
    except (AttributeError, OSError, TypeError):
        return None
    return library
