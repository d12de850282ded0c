"""Sentences: a vector for each, from a table or a function of the user's. Nothing is ever downloaded."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from seqrl.core.errors import ConfigError, DataError, did_you_mean
from seqrl.core.registry import MODALITIES, Registry
from seqrl.core.spaces import ObsSpec
from seqrl.core.text import TEXT_BYTES, decode_text
from seqrl.models.image_cores.local_weights import are_local_weights_skipped
from seqrl.models.timestep_encoders.modalities import Modality

MOST_KEPT = 10_000
"""Vectors of a function that are kept; beyond, those that a batch does not need are forgotten."""

TextFunction = Callable[[Sequence[str], int], np.ndarray]

TEXT_FUNCTIONS: Registry[TextFunction] = Registry("text function")
"""Name -> function of n texts and a width d that returns ``(n, d)`` numbers, the same whenever it is asked."""


@TEXT_FUNCTIONS.register("ngrams")
def ngrams(texts: Sequence[str], width: int) -> np.ndarray:
    """Return unit vectors that count the words of each text, and their pieces of three letters, by hashes.

    Texts that share words are near each other; words of like meaning are not.

    Source: Weinberger et al. (2009), Feature hashing for large scale multitask learning (arXiv 0902.2206).
    """
    rows = np.zeros((len(texts), width), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().split():
            spelt = f"<{word}>"
            for piece in {spelt, *(spelt[i : i + 3] for i in range(len(spelt) - 2))}:
                number = zlib.crc32(piece.encode())
                row[number % width] += 1.0 if number >> 31 else -1.0
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6))


@MODALITIES.register("text")
class TextModality(Modality):
    """Text: a fixed vector for each sentence, zeros for none, then a linear layer.

    The vectors are those of a table (``texts`` with ``vectors``), which a checkpoint keeps, or a function's.

    Args:
        name: Of the entry.
        spec: ``(256,)`` uint8, as text is observed.
        texts: All that may be read, if there is a table.
        vectors: A local ``.npy`` file, ``(len(texts), d_vector)`` numbers.
        function: Of any text, by its name in :data:`TEXT_FUNCTIONS`, if there is no table.
        d_vector: Width of the vectors.
        d_output: Width of the output.

    Raises:
        ConfigError: If the entry is no text, or the table is missing or does not fit.
    """

    vectors: Tensor

    def __init__(
        self,
        name: str,
        spec: ObsSpec,
        *,
        texts: Sequence[str] = (),
        vectors: str | None = None,
        function: str = "ngrams",
        d_vector: int = 256,
        d_output: int = 64,
    ) -> None:
        super().__init__(name, spec)
        if tuple(spec.shape) != (TEXT_BYTES,) or spec.dtype != "uint8":
            raise self.problem("type", f"is not text, which has the shape ({TEXT_BYTES},) and is of uint8")
        if bool(texts) != (vectors is not None):
            raise self.problem("vectors", "needs both 'texts' and 'vectors' for a table, or neither for a function")
        self.d_output = d_output
        self._d_vector = d_vector
        self._rows = {text: row for row, text in enumerate(texts)}
        self._computed: dict[str, np.ndarray] = {}  # the function's vectors, no part of the weights
        self._function = None if texts else TEXT_FUNCTIONS.get(function)
        known = torch.zeros(len(texts), d_vector)
        if vectors is not None and not are_local_weights_skipped():
            known = self._read(Path(vectors), (len(texts), d_vector))
        if texts:
            self.register_buffer("vectors", known)
        self.linear = nn.Linear(d_vector, d_output)

    def forward(self, x: Shaped[Tensor, "B L *shape"]) -> Float[Tensor, "B L D"]:
        """Return the embeddings.

        Raises:
            DataError: If a text is not in the table.
        """
        distinct, which = x.flatten(0, 1).unique(dim=0, return_inverse=True)
        texts = [decode_text(row) for row in distinct.cpu().numpy()]
        vectors = self._of_table(texts) if self._function is None else self._of_function(texts).to(x.device)
        y: Tensor = self.linear(vectors[which]).unflatten(0, x.shape[:2])
        return y

    def _of_table(self, texts: list[str]) -> Tensor:
        """Return the rows of texts; that of no text is 0, unless the table has one for it."""
        for text in texts:
            if text and text not in self._rows:
                near = did_you_mean(text, self._rows)
                raise DataError(f"{self.key}.texts: has no {text!r}{near}; it has {len(self._rows)} texts")
        rows = torch.tensor([self._rows.get(text, -1) for text in texts], device=self.vectors.device)
        return nn.functional.pad(self.vectors, (0, 0, 0, 1))[rows]

    def _of_function(self, texts: list[str]) -> Tensor:
        """Return what the function gives for texts, 0 for no text; it is asked for those that are not kept."""
        assert self._function is not None
        if new := [text for text in texts if text and text not in self._computed]:
            found = np.asarray(self._function(new, self._d_vector), np.float32)
            if found.shape != (expected := (len(new), self._d_vector)):
                raise ConfigError(f"{self.key}.function: gave {found.shape}, expected {expected} (d_vector)")
            if len(self._computed) > MOST_KEPT:
                self._computed = {text: self._computed[text] for text in texts if text in self._computed}
            self._computed |= dict(zip(new, found, strict=True))
        blank = np.zeros(self._d_vector, np.float32)
        return torch.from_numpy(np.stack([self._computed.get(text, blank) for text in texts]))

    def _read(self, file: Path, shape: tuple[int, int]) -> Tensor:
        try:
            vectors = torch.from_numpy(np.load(file, allow_pickle=False).astype(np.float32))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.key}.vectors: {str(file)!r} is no .npy file of numbers ({error})") from error
        if vectors.shape != shape:
            raise ConfigError(
                f"{self.key}.vectors: {str(file)!r} has the shape {tuple(vectors.shape)}, expected {shape}: one row "
                "for each of 'texts', of the width 'd_vector'"
            )
        return vectors
