"""What an attention layer looks at, and how it changes the scores, apart from how that is computed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqrl.core.registry import ATTENTION_SCORES


class AttentionScore(nn.Module):
    """Base of user-defined score and mask functions. Register a subclass with ``ATTENTION_SCORES.register(name)``.

    Like those of PyTorch's flex_attention, they are written with tensor operations, because they are called with one
    index or with tensors of indices that broadcast against each other. Positions count the inputs since the memory
    began: since the episode's start when acting, since the window's in training. So what depends on the lag
    ``query - key`` alone means the same in both.

    Args:
        num_heads: Of the layer.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def score(self, score: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return the changed score of position ``key <= query``, given ``q . k / sqrt(width)``."""
        return score

    def mask(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return whether ``query`` may look at ``key``, within the window; it always sees itself."""
        return key <= query


@ATTENTION_SCORES.register("alibi")
class Alibi(AttentionScore):
    """Linear penalty of the lag, with another slope per head (Press et al., 2022, arXiv 2108.12409).

    The slopes are ``2 ** (-max_exponent * (head + 1) / num_heads)``.
    """

    slopes: Tensor

    def __init__(self, num_heads: int, *, max_exponent: float = 8.0) -> None:
        super().__init__(num_heads)
        slopes = 2.0 ** (-max_exponent * torch.arange(1, num_heads + 1) / num_heads)
        self.register_buffer("slopes", slopes, persistent=False)

    def score(self, score: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return the score less the slope times the lag."""
        return score - self.slopes[head] * (query - key)


@dataclass(frozen=True, eq=False)
class Pattern:
    """A window, attention sinks, and what happens to the scores before the softmax.

    Attributes:
        window: Inputs that a position attends to, itself included.
        num_sinks: First inputs of the memory that every later position attends to besides its window.
        sink_bias: Added to the scores of the sinks.
        logit_clip: Scores are kept within this bound softly, by ``c tanh(score / c)``.
        score: User-defined functions.
        head_width: Features of a head, which back-ends limit.

    Source: Xiao et al. (2023), attention sinks, arXiv 2309.17453; Gemma 2 (2024), soft-capping, arXiv 2408.00118.
    """

    window: int
    num_sinks: int = 0
    sink_bias: float | Tensor = 0.0
    logit_clip: float | Tensor | None = None
    score: AttentionScore | None = None
    head_width: int | None = None

    @property
    def features(self) -> set[str]:
        """Names of what goes beyond a causal window, which not every back-end can do."""
        names = ("num_sinks", "logit_clip", "score")
        return {name for name in names if getattr(self, name)}

    @property
    def has_plain_scores(self) -> bool:
        """Whether scores are ``q . k / sqrt(width)``, up to a mask and a bias."""
        return not self.features & {"logit_clip", "score"}

    def visible(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return whether each query position sees each key position."""
        in_window = query - key < self.window
        seen = (key <= query) & (in_window | (key < self.num_sinks) if self.num_sinks else in_window)
        if self.score is None:
            return seen
        return seen & (self.score.mask(head, query, torch.minimum(key, query)) | (key == query))

    def adjusted(self, score: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores after clipping, the bias of the sinks, and the user's function."""
        if self.logit_clip is not None:
            score = self.logit_clip * torch.tanh(score / self.logit_clip)
        if self.num_sinks:
            score = score + self.sink_bias * (key < self.num_sinks)
        if self.score is not None:
            score = self.score.score(score, head, query, torch.minimum(key, query))
        return score
