"""A classifier as a function of pixels alone, with plain tensors as outputs, which is what exporters trace."""

from __future__ import annotations

from torch import Tensor, nn

from tagfill.models import Classifier


class ExportedModule(nn.Module):
    """Pixels in, logits out, and class maps if wanted."""

    def __init__(self, model: Classifier, *, maps: bool) -> None:
        super().__init__()
        self.model, self.maps = model, maps

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Logits (N×L) of N×3×H×W uint8 pixels, and class maps (N×L×h×w)."""
        prediction = self.model(pixels, maps=self.maps)
        assert isinstance(prediction.logits, Tensor)
        return (prediction.logits,) if prediction.maps is None else (prediction.logits, prediction.maps)
