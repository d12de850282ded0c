"""Batches come in order, errors in their turn, and nobody is left waiting."""

import threading
import time

import pytest
import torch

from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.data.prefetch import prefetched


def batch(k):
    one = torch.full((1, 1), float(k))
    flag = torch.ones(1, 1, dtype=torch.bool)
    inputs = SeqInputs({"x": one}, one[..., None], one, one.long())
    return SeqBatch(inputs, one[..., None], one, flag, flag, flag)


def prefetch_threads():
    return [t for t in threading.enumerate() if t.name == "seqrl-prefetch"]


def wait_until(condition, limit_s=5.0):
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


@pytest.mark.parametrize("num_ahead", [0, 1, 3, 50])
def test_batches_come_in_order_each_made_once(num_ahead):
    made = []
    out = [int(b.rewards) for b in prefetched(lambda k: made.append(k) or batch(k), range(5, 25), num_ahead)]
    assert out == made == list(range(5, 25))
    assert not prefetch_threads()


@pytest.mark.parametrize("num_ahead", [0, 2])
def test_no_indices_give_no_batches(num_ahead):
    assert list(prefetched(batch, range(0), num_ahead)) == []
    assert not prefetch_threads()


def test_zero_ahead_makes_each_when_asked_and_starts_no_thread():
    made = []
    stream = prefetched(lambda k: made.append(k) or batch(k), range(5), 0)
    assert made == []
    next(stream)
    assert made == [0]
    assert not prefetch_threads()
    next(stream)
    assert made == [0, 1]


def test_batches_are_made_ahead_but_not_without_limit():
    made = []
    stream = prefetched(lambda k: made.append(k) or batch(k), range(100), 3)
    next(stream)
    assert wait_until(lambda: len(made) >= 4)
    time.sleep(0.2)
    assert len(made) <= 5  # one taken, three waiting, one in hand
    stream.close()


@pytest.mark.parametrize("num_ahead", [0, 1, 4])
def test_an_error_is_raised_in_its_turn(num_ahead):
    def make(k):
        if k == 3:
            raise ValueError("batch 3 is bad")
        return batch(k)

    stream = prefetched(make, range(10), num_ahead)
    assert [int(next(stream).rewards) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="batch 3 is bad"):
        next(stream)
    assert not prefetch_threads()
    with pytest.raises(StopIteration):
        next(stream)


@pytest.mark.parametrize("num_ahead", [1, 4])
def test_leaving_the_loop_stops_the_thread(num_ahead):
    made = []
    stream = prefetched(lambda k: made.append(k) or batch(k), range(10_000), num_ahead)
    for item in stream:
        if int(item.rewards) == 2:
            break
    assert prefetch_threads()
    start = time.monotonic()
    stream.close()
    assert time.monotonic() - start < 10.0  # all 10,000 would take longer
    assert not prefetch_threads()
    assert len(made) < 20


def test_an_error_of_the_consumer_stops_the_thread():
    def consume():
        for _ in prefetched(batch, range(10_000), 2):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        consume()
    assert wait_until(lambda: not prefetch_threads())
