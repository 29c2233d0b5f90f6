"""A trained model at work: predictions for new images, and export. Importing this package imports no torch."""

from tagfill.deprecation import renamed
from tagfill.inference.files import predict_to_file
from tagfill.inference.images import ImageList, find_images
from tagfill.inference.onnx_export import OnnxExport, export
from tagfill.inference.pipeline import ImagePrediction, predict
from tagfill.inference.prediction_parts import PredictionFile, read_predicted_tags
from tagfill.inference.predictors import Outputs, Predictor, open_predictor

__all__ = [
    "ImageList",
    "ImagePrediction",
    "OnnxExport",
    "Outputs",
    "PredictionFile",
    "Predictor",
    "export",
    "find_images",
    "open_predictor",
    "predict",
    "predict_to_file",
    "read_predicted_tags",
]

__getattr__ = renamed(__name__, {"Exported": "OnnxExport", "Filled": "PredictionFile"})
