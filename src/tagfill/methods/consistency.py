"""CL and SCL: predictions should agree with what the same image got before, as a whole or place by place.

    L_CL  = mean | f − s |                   s: running scores of the image
    L_SCL = mean | F − cut(H) |              H: running heatmaps of the whole image, cut to the view's crop and flip

Targets are read before this visit changes them and have no gradient. Both are terms to add to a method that learns
from labels, as in `en+scl`; the weight γ is 0.1 or 1 in the paper, chosen on validation. The paper writes a norm; here
it is a mean over all entries, because a sum over thousands of cells would drown the other term.

Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations, WACV 2023.
"""

from __future__ import annotations

from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Prediction, Task
from tagfill.errors import TagfillError
from tagfill.methods.stateless import Stateless


class Consistency(Stateless):
    """Consistency of image scores.

    Args:
        weight: γ, the weight of the term.
        momentum: μ of the running scores.
    """

    def __init__(self, *, weight: float = 0.1, momentum: float = 0.8) -> None:
        self._weight = weight
        self._momentum = momentum

    def setup(self, task: Task) -> None:
        """Ask for the running scores, which `en` shares."""
        self._memory = task.memory
        self._scores = task.memory.scores(momentum=self._momentum)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Distance of the predictions to the running scores."""
        target = self._scores.read(batch.index).to(prediction.logits.device)
        return {"cl": self._weight * losses.consistency(prediction.logits, batch.labels, target)}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Update the running scores."""
        if self._memory.first_write("scores"):
            self._scores.update(batch.index, prediction.logits.sigmoid())


class SpatialConsistency(Stateless):
    """Consistency of class maps across crops and flips.

    Args:
        weight: γ, the weight of the term.
        momentum: μ of the running heatmaps.
    """

    needs = frozenset({"maps"})

    def __init__(self, *, weight: float = 0.1, momentum: float = 0.8) -> None:
        self._weight = weight
        self._momentum = momentum

    def setup(self, task: Task) -> None:
        """Ask for heatmaps of twice the resolution of the class maps."""
        if task.grid is None:
            raise TagfillError("The method 'scl' needs class maps; choose a head that makes them, such as cam.")
        self._memory = task.memory
        self._grid = task.grid
        self._heatmaps = task.memory.heatmaps(momentum=self._momentum, size=2 * max(task.grid))

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Distance of the class maps to what the view shows of the running heatmaps."""
        if not batch.geometry.exact.all():
            raise TagfillError("The method 'scl' needs views that are exact crops and flips; drop strong augmentation.")
        assert prediction.maps is not None
        target = self._heatmaps.read(batch.index, batch.geometry, self._grid).to(prediction.maps.device)
        return {"scl": self._weight * losses.consistency(prediction.maps, batch.labels, target)}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Update the part of the heatmaps that the views showed."""
        assert prediction.maps is not None
        if self._memory.first_write("heatmaps"):
            self._heatmaps.update(batch.index, batch.geometry, prediction.maps.sigmoid())
