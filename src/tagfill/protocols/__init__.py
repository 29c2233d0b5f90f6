"""Simulating partly labelled data from fully labelled data, to measure methods against the truth."""

from collections.abc import Callable

from tagfill.annotations import Dataset
from tagfill.protocols.single_positive import single_positive

PROTOCOLS: dict[str, Callable[..., Dataset]] = {"single-positive": single_positive}

__all__ = ["PROTOCOLS", "single_positive"]
