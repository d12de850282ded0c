"""One seed feeds independent, repeatable, named streams."""

import os
import random
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

import seqrl
from seqrl.core.generators import seed_everything
from seqrl.core.seeding import generator, integer_seed, seed_sequence


def draws(*path, seed=0):
    return tuple(generator(seed, *path).integers(0, 2**63, 4).tolist())


def test_same_seed_and_path_give_the_same_stream():
    assert draws("train", 0, 3) == draws("train", 0, 3)


def test_different_seeds_and_paths_give_different_streams():
    paths = [
        (),
        (0,),
        (0, 0),
        (1,),
        ("train",),
        ("valid",),
        ("train", 0),
        ("train", 0, 1),
        ("train", 1, 0),
        (0, "train"),
    ]
    streams = {draws(*path, seed=seed) for path in paths for seed in (0, 1)}
    assert len(streams) == 2 * len(paths)


def test_streams_of_neighbouring_steps_are_uncorrelated():
    samples = np.stack([generator(0, "train", k).standard_normal(2000) for k in range(5)])
    correlation = np.corrcoef(samples) - np.eye(5)
    assert np.abs(correlation).max() < 0.12  # five standard errors


def test_text_enters_by_crc32():
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(7, spawn_key=(zlib.crc32(b"train"), 3))))
    assert generator(7, "train", 3).random() == expected.random()


def test_streams_do_not_depend_on_the_process():
    """Python's own hash of text differs between these two."""
    code = "from seqrl.core.seeding import integer_seed; print(integer_seed(3, 'eval', 5))"
    root = str(Path(seqrl.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root}
    out = {
        subprocess.run(
            [sys.executable, "-c", code], env={**env, "PYTHONHASHSEED": h}, capture_output=True, check=True, text=True
        ).stdout
        for h in ("1", "2")
    }
    assert out == {f"{integer_seed(3, 'eval', 5)}\n"}


def test_integer_seeds_fit_31_bits_and_spread():
    seeds = [integer_seed(0, "x", k) for k in range(500)]
    assert all(0 <= s < 2**31 for s in seeds)
    assert len(set(seeds)) == 500
    assert max(seeds) > 2**30
    assert isinstance(seeds[0], int)


@pytest.mark.parametrize(("seed", "path"), [(-1, ()), (0, (-1,)), (0, ("train", -2))])
def test_negative_numbers_are_refused(seed, path):
    with pytest.raises(ValueError, match=r"negative|non-negative"):
        seed_sequence(seed, *path)


def global_draws(seed, rank=0):
    seed_everything(seed, rank)
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


@pytest.fixture
def _restored_generators():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch.set_rng_state(states[2])


@pytest.mark.usefixtures("_restored_generators")
def test_seed_everything_seeds_python_numpy_and_torch():
    first = global_draws(0)
    assert global_draws(0) == first
    assert all(a != b for a, b in zip(global_draws(1), first, strict=True))
    assert all(a != b for a, b in zip(global_draws(0, rank=1), first, strict=True))
