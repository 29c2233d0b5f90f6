"""A trained model at work: predictions for new images, and export. Importing this package imports no torch."""

from tagfill.inference.files import Filled, predict_to_file
from tagfill.inference.images import ImageList, find_images
from tagfill.inference.onnx_export import Exported, export
from tagfill.inference.pipeline import ImagePrediction, predict
from tagfill.inference.predictors import Outputs, Predictor, open_predictor

__all__ = [
    "Exported",
    "Filled",
    "ImageList",
    "ImagePrediction",
    "Outputs",
    "Predictor",
    "export",
    "find_images",
    "open_predictor",
    "predict",
    "predict_to_file",
]
