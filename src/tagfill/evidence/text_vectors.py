"""Text vectors for the ImageNet prior: static word vectors of the package wordllama.

Only the two data files of the package are read, the vectors of its 32,000 tokens (safetensors) and its tokenizer
(JSON); its code is not run and nothing is downloaded. The vector of a text is the mean of the vectors of its tokens,
scaled to length 1.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError

_PACKAGE = "wordllama"
_VECTORS, _TOKENIZER = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"


class WordVectors:
    """Mean word vectors of texts.

    Args:
        vectors: V×D, one per token.
        tokenizer: with `encode(text, add_special_tokens=False).ids`.
    """

    def __init__(self, vectors: NDArray[np.floating], tokenizer: Any) -> None:
        self._vectors, self._tokenizer = vectors, tokenizer

    @staticmethod
    def installed() -> bool:
        """Whether the vectors can be loaded."""
        return _folder() is not None

    @classmethod
    def load(cls) -> WordVectors:
        """Load the vectors of the installed package.

        Raises:
            TagfillError: if it is not installed.
        """
        folder = _folder()
        if folder is None:
            raise TagfillError("The prior needs the word vectors of wordllama; run: pip install 'tagfill[prior]'.")
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(next(iter(load_file(folder / _VECTORS).values())), tokenizer)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """n×D vectors of length 1; zeros for a text without any token."""
        found = np.zeros((len(texts), self._vectors.shape[1]), dtype=np.float32)
        for row, text in enumerate(texts):
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            if ids:
                found[row] = self._vectors[ids].astype(np.float32).mean(0)
        unit: NDArray[np.float32] = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return unit


def _folder() -> Path | None:
    """The installed package; None if it or its tokenizer is missing."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None or importlib.util.find_spec("tokenizers") is None:
        return None
    folder = Path(spec.origin).parent
    return folder if (folder / _VECTORS).is_file() else None
