"""Write ``mixed-{hdf5,arrow,parquet}-v0`` by Minari itself: ``MINARI_DATASETS_PATH=FOLDER python make_minari.py``."""

import minari
import numpy as np
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

SPACE = spaces.Dict(
    camera=spaces.Box(0, 255, (64, 64, 3), np.uint8),  # large enough to become JPEG
    pair=spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 255, (2, 2), np.uint8)]),
    mission=spaces.Text(20),
    bits=spaces.MultiBinary(3),
    matrix=spaces.Box(-1, 1, (2, 3), np.float64),
)
ACTIONS = spaces.MultiDiscrete([3, 2])


def stacked(space, samples):
    if isinstance(space, spaces.Dict):
        return {k: stacked(sub, [x[k] for x in samples]) for k, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(sub, [x[i] for x in samples]) for i, sub in enumerate(space.spaces))
    return list(samples) if isinstance(space, spaces.Text) else np.stack(samples)


def episode(number, steps):
    SPACE.seed(number), ACTIONS.seed(number)
    last = np.arange(steps) == steps - 1
    seen = stacked(SPACE, [SPACE.sample() for _ in range(steps + 1)])
    seen["camera"][:] = np.arange(64, dtype=np.uint8)[:, None] * 2 + number  # compresses well
    return EpisodeBuffer(
        id=number,
        seed=number,
        observations=seen,
        actions=stacked(ACTIONS, [ACTIONS.sample() for _ in range(steps)]),
        rewards=np.random.default_rng(number).random(steps).tolist(),
        terminations=(last & (number == 0)).tolist(),
        truncations=(last & (number == 1)).tolist(),
        infos={},
    )


for name in ("hdf5", "arrow", "parquet"):
    minari.create_dataset_from_buffers(
        f"tests/mixed-{name}-v0",
        [episode(0, 3), episode(1, 4)],
        observation_space=SPACE,
        action_space=ACTIONS,
        data_format=name,
    )
