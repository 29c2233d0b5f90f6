"""A trained model at work: predictions for new images, and export. Importing this package imports no torch."""

from tagfill.inference.exporting import Exported, export
from tagfill.inference.filling import predict_to_file
from tagfill.inference.listing import ImageList, find_images
from tagfill.inference.predicting import ImagePrediction, predict
from tagfill.inference.predictor import Outputs, Predictor, open_predictor
from tagfill.inference.target import Filled

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
