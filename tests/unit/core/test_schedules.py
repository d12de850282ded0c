"""Schedules against numbers worked out by hand."""

import math

import pytest

from seqrl.core.schedules import cosine_decay, linear_decay, multistep_decay, warmup


def test_warmup_reaches_one():
    assert [warmup(k, 4) for k in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert warmup(0, 0) == 1.0


def test_linear_decay_is_a_line_and_then_stays():
    assert [linear_decay(k, 4, 0.0) for k in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert [linear_decay(k, 2, 0.5) for k in (-3, 0, 1, 2, 9)] == [1.0, 1.0, 0.75, 0.5, 0.5]


def test_cosine_decay_is_half_a_cosine_and_then_stays():
    half = math.sqrt(0.5)
    expected = [1.0, (1 + half) / 2, 0.5, (1 - half) / 2, 0.0, 0.0]
    assert [cosine_decay(k, 4, 0.0) for k in range(6)] == pytest.approx(expected)
    assert [cosine_decay(k, 2, 0.2) for k in (-1, 0, 1, 2, 9)] == pytest.approx([1.0, 1.0, 0.6, 0.2, 0.2])


def test_multistep_decay_multiplies_from_each_milestone_on():
    assert [multistep_decay(k, [2, 4], 0.5) for k in range(6)] == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    assert multistep_decay(99, [], 0.1) == 1.0
