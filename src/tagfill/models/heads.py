"""Heads: from features to a `Prediction`.

linear    one linear layer over the mean of the cells or the class token
cam       class maps by a 1×1 convolution, logits by their mean, optionally with BoostLU
tscam     class maps by a 3×3 convolution, coupled with a transformer's attention for localization
query     Query2Label, in `tagfill.models.query`
dual      a positive and a negative vector per class, after DualCoOp, in `tagfill.models.dual`
ensemble  trained `cam` heads whose standardized logits are added
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.options import option_parameters

TEXT_SCALE, TEXT_BIAS = 100.0, -25.0
"""Weights and biases from text vectors by default: CLIP's temperature, and a probability of ½ at a cosine of 0.25."""

INITIAL_OPTIONS = ("init", "vectors", "text_scale", "text_bias")
"""Options that only decide the initial weights; they are not saved with a model."""

_RIVAL = 1.0  # standard deviations above the mean from which a class competes with others in a cell


class Head(nn.Module):
    """From features to a `Prediction`.

    A head is created as `HeadClass(channels, classes, **options)` and keeps each option, a keyword of its constructor,
    in an attribute of the same name. Its initial weights are random; `tagfill.models.create` reads the text vectors of
    a head with `init=text` and calls `start_from`.

    Attributes:
        channels: D of the features; None skips the check of the features' shape.
        has_maps: whether it returns class maps.
        attention_of: source of the attention that it returns on request: `head`, `backbone`, or None.
    """

    channels: int | None = None
    has_maps: ClassVar[bool] = False
    attention_of: ClassVar[Literal["head", "backbone"] | None] = None

    @property
    def spatial(self) -> bool:
        """Whether it always needs features of cells, B×D×H×W; pooled ones (B×D) are not enough."""
        return False

    @property
    def token(self) -> bool:
        """Whether it takes class tokens, B×D."""
        return False

    @property
    def options(self) -> dict[str, Any]:
        """All options with their values, except those that only decided the initial weights."""
        return {name: getattr(self, name) for name in option_parameters(type(self)) if name not in INITIAL_OPTIONS}

    def start_from(self, vectors: Tensor) -> None:
        """Set the initial weights from text vectors of the classes, L×D of length 1, for a head with `init=text`."""
        raise NotImplementedError

    def mask_boost(self, mask: Tensor) -> None:
        """Boost only these classes (L bool) in training; does nothing if the head does not boost."""

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Predict; `maps` returns the class maps, `attention` the head's own attention.

        A `Classifier` requests only what `has_maps` and `attention_of` declare.
        """
        raise NotImplementedError


class LinearHead(Head):
    """One linear layer over one feature vector per image; no class maps.

        g = W f + b,   f = mean over cells of F  (`gap`),   or the class token of a ViT or DeiT  (`token`)

    With `gap` it is the `cam` head without maps and boost, and `Classifier.convert_head` converts one into the other.
    With `token` it is the usual classifier of a vision transformer.

    Lin, Chen and Yan: *Network In Network*, ICLR 2014 (`gap`); Dosovitskiy et al.: *An Image is Worth 16x16 Words*,
    ICLR 2021 (`token`).

    Args:
        channels: D of the features.
        classes: L.
        pool: `gap` for the mean over cells, `token` for the class token of a ViT or DeiT.
        init: `random`, or `text` to begin with the text vectors of the classes as weights.
        vectors: for `init=text`, the safetensors file of the text vectors.
        text_scale: factor of the text vectors.
        text_bias: initial bias of all classes with text vectors.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        pool: Literal["gap", "token"] = "gap",
        init: Literal["random", "text"] = "random",
        vectors: str | None = None,
        text_scale: float = TEXT_SCALE,
        text_bias: float = TEXT_BIAS,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.pool = pool
        self.init, self.vectors, self.text_scale, self.text_bias = init, vectors, text_scale, text_bias
        self.fc = nn.Linear(channels, classes)

    def start_from(self, vectors: Tensor) -> None:
        """Begin with scaled text vectors, L×D, as weights."""
        _set_layer(self.fc, vectors, self.text_scale, self.text_bias)

    @property
    def token(self) -> bool:
        """Whether it classifies the class token."""
        return self.pool == "token"

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Logits of B×D vectors, or with `gap` of the mean of B×D×H×W features."""
        del maps, attention  # it has neither
        if self.token and features.ndim != 2:
            raise TagfillError("The linear head with pool=token was given features of cells; it needs class tokens.")
        pooled = features if features.ndim == 2 else features.mean((2, 3))
        return Prediction(self.fc(pooled).float(), None, features)


class CamHead(Head):
    """Class maps by a 1×1 convolution, logits by their mean, optionally with BoostLU in between.

        S = W F + b  in every cell,   g = mean over cells of S,   or of boost(S)

    Without a boost, averaging the features first and classifying the mean gives the same logits, because both steps are
    linear; this is done if no maps are requested, and on pooled features. Maps are those before the boost.

    Zhou, Khosla, Lapedriza, Oliva and Torralba: *Learning Deep Features for Discriminative Localization*, CVPR 2016, as
    reordered by Zhang, Wei, Feng, Yang and Huang: *Adversarial Complementary Learning for Weakly Supervised Object
    Localization*, CVPR 2018.

    Args:
        channels: D of the features.
        classes: L.
        boost: α of BoostLU, 5 in the paper; 1 does not boost.
        boost_from: β of BoostLU, the score above which it boosts.
        boost_train: boost in training.
        boost_eval: boost in evaluation, even if the model was trained without.
        boost_unseen: boost classes that `mask_boost` excludes in training too, as the published code does.
        init: `random`, or `text` to begin with the text vectors of the classes as weights.
        vectors: for `init=text`, the safetensors file of the text vectors.
        text_scale: factor of the text vectors.
        text_bias: initial bias of all classes with text vectors.
    """

    has_maps = True

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        boost: float = 1.0,
        boost_from: float = 0.0,
        boost_train: bool = True,
        boost_eval: bool = True,
        boost_unseen: bool = False,
        init: Literal["random", "text"] = "random",
        vectors: str | None = None,
        text_scale: float = TEXT_SCALE,
        text_bias: float = TEXT_BIAS,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.init, self.vectors, self.text_scale, self.text_bias = init, vectors, text_scale, text_bias
        if not 1 <= boost < float("inf"):
            raise TagfillError(f"boost={boost:g} of head 'cam' must be at least 1 and finite; 1 means no boost.")
        self.boost, self.boost_from = boost, boost_from
        self.boost_train, self.boost_eval, self.boost_unseen = boost_train, boost_eval, boost_unseen
        self.fc = nn.Linear(channels, classes)
        self.boosts: Tensor | None
        masks = boost != 1 and boost_train and not boost_unseen
        self.register_buffer("boosts", torch.ones(classes) if masks else None)  # 0 for classes that are not boosted

    @property
    def spatial(self) -> bool:
        """Whether it boosts at all: a boost acts on cells."""
        return self.boost != 1 and (self.boost_train or self.boost_eval)

    def mask_boost(self, mask: Tensor) -> None:
        """Boost only these classes (L bool) in training; evaluation boosts all."""
        if self.boosts is not None:
            self.boosts.copy_(mask)

    def start_from(self, vectors: Tensor) -> None:
        """Begin with scaled text vectors, L×D, as weights."""
        _set_layer(self.fc, vectors, self.text_scale, self.text_bias)

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Class maps and logits of B×D×H×W features; without a boost, also logits of pooled B×D features."""
        del attention  # it has none
        boosting = self.boost != 1 and (self.boost_train if self.training else self.boost_eval)
        if features.ndim == 2 and (maps or boosting):
            wanted = "class maps need" if maps else f"boost={self.boost:g} needs"
            raise TagfillError(f"The cam head was given pooled features, but {wanted} features of cells.")
        if not (maps or boosting):
            pooled = features if features.ndim == 2 else features.mean((2, 3))
            return Prediction(self.fc(pooled).float(), None, features)
        cells = features.permute(0, 2, 3, 1)  # a view if features are channels last, as cached ones are
        spatial = F.linear(cells, self.fc.weight, self.fc.bias).float()
        logits = (boost(spatial, self._slopes(), self.boost_from) if boosting else spatial).mean((1, 2))
        return Prediction(logits, spatial.permute(0, 3, 1, 2) if maps else None, features)

    def _slopes(self) -> float | Tensor:
        """α of all classes, or in training of each class."""
        if self.training and self.boosts is not None:
            return 1 + (self.boost - 1) * self.boosts.float()
        return self.boost


@torch.no_grad()
def _set_layer(layer: nn.Linear, vectors: Tensor, scale: float, bias: float) -> None:
    layer.weight.copy_(scale * vectors)
    layer.bias.fill_(bias)


def boost(scores: Tensor, alpha: float | Tensor, beta: float = 0.0) -> Tensor:
    """BoostLU: enlarge large scores in class maps, which false negatives have made too small.

        b(s) = α s + (1 − α) β   where s > β,   s elsewhere
             = s + (α − 1) max(s − β, 0)

    It is continuous at β and has no parameters. The slope at exactly β is 1, as in the published code; the paper's
    "s ≥ β" would make it α. Do not boost classes without a single observed positive in training: all of their positive
    scores would be pushed down α times as hard.

    Kim, Kim, Jeong, Schmid, Akata and Lee: *Bridging the Gap between Model Explanations in Partially Annotated
    Multi-label Classification*, CVPR 2023.

    Args:
        scores: of any shape.
        alpha: the slope above β; 1 changes nothing. A tensor that broadcasts sets it per class.
        beta: where the boost begins.

    >>> import torch
    >>> boost(torch.tensor([[1.0, -2.0], [0.5, 0.0]]), 5.0).mean()
    tensor(1.3750)
    """
    return scores + (alpha - 1) * F.relu(scores - beta)


class EnsembleHead(Head):
    """Several trained `cam` heads as one: their logits are standardized per class and added.

        S_kc = class map of class c by member k
        g_kc = logit of class c by member k: the mean over cells of boost(S_kc), as in the `cam` head
        z_c  = Σ_k (g_kc − m_kc) / s_kc,             m, s: mean and standard deviation on training images
        g_c  = m̄_c + s̄_c z_c / K,                    m̄, s̄: means of m and s over the members, or those of another head

    Methods disagree in the level and the spread of their logits, so a plain mean would follow the method with the
    largest ones. The last line gives the sum the level and spread of an average member, or of another head, so that it
    is a logit again and can be compared between classes.

    A cell shows one object, but similar classes such as cat and dog are high in the same cells. With `compete`, the
    classes of a cell compete before the boost:

        e_c  = mean over k of (S_kc − M_kc) / D_kc,  M, D: mean and standard deviation over cells of training images
        S_kc ← S_kc − γ D_kc max(max_{j≠c} e_j − 1, 0)

    This is ours; `docs/benchmarks/auto.md` shows what it gains.

    Members are stacked in one linear layer, which costs hardly more than one head. Class maps are the mean of the
    members' maps before they compete.

    It is not trained: `tagfill.models.combine` makes one from trained classifiers.

    Args:
        channels: D of the features.
        classes: L.
        members: K.
        boost: α of BoostLU; 1 does not boost.
        boost_from: β of BoostLU, the score above which it boosts.
        compete: γ; 0 does not compete.
    """

    has_maps = True
    mean: Tensor
    deviation: Tensor
    level: Tensor
    spread: Tensor
    cell_mean: Tensor
    cell_deviation: Tensor

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        members: int = 2,
        boost: float = 1.0,
        boost_from: float = 0.0,
        compete: float = 0.0,
    ) -> None:
        super().__init__()
        if members < 1:
            raise TagfillError(f"members={members} of head 'ensemble': an ensemble has at least one member.")
        if not 0 <= compete <= 1:
            raise TagfillError(f"compete={compete:g} of head 'ensemble' must be between 0 and 1; 0 does not compete.")
        self.channels = channels
        self.members, self.boost, self.boost_from, self.compete = members, boost, boost_from, compete
        self.stacked = CamHead(
            channels, members * classes, boost=boost, boost_from=boost_from, boost_train=boost != 1, boost_unseen=True
        )
        self.register_buffer("mean", torch.zeros(members, classes))
        self.register_buffer("deviation", torch.ones(members, classes))
        self.register_buffer("level", torch.zeros(classes))
        self.register_buffer("spread", torch.ones(classes))
        if compete:
            self.register_buffer("cell_mean", torch.zeros(members, classes))
            self.register_buffer("cell_deviation", torch.ones(members, classes))

    @property
    def spatial(self) -> bool:
        """Whether it boosts or competes: both act on cells."""
        return self.stacked.spatial or self.compete > 0

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Class maps and logits of B×D×H×W features; without a boost and competition, also logits of B×D features."""
        del attention  # it has none
        if not self.compete:
            prediction = self.stacked(features, maps=maps)
            logits = self.combine(prediction.logits.unflatten(1, (self.members, -1)))
            mean_maps = prediction.maps.unflatten(1, (self.members, -1)).mean(1) if maps else None
            return Prediction(logits, mean_maps, features)
        scores = self.cell_scores(features)
        mean_maps = scores.mean(3).permute(0, 3, 1, 2) if maps else None
        return Prediction(self.combine(self._pooled(scores)), mean_maps, features)

    def cell_scores(self, features: Tensor) -> Tensor:
        """Scores of the members in each cell, before they compete: B×H×W×K×L from B×D×H×W features."""
        if features.ndim == 2:
            raise TagfillError("The ensemble head was given pooled features, but compete needs features of cells.")
        layer = self.stacked.fc
        scores = F.linear(features.permute(0, 2, 3, 1), layer.weight, layer.bias).float()
        return scores.reshape(*scores.shape[:3], self.members, -1)

    def member_logits(self, features: Tensor) -> Tensor:
        """Logits of the members, B×K×L, that `standardize` takes and `combine` combines."""
        if self.compete:
            return self._pooled(self.cell_scores(features))
        logits: Tensor = self.stacked(features).logits
        return logits.reshape(len(logits), self.members, -1)

    def combine(self, logits: Tensor) -> Tensor:
        """B×L logits of the ensemble from those of its members, B×K×L."""
        standardized = ((logits - self.mean) / self.deviation).mean(1)
        return self.level + self.spread * standardized

    def _pooled(self, scores: Tensor) -> Tensor:
        """Logits of the members after the classes of each cell have competed: B×K×L from B×H×W×K×L."""
        if scores.shape[-1] > 1:
            evidence = ((scores - self.cell_mean) / self.cell_deviation).mean(3)
            highest = evidence.topk(2, dim=3).values
            others = torch.where(evidence == highest[..., :1], highest[..., 1:], highest[..., :1])
            scores = scores - self.compete * F.relu(others - _RIVAL)[..., None, :] * self.cell_deviation
        return boost(scores, self.boost, self.boost_from).mean((1, 2))

    @torch.no_grad()
    def standardize_cells(self, mean: Tensor, deviation: Tensor) -> None:
        """Take mean and standard deviation of the members' scores over cells of training images, K×L each.

        A class whose scores do not vary keeps a deviation of 1.
        """
        self.cell_mean.copy_(mean)
        self.cell_deviation.copy_(torch.where(deviation > 0, deviation, torch.ones_like(deviation)))

    @torch.no_grad()
    def standardize(self, logits: Tensor, scale: Tensor | None = None) -> None:
        """Take mean and standard deviation from the members' logits on training images.

        A class whose logits do not vary keeps a deviation of 1.

        Args:
            logits: N×K×L.
            scale: N×L, logits whose level and spread the sum gets; by default those of an average member.
        """
        self.mean.copy_(logits.mean(0))
        self.deviation.copy_(_deviation(logits))
        self.level.copy_(self.mean.mean(0) if scale is None else scale.mean(0))
        self.spread.copy_(self.deviation.mean(0) if scale is None else _deviation(scale))


def _deviation(logits: Tensor) -> Tensor:
    """The standard deviation over images; 1 where logits do not vary."""
    deviation = logits.std(0, correction=0)
    return torch.where(deviation > 0, deviation, torch.ones_like(deviation))


class TsCamHead(Head):
    """Class maps by a 3×3 convolution, logits by their mean; with a ViT or DeiT, attention on request.

        S = conv3×3(F)  (zero padding, with bias),   g = mean over cells of S
        A = Σ over blocks of the class token's attention to each patch, averaged over heads,   B×H×W
        coupled map  M_c = A · S_c                            for localization only; it takes no part in the logits

    F are the normed patch tokens of a ViT or DeiT; with a convolutional backbone there is no A. Attention is computed
    only on request, since it slows the backbone down. The convolution keeps PyTorch's initial weights, as in the
    released code.

    If no maps are requested, they are never computed: the mean of a convolution is linear in nine sums of features, one
    per weight of the 3×3 window, over the cells that it is multiplied with,

        g = b + 1/(H·W) Σ_{y,x} W[y,x] · (sum of F over all cells that W[y,x] is multiplied with)

    which costs little more than the mean of the features.

    Gao, Wan, Pan, Peng, Tian, Han, Zhou and Ye: *TS-CAM: Token Semantic Coupled Attention Map for Weakly Supervised
    Object Localization*, ICCV 2021.

    Args:
        channels: D of the features.
        classes: L.
    """

    has_maps = True
    attention_of = "backbone"

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.channels = channels
        self.conv = nn.Conv2d(channels, classes, kernel_size=3, padding=1)

    @property
    def spatial(self) -> bool:
        """Always: a window covers several cells."""
        return True

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Class maps and logits of B×D×H×W features."""
        del attention  # the classifier adds it, from the backbone
        if features.ndim == 2:
            raise TagfillError("The tscam head was given pooled features, but it needs features of cells.")
        if maps:
            spatial = self.conv(features).float()
            return Prediction(spatial.mean((2, 3)), spatial, features)
        weight = self.conv.weight.permute(0, 2, 3, 1).flatten(1)
        return Prediction(F.linear(_window_means(features), weight, self.conv.bias).float(), None, features)


def _window_means(features: Tensor) -> Tensor:
    """For each weight of a 3×3 window with zero padding, the sum of its cells divided by H·W: B×(9·D), row-major.

    The first row of a window never meets the last row of the grid, the last never the first; likewise for columns.
    """
    wide = torch.promote_types(features.dtype, torch.float32)  # half precision would lose too much in the differences
    cells = features.permute(0, 2, 3, 1)
    rows = cells.sum(2, dtype=wide)
    columns = torch.stack([rows - cells[:, :, -1], rows, rows - cells[:, :, 0]], dim=1)
    whole = columns.sum(2)
    windows = torch.stack([whole - columns[:, :, -1], whole, whole - columns[:, :, 0]], dim=1)
    return (windows.flatten(1) / (cells.shape[1] * cells.shape[2])).to(features.dtype)


def summed_attention(rows: Tensor, features: Tensor) -> Tensor:
    """A of TS-CAM: attention summed over blocks, B×H×W.

    Args:
        rows: B×blocks×H·W, the class token's attention in each block, averaged over heads.
        features: B×D×H×W, of the same images.
    """
    return rows.float().sum(1).reshape(features.shape[0], *features.shape[2:])


def coupled(prediction: Prediction) -> Tensor:
    """Coupled maps A · S of TS-CAM, B×L×H×W, from a prediction with maps and attention.

    >>> coupled(Prediction(torch.zeros(1, 1), torch.full((1, 1, 1, 2), -3.0), None, torch.tensor([[[0.5, 2.0]]])))
    tensor([[[[-1.5000, -6.0000]]]])
    """
    if prediction.maps is None or prediction.attention is None:
        raise TagfillError("Coupled maps need a prediction made with maps=True and attention=True.")
    return prediction.attention[:, None] * prediction.maps
