"""Draws the pictures of ``docs/environments``: a few frames of one seeded episode each, side by side, run by hand.

``python benchmarks/environment_pictures.py [NAME ...]``; the half-cheetah needs MuJoCo and, without a screen,
``MUJOCO_GL=egl``, as does Meta-World. Other suites need their packages, without which a picture stays as it is.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from environments import Player, best_player, random_play
from PIL import Image, ImageDraw, ImageFont

from seqrl.envs.make import make_env

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "environments"
HEIGHT, GAP, LINE = 144, 8, 18
LARGEST = 40_000


class Picture(NamedTuple):
    """One picture.

    Attributes:
        env_id: Environment.
        steps: Which steps of the episode are shown; 0 is the first observation, and -1 the last frame.
        kwargs: Arguments of the environment.
        seed: Of the episode.
        player: Who plays; None is the scripted expert, or the player of the table of figures.
        is_stacked: Frames below one another.
        from_obs: Show the observation instead of the rendering.
    """

    env_id: str
    steps: tuple[int, ...]
    kwargs: dict[str, Any] = {}  # noqa: RUF012  (never written)
    seed: int = 0
    player: Player | None = None
    is_stacked: bool = False
    from_obs: bool = False


def steady(obs: Any, env: Any, rng: np.random.Generator, is_first: bool) -> Any:
    """Swing the half-cheetah's legs, which moves it forward."""
    phase = 0.45 * env.get_wrapper_attr("_elapsed_steps")
    return np.sin(phase + np.array([0.0, 0.6, 1.2, 3.0, 3.6, 4.2])).astype(np.float32)


PACKAGES = {
    "HalfCheetah": "mujoco",
    "PushT": "gym_pusht",
    "ALE/": "ale_py",
    "Crafter": "crafter",
    "Meta-World/": "metaworld",
    "BabyAI": "minigrid",
    "gymnax/": "gymnax",
    "XLand": "xminigrid",
}
"""Part of an id -> the package without which its picture stays as it is."""

MAZE = {"size": 9, "num_goals": 3}
PICTURES = {
    "tmaze_passive": Picture("seqrl/TMazePassive-v0", (0, 10, -1), {"corridor_length": 20}, is_stacked=True),
    "tmaze_active": Picture(
        "seqrl/TMazeActive-v0", (0, 3, -1), {"corridor_length": 20, "oracle_distance": 3}, 1, is_stacked=True
    ),
    "tmaze_pixels": Picture("seqrl/TMazePixels-v0", (0, 1, 5), {"corridor_length": 5}, from_obs=True),
    "point_recall": Picture("seqrl/PointRecall-v0", (0, 1, 7, -1)),
    "relay": Picture("seqrl/Relay-v0", (0, 1, 2, 3), {"start": "B"}),
    "fork": Picture("seqrl/Fork-v0", (0, 3, 5, -1)),
    "recall_fork": Picture("seqrl/RecallFork-v0", (0, 54, 61, -1)),
    "crafter": Picture("Crafter-v1", (0, 60, 120), {}, 3, random_play),
    "atari": Picture("ALE/Breakout-v5", (5, 60, 120, -1)),
    "metaworld": Picture("Meta-World/push-v3", (0, 40, 80), {}, 1),
    "babyai": Picture("BabyAI-PickupLoc-v0", (0, 12, 24), {}, 1, random_play),
    "gymnax": Picture("gymnax/Breakout-MinAtar", (0, 2, 5), {}, 1, random_play),
    "xland": Picture("XLand-MiniGrid-R4-13x13", (0, 40, 80), {}, 1, random_play),
    "pusht": Picture("gym_pusht/PushT-v0", (0, 20, 40, -1), {}, 3),
    "meta_frozen_lake": Picture("seqrl/MetaFrozenLake-v0", (0, 4, 14, -1), {"size": 5, "hole_chance": 0.3}, 3),
    "dark_key_door": Picture("seqrl/DarkKeyDoor-v0", (0, 1, 2, 4), {"size": 5}, 1),
    "bandit": Picture("seqrl/Bandit-v0", (5, 30, -1)),
    "masked_bandit": Picture("seqrl/MaskedBandit-v0", (5, 20, -1)),
    "maze_runner": Picture("seqrl/MazeRunner-v0", (0, 10, 20, -1), MAZE, 2),
    "copying": Picture("seqrl/Copying-v0", (0, -1), {}, 1),
    "multi_discrete_recall": Picture("seqrl/MultiDiscreteRecall-v0", (0, -1), {}, 1),
    "tool_recall": Picture("seqrl/ToolRecall-v0", (0, -1), {}, 1, is_stacked=True),
    "half_cheetah_velocity": Picture("seqrl/HalfCheetahVelocity-v0", (0, 12, 24), player=steady),
    "attempts": Picture("seqrl/Attempts-v0", (0, 4, 5, -1), {"attempts": 2, "env_kwargs": {"size": 7}}, 5),
}


def frames(picture: Picture) -> list[tuple[str, np.ndarray]]:
    """Return captions and frames of one episode."""
    player = picture.player or best_player(picture.env_id)[1] or random_play
    env, rng = make_env(picture.env_id, picture.kwargs, render_mode="rgb_array"), np.random.default_rng(0)
    obs, _ = env.reset(seed=picture.seed)
    found, step, done = [], 0, False
    while True:
        image = obs if picture.from_obs else env.render()
        found.append(np.asarray(image))
        if done:
            break
        action = player(obs, env, rng, step == 0)
        obs, reward, terminated, truncated, _ = env.step(action)
        if hasattr(player, "reward"):
            player.reward(action, float(reward))
        step, done = step + 1, terminated or truncated
    env.close()
    chosen = [number % len(found) for number in picture.steps]
    return [(f"step {number}", found[number]) for number in chosen]


def tile(caption: str, frame: np.ndarray, height: int) -> Image.Image:
    """Return a frame of about that height, with a caption above; pixels to be seen as such stay sharp."""
    image = Image.fromarray(frame)
    if image.height <= height // 2:
        image = image.resize((image.width * (height // image.height), image.height * (height // image.height)), 0)
    else:
        image = image.resize((round(image.width * height / image.height), height), Image.Resampling.LANCZOS)
    height = image.height
    canvas = Image.new("RGB", (image.width, height + LINE), "white")
    canvas.paste(image, (0, LINE))
    ImageDraw.Draw(canvas).text((0, 1), caption, fill=(70, 75, 85), font=ImageFont.load_default(12))
    return canvas


def joined(tiles: list[Image.Image], is_stacked: bool) -> Image.Image:
    """Return tiles in a row, or below one another, on white."""
    if is_stacked:
        size = (max(t.width for t in tiles), sum(t.height + GAP for t in tiles) - GAP)
    else:
        size = (sum(t.width + GAP for t in tiles) - GAP, max(t.height for t in tiles))
    canvas, at = Image.new("RGB", size, "white"), 0
    for each in tiles:
        canvas.paste(each, (0, at) if is_stacked else (at, 0))
        at += (each.height if is_stacked else each.width) + GAP
    return canvas


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="pictures to draw; all by default")
    args = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in args.names or PICTURES:
        picture = PICTURES[name]
        if any(word in picture.env_id and find_spec(package) is None for word, package in PACKAGES.items()):
            continue
        height = 60 if picture.is_stacked else HEIGHT
        image = joined([tile(c, f, height) for c, f in frames(picture)], picture.is_stacked)
        file = FOLDER / f"{name}.png"
        image.quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
        size = file.stat().st_size
        print(f"{file.name}: {image.width} x {image.height}, {size:,} bytes")
        if size > LARGEST:
            raise SystemExit(f"{file.name} is larger than {LARGEST:,} bytes")


if __name__ == "__main__":
    main()
