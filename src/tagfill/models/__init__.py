"""Classifiers: a backbone, timm's or your own, with a head that returns a `Prediction`."""

from tagfill.deprecation import renamed
from tagfill.models.backbone import BACKBONES, Backbone, BackboneOutput, BackboneTop, Preprocessing, create_backbone
from tagfill.models.classifier import HEADS, Classifier, combine, create, create_head
from tagfill.models.device import choose_device
from tagfill.models.dual import DualHead
from tagfill.models.heads import CamHead, EnsembleHead, Head, LinearHead, TsCamHead, boost, coupled
from tagfill.models.model_folder import set_calibration
from tagfill.models.query import QueryHead

__all__ = [
    "BACKBONES",
    "HEADS",
    "Backbone",
    "BackboneOutput",
    "BackboneTop",
    "CamHead",
    "Classifier",
    "DualHead",
    "EnsembleHead",
    "Head",
    "LinearHead",
    "Preprocessing",
    "QueryHead",
    "TsCamHead",
    "boost",
    "choose_device",
    "combine",
    "coupled",
    "create",
    "create_backbone",
    "create_head",
    "set_calibration",
]

__getattr__ = renamed(__name__, {"Seen": "BackboneOutput"})
