"""A number of one's own about held-out windows: the loss of the worst of them.

seqrl train --config bc.json --plugin examples/offline_metric_plugin.py \
    --set 'train.metrics=[{"type": "worst_windows"}]'
"""

from operator import itemgetter

from seqrl.algo import Algo
from seqrl.core.registry import METRICS
from seqrl.core.tensors import SeqBatch


@METRICS.register("worst_windows")
def worst_windows(algo: Algo, batches: list[SeqBatch], *, share: float = 0.1) -> dict[str, float]:
    """Return the mean loss of the worst share of the windows, and of all."""
    windows = [b.map(itemgetter(slice(i, i + 1))) for b in batches for i in range(len(b.mask))]
    losses = sorted((float(algo.compute_losses(window).total) for window in windows), reverse=True)
    worst = losses[: max(1, round(share * len(losses)))]
    return {"loss": sum(worst) / len(worst), "mean": sum(losses) / len(losses)}
