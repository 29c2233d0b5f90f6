"""What all heads share: options by name, and what they need and give."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from tagfill.contract import Prediction
from tagfill.errors import TagfillError, unknown_name


class Head(nn.Module):
    """From features to a `Prediction`.

    A head is made as `HeadClass(channels, classes, **options)` and keeps each option, a keyword of its constructor, in
    an attribute of the same name.

    Attributes:
        has_maps: whether it gives class maps.
        attention_of: whose attention it gives on request: its own (`head`), that of the `backbone`, or nobody's.
    """

    has_maps: ClassVar[bool] = False
    attention_of: ClassVar[Literal["head", "backbone"] | None] = None

    @property
    def spatial(self) -> bool:
        """Whether it always needs features of cells, B×D×H×W, and pooled ones (B×D) will not do."""
        return False

    @property
    def token(self) -> bool:
        """Whether the features that it takes are class tokens, B×D."""
        return False

    @property
    def options(self) -> dict[str, Any]:
        """All options with their values."""
        return {name: getattr(self, name) for name in _option_names(type(self))}

    def mask_boost(self, mask: Tensor) -> None:
        """Boost only these classes (L bool) in training; nothing where the head does not boost."""

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Predict; `maps` keeps the class maps, `attention` the head's own attention.

        A `Classifier` asks only for what `has_maps` and `attention_of` promise.
        """
        raise NotImplementedError


def checked_options(name: str, head: type[Head], options: dict[str, Any]) -> dict[str, Any]:
    """Options of a head, converted to the types that it declares.

    Args:
        name: of the head, for errors.
        head: whose constructor names the options.
        options: by name.
    """
    known, hints = _option_names(head), get_type_hints(head.__init__)
    values = {}
    for option, value in options.items():
        if option not in known:
            raise unknown_name("option", option, known or ["none"], of=f"head '{name}'")
        try:
            values[option] = TypeAdapter(hints[option]).validate_python(value)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise TagfillError(f"Option {option}={value!r} of head '{name}': {problem}.") from None
    return values


def _option_names(head: type[Head]) -> list[str]:
    parameters = inspect.signature(head).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
