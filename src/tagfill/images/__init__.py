"""Reading and decoding images, and views of them with recorded geometry."""

from tagfill.images.batches import PixelBatch, load_batches, load_eval_view
from tagfill.images.check import check_images, find_missing
from tagfill.images.decode import decode
from tagfill.images.display import encode_jpeg, overlay_class_map, thumbnail
from tagfill.images.geometry import Geometry
from tagfill.images.roots import Root, content_digest, file_sizes, file_times, open_root
from tagfill.images.views import (
    CROP,
    EVAL,
    FLIP,
    STRONG,
    View,
    input_size,
    load_view,
    load_weak_and_strong,
    render,
)

__all__ = [
    "CROP",
    "EVAL",
    "FLIP",
    "STRONG",
    "Geometry",
    "PixelBatch",
    "Root",
    "View",
    "check_images",
    "content_digest",
    "decode",
    "encode_jpeg",
    "file_sizes",
    "file_times",
    "find_missing",
    "input_size",
    "load_batches",
    "load_eval_view",
    "load_view",
    "load_weak_and_strong",
    "open_root",
    "overlay_class_map",
    "render",
    "thumbnail",
]
