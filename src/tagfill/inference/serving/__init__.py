"""A trained model behind HTTP: predictions for whoever may ask, in batches that form by themselves."""

from tagfill.inference.serving.limits import Limits

__all__ = ["Limits"]
