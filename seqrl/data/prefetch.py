"""Batches made ahead on a thread, so that training does not wait for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from seqrl.core.tensors import SeqBatch


def prefetched(
    make_batch: Callable[[int], SeqBatch], indices: range, num_ahead: int, *, pin: bool = False
) -> Iterator[SeqBatch]:
    """Yield ``make_batch(k)`` for each index in order, keeping ``num_ahead`` of them ready.

    An error raised by ``make_batch`` is raised here, in its turn. Leaving the loop early stops the thread.

    Args:
        make_batch: Pure function of the index.
        indices: Which batches.
        num_ahead: 0 makes each when it is asked for.
        pin: Copy to page-locked memory, for asynchronous transfer to a GPU.
    """

    def finished(k: int) -> SeqBatch:
        batch = make_batch(k)
        return batch.map(lambda x: x.pin_memory()) if pin else batch

    if num_ahead == 0:
        yield from (finished(k) for k in indices)
        return
    ready: queue.Queue[SeqBatch | BaseException] = queue.Queue(maxsize=num_ahead)
    stop = threading.Event()

    def work() -> None:
        try:
            for k in indices:
                if not _put(ready, finished(k), stop):
                    return
        except BaseException as error:  # handed to the consumer, which raises it
            _put(ready, error, stop)

    thread = threading.Thread(target=work, name="seqrl-prefetch", daemon=True)
    thread.start()
    try:
        for _ in indices:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()


def _put(ready: queue.Queue[SeqBatch | BaseException], item: SeqBatch | BaseException, stop: threading.Event) -> bool:
    """Put the item, unless the consumer has gone."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.05)
            return True
        except queue.Full:
            continue
    return False
