"""Classifiers: timm backbones with heads that give one `Prediction`."""

from tagfill.models.backbone import Backbone, Preprocessing, create_backbone
from tagfill.models.cam import CamHead
from tagfill.models.classifier import HEADS, Classifier, create, create_head

__all__ = ["HEADS", "Backbone", "CamHead", "Classifier", "Preprocessing", "create", "create_backbone", "create_head"]
