"""A scikit-learn classifier for feature arrays with partly known labels: fit, predict, score, pipelines, searches.

    from tagfill.sklearn import PartialLabelClassifier

    model = PartialLabelClassifier().fit(features, labels)   # labels: 1 present, 0 absent, NaN or −1 unknown
    model.predict_proba(other)                               # images × classes

One linear layer is trained by a method of Tagfill on arrays in memory. Class maps, evidence, caches, resumed runs and
the ensemble of `auto` need a dataset: see `tagfill.train`. Needs scikit-learn: `pip install 'tagfill[sklearn]'`.

Searches and cross-validation want `cv=KFold(5)`, or −1 instead of NaN: the default of scikit-learn looks at the labels
itself, and knows no NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tagfill import methods, metrics
from tagfill.contract import Batch, Method, Prediction, Ranks, Task
from tagfill.errors import TagfillError
from tagfill.images import Geometry
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.memory import Memory

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
except ImportError:
    raise TagfillError("tagfill.sklearn needs scikit-learn; install it with: pip install 'tagfill[sklearn]'.") from None

_AVAILABLE = frozenset({"memory", "expected_positives", "prior", "unlabeled", "neighbors"})  # of `Method.needs`
_LEAST_STEPS = 1000  # of the optimizer, with epochs="auto"
_LEAST_EPOCHS = 10
_MOST_SEED = 2**31 - 1


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear multi-label classifier that learns from partly known labels.

    Args:
        method: a name of `tagfill list methods` that needs neither photos nor class maps, or `auto`: `bce` if all
            labels are known, `em` if only present ones are, and `csl` otherwise.
        options: of the method, such as `{"rate": 0.01}` for `ll-r`.
        expected_positives: how many labels an image has on average, known and unknown; some methods need it.
        lr: learning rate of Adam.
        epochs: passes over the data; `auto` takes 10, and more where that would be fewer than 1,000 steps.
        batch_size: images per step.
        standardize: train on features with mean 0 and standard deviation 1, for features of different units; those of
            a network are better left as they are. The coefficients are those of the features as they are given.
        random_state: of initial weights and of the order of images.

    Attributes:
        coef_: L×D, weights.
        intercept_: L.
        method_: the method that was used.
        n_labels_: L, number of classes.
        classes_: the values that `predict` returns: 0 absent, 1 present.
        n_features_in_: D.

    >>> import numpy as np
    >>> features = np.random.default_rng(0).normal(size=(200, 8))
    >>> complete = (features[:, :3] > 0).astype(float)
    >>> known = np.where(np.random.default_rng(1).random(complete.shape) < 0.3, complete, np.nan)
    >>> model = PartialLabelClassifier(random_state=0).fit(features, known)
    >>> model.method_, model.predict(features[:2]).shape, model.score(features, complete) > 0.9
    ('csl', (2, 3), True)
    """

    def __init__(
        self,
        method: str = "auto",
        *,
        options: dict[str, Any] | None = None,
        expected_positives: float | None = None,
        lr: float = 1e-3,
        epochs: int | str = "auto",
        batch_size: int = 16,
        standardize: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.method = method
        self.options = options
        self.expected_positives = expected_positives
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> PartialLabelClassifier:  # noqa: N803
        """Learn from features and what is known of their labels.

        Args:
            X: n×D features.
            y: n×L labels: 1 present, 0 absent, NaN or −1 unknown.
        """
        if y is None:
            raise ValueError("PartialLabelClassifier requires y to be passed, but the target y is None.")
        found = validate_data(self, X, dtype=np.float32, ensure_min_samples=1)
        labels = _label_states(y)
        if len(labels) != len(found):
            raise ValueError(f"There are {len(found)} rows of features and {len(labels)} rows of labels.")
        states = LabelMatrix.from_dense(labels)
        self.method_ = self._chosen(states)
        mean, scale = np.zeros(found.shape[1], np.float32), np.ones(found.shape[1], np.float32)
        if self.standardize:
            mean, deviation = found.mean(0, dtype=np.float64), found.std(0, dtype=np.float64)
            scale = np.where(deviation > 0, deviation, 1.0)
        features = torch.from_numpy(((found - mean) / scale).astype(np.float32))
        weight, bias = self._trained(features, states)
        self.coef_ = weight / scale
        self.intercept_ = bias - self.coef_ @ mean
        self.n_labels_ = labels.shape[1]
        self.classes_ = np.array([NEGATIVE, POSITIVE])
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """n×L logits."""
        check_is_fitted(self)
        found = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(found @ self.coef_.T + self.intercept_)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """n×L probabilities that a class is present."""
        return 1 / (1 + np.exp(-np.clip(self.decision_function(X), -700, 700)))

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:  # noqa: N803
        """n×L, 1 where a class is more likely present than not."""
        return (self.decision_function(X) > 0).astype(np.int64)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: None = None) -> float:  # noqa: N803
        """Mean average precision over the classes, of known labels only.

        Args:
            X: n×D features.
            y: n×L labels; unknown ones are left out, and so is a class that is never known to be present.
            sample_weight: not supported.
        """
        if sample_weight is not None:
            raise ValueError("PartialLabelClassifier.score takes no sample_weight.")
        return float(np.nanmean(metrics.average_precision(self.decision_function(X), _label_states(y))))

    def __sklearn_tags__(self) -> Tags:
        """Many outputs, each of them binary."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags

    def _chosen(self, labels: LabelMatrix) -> str:
        if not labels.positives.sum():
            raise ValueError("No label is known to be present (1); at least one class needs one.")
        if self.method != "auto":
            return self.method
        if labels.complete():
            return "bce"
        return "csl" if labels.negatives.any() else "em"

    def _trained(self, features: Tensor, labels: LabelMatrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights and biases of a linear layer."""
        random = check_random_state(self.random_state)
        generator = torch.Generator().manual_seed(int(random.randint(_MOST_SEED)))
        count, width = features.shape
        steps = math.ceil(count / self.batch_size)
        epochs = max(_LEAST_EPOCHS, math.ceil(_LEAST_STEPS / steps)) if self.epochs == "auto" else int(self.epochs)
        layer = nn.Linear(width, labels.width)
        with torch.no_grad():
            layer.weight.copy_(torch.empty_like(layer.weight).uniform_(-1, 1, generator=generator) / math.sqrt(width))
            layer.bias.zero_()
        method = self._method(features, labels, layer, epochs)
        optimizer = torch.optim.Adam(layer.parameters(), lr=self.lr)
        for epoch in range(1, epochs + 1):
            method.begin_epoch(epoch)
            order = torch.randperm(count, generator=generator)
            for index in torch.split(order, self.batch_size):
                batch = _batch(features, labels, index)
                prediction = Prediction(layer(batch.inputs), features=batch.inputs)
                optimizer.zero_grad()
                torch.autograd.backward(list(method.loss(batch, prediction).values()))
                method.observe(batch, prediction.detach())
                optimizer.step()
        return layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()

    def _method(self, features: Tensor, labels: LabelMatrix, layer: nn.Linear, epochs: int) -> Method:
        """The method, set up for these arrays."""
        method = methods.create(self.method_, {self.method_: self.options} if self.options else None)
        if missing := sorted(method.needs - _AVAILABLE):
            raise TagfillError(
                f"Method '{self.method_}' needs {' and '.join(missing)}, which feature arrays do not have; choose "
                "another one, or train on a dataset with tagfill.train."
            )
        if "expected_positives" in method.needs and self.expected_positives is None:
            raise TagfillError(
                f"Method '{self.method_}' needs expected_positives, the mean number of labels per image."
            )
        rows = np.arange(len(labels))

        def predict(split: str) -> Iterator[tuple[Batch, Prediction]]:
            del split  # there is only one
            for index in torch.split(torch.arange(len(labels)), 1024):
                batch = _batch(features, labels, index)
                with torch.no_grad():
                    yield batch, Prediction(layer(batch.inputs), features=batch.inputs)

        def no_truth() -> LabelMatrix:
            raise TagfillError("The complete labels of feature arrays are not known.")

        task = Task(
            classes=tuple(str(number) for number in range(labels.width)),
            labels=labels,
            size=len(labels),
            epochs=epochs,
            seed=0,
            grid=None,
            expected_positives=self.expected_positives,
            lr=self.lr,
            memory=Memory(labels, rows, seed=0),
            ranks=Ranks(),
            predict=predict,
            shard=rows,
            frozen_features=features.numpy,
            truth=no_truth,
        )
        method.setup(task)
        return method


def _batch(features: Tensor, labels: LabelMatrix, index: Tensor) -> Batch:
    return Batch(
        index=index,
        labels=torch.from_numpy(labels.rows(index.numpy())),
        inputs=features[index],
        geometry=Geometry.whole(len(index)),
    )


def _label_states(y: ArrayLike) -> NDArray[np.int8]:
    """Labels as 1, 0 and −1; a single class may be one-dimensional."""
    given = check_array(y, dtype=np.float64, ensure_all_finite="allow-nan", ensure_2d=False, input_name="y")
    given = given[:, None] if given.ndim == 1 else given
    states = np.where(np.isnan(given), UNKNOWN, given)
    if given.ndim != 2 or not np.isin(states, (NEGATIVE, POSITIVE, UNKNOWN)).all():
        raise ValueError("Labels are an array of images × classes with 1 present, 0 absent, and NaN or -1 unknown.")
    return states.astype(np.int8)
