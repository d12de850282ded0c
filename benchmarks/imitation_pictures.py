"""Draws sixty sampled episodes of policies on Fork, each a line over the rendering: ``docs/images/fork_policies.png``.

Run by hand: ``python benchmarks/imitation_pictures.py``, some minutes on one core.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from imitation import TASKS, started
from PIL import Image, ImageDraw, ImageFont

from seqrl.algo.acting import VectorPolicy
from seqrl.algo.ema import take_averages
from seqrl.envs.make import make_env

FILE = Path(__file__).parents[1] / "docs" / "images" / "fork_policies.png"
POLICIES = ("bc, mean", "bc, gmm", "diffusion_policy", "flow_matching")
NUM_EPISODES, LINE = 60, 18
LEFT, TOP, WIDTH, HEIGHT = -0.2, 0.7, 1.4, 1.4
"""What Fork's rendering shows, in its units."""
SCALE = 2
DONE, CRASHED = (40, 110, 220), (210, 60, 50)


def places_of(policy: VectorPolicy, env_id: str, seed: int) -> tuple[np.ndarray, bool]:
    """Return where one episode went, ``(T, 2)``, and whether it ended well."""
    env = make_env(env_id)
    obs, _ = env.reset(seed=seed)
    policy.reset(np.array([True]))
    places, is_over, info = [obs[:2]], False, {}
    while not is_over:
        action = policy.act({"obs": obs[None]}, np.zeros(1, np.float32))
        obs, _, terminated, truncated, info = env.step(policy.algo.codec.decode(action)[0])
        places.append(obs[:2])
        is_over = terminated or truncated
    return np.array(places), bool(info["success"])


def panel(name: str) -> Image.Image:
    """Return the picture of one policy, under its name."""
    env_id = TASKS["fork"].env_id
    env = make_env(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    ground = Image.fromarray(env.render())
    ground = ground.resize((ground.width * SCALE, ground.height * SCALE), 0)
    with tempfile.TemporaryDirectory() as folder:
        run = started("fork", name, "two frames", 0, folder)
        run.learn()
        run.algo.set_eval()
        take_averages(run.algo.nets)
        policy, draw = VectorPolicy(run.algo, 1, deterministic=False), ImageDraw.Draw(ground)
        for seed in range(NUM_EPISODES):
            places, is_success = places_of(policy, env_id, seed)
            x, y = (places[:, 0] - LEFT) / WIDTH * ground.width, (TOP - places[:, 1]) / HEIGHT * ground.height
            draw.line(list(zip(x.tolist(), y.tolist(), strict=True)), fill=DONE if is_success else CRASHED, width=1)
    canvas = Image.new("RGB", (ground.width, ground.height + LINE), "white")
    canvas.paste(ground, (0, LINE))
    ImageDraw.Draw(canvas).text((0, 1), name, fill=(70, 75, 85), font=ImageFont.load_default(12))
    return canvas


def main() -> None:
    """Draw."""
    torch.set_num_threads(1)
    panels = [panel(name) for name in POLICIES]
    canvas = Image.new("RGB", (sum(p.width + 8 for p in panels) - 8, panels[0].height), "white")
    at = 0
    for each in panels:
        canvas.paste(each, (at, 0))
        at += each.width + 8
    canvas.quantize(64, dither=Image.Dither.NONE).save(FILE, optimize=True)


if __name__ == "__main__":
    main()
