"""A demonstrator of PushT that solves it in many ways: it looks ahead with the physics of a push, and draws its plans.

The block is pushed without friction, and stops when the pusher does. So a straight push has an outcome that can be
computed: the contact's normal moves the block's centre, and its lever turns it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

T_CORNERS = np.array(
    [[-60, 0], [60, 0], [60, 30], [15, 30], [15, 120], [-15, 120], [-15, 30], [-60, 30]], dtype=np.float64
)
"""Corners of the block in its own frame, in pixels, in the order of its outline."""

CENTRE = np.array([0.0, 45.0])
"""Its centre of mass."""

INERTIA = 3000.0
"""Its moment of inertia, for mass 1."""

GOAL_POSE = np.array([256.0, 256.0, np.pi / 4])
"""Place of the middle of the bar's top edge (pixels), and angle (radians)."""

PUSHER_RADIUS, CLEARANCE, FIELD = 15.0, 6.0, (16.0, 496.0)
PUSH_STEP, LONGEST_PUSH, REACH, SPACING = 2.0, 120.0, 40.0, 15.0
NUM_ROUND = 24
PAUSES, DETOUR = (8, 17), 4.0
"""Steps for which it may stand still before a push (the last excluded), and by how much it lengthens the other way."""


@dataclass(frozen=True)
class Push:
    """A straight push: where the pusher's centre begins and ends, ``(2,)`` pixels each."""

    begin: np.ndarray
    end: np.ndarray


class PushTExpert:
    """Pushes the block to its goal, one straight push after another, from the five numbers of the state.

    Like a person, it stands still for a while before each push. The push is drawn from those that help nearly as much
    as the best, and so are the side on which the pusher walks round the block, and how long it waits. So what it does
    depends on more than what is seen. What is drawn depends on the first observation alone: a seed repeats an episode.
    """

    def __init__(self) -> None:
        self._rng: np.random.Generator | None = None
        self._push: Push | None = None
        self._way: list[np.ndarray] = []
        self._steps_left = self._pause = 0

    def reset(self) -> None:
        """Forget the plan."""
        self._rng, self._push, self._way = None, None, []

    def __call__(self, obs: np.ndarray | dict[str, np.ndarray]) -> np.ndarray:
        """Return where the pusher should go, ``(2,)`` float32 in pixels.

        Args:
            obs: ``(5,)`` place of the pusher, place and angle of the block; or a dictionary with it as ``state``.
        """
        state = np.asarray(obs["state"] if isinstance(obs, dict) else obs, np.float64)
        pusher, pose = state[:2], state[2:]
        if self._rng is None:
            self._rng = np.random.default_rng(np.frombuffer(state.tobytes(), np.uint32))
        if self._push is None or self._steps_left == 0:
            self._push = choose_push(pusher, pose, self._rng)
            self._way = way_round(pusher, self._push.begin, pose, self._rng)
            self._steps_left, self._pause = 60, int(self._rng.integers(*PAUSES))
        if self._pause:
            self._pause -= 1
            return np.asarray(pusher, np.float32)
        self._steps_left -= 1
        while self._way and np.linalg.norm(self._way[0] - pusher) < 12.0:
            self._way.pop(0)
        goal = self._way[0] if self._way else self._push.end
        if not self._way and np.linalg.norm(goal - pusher) < 3.0:
            self._push = None
        way = goal - pusher
        return np.asarray(pusher + way * min(1.0, REACH / max(float(np.linalg.norm(way)), 1e-9)), np.float32)


def choose_push(pusher: np.ndarray, pose: np.ndarray, rng: np.random.Generator) -> Push:
    """Return one of the pushes that help most, drawn.

    Args:
        pusher: ``(2,)`` its centre.
        pose: ``(3,)`` of the block.
        rng: Draws.
    """
    centres, inward = contacts()
    begins, ways = pose[:2] + turned(centres, pose[2:]), turned(inward, pose[2:])
    before = distance_to_goal(pose[None])[0]
    after = pushed(begins, ways, pose)
    lengths = after.argmin(axis=0)
    gains = before - after.min(axis=0) - 0.02 * np.linalg.norm(begins - pusher, axis=1)
    inside = ((begins > FIELD[0]) & (begins < FIELD[1])).all(axis=1)
    gains = np.where(inside, gains, -np.inf)
    good = np.flatnonzero(gains >= gains.max() - 0.25 * abs(gains.max()))
    chosen = int(rng.choice(good))
    return Push(
        begins[chosen] - CLEARANCE * ways[chosen], begins[chosen] + (lengths[chosen] + 1) * PUSH_STEP * ways[chosen]
    )


def contacts() -> tuple[np.ndarray, np.ndarray]:
    """Return ``(C, 2)`` centres of a pusher that touches the block, in its frame, and the normals into it."""
    centres, normals = [], []
    for begin, end in zip(T_CORNERS, np.roll(T_CORNERS, -1, axis=0), strict=True):
        length = float(np.linalg.norm(end - begin))
        along = (end - begin) / length
        normal = np.array([-along[1], along[0]])
        for t in np.linspace(5.0, length - 5.0, max(round(length / SPACING), 2)):
            centres.append(begin + t * along - PUSHER_RADIUS * normal)
            normals.append(normal)
    found = np.array(centres)
    touches = distance_to_block(found) > PUSHER_RADIUS - 0.5
    return found[touches], np.array(normals)[touches]


def pushed(begins: np.ndarray, ways: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Return ``(N, C)`` how far the block is from its goal after each step of C straight pushes.

    Args:
        begins: ``(C, 2)`` where the pusher touches.
        ways: ``(C, 2)`` unit vectors.
        pose: ``(3,)`` of the block.
    """
    poses, found = np.tile(pose, (len(begins), 1)), []
    pushers = begins.copy()
    for _ in range(int(LONGEST_PUSH / PUSH_STEP)):
        pushers = pushers + PUSH_STEP * ways
        poses = separated(pushers, poses)
        found.append(distance_to_goal(poses))
    return np.array(found)


def separated(pushers: np.ndarray, poses: np.ndarray) -> np.ndarray:
    """Return ``(C, 3)`` poses of blocks that gave way to the pushers at ``(C, 2)``."""
    local = to_frame(pushers, poses)
    nearest = nearest_on_block(local)
    gap = local - nearest
    distance = np.maximum(np.linalg.norm(gap, axis=1), 1e-9)
    depth = np.maximum(PUSHER_RADIUS - distance, 0.0)
    force, lever = -gap / distance[:, None], nearest - CENTRE
    torque = lever[:, 0] * force[:, 1] - lever[:, 1] * force[:, 0]
    strength = depth / (1.0 + torque**2 / INERTIA)
    angles = poses[:, 2] + strength * torque / INERTIA
    centre = poses[:, :2] + turned(CENTRE[None], poses[:, 2]) + turned(strength[:, None] * force, poses[:, 2])
    return np.column_stack([centre - turned(CENTRE[None], angles), angles])


def distance_to_goal(poses: np.ndarray) -> np.ndarray:
    """Return ``(C,)`` root mean square distance of the corners of blocks at ``(C, 3)`` from their goals, in pixels."""
    corners = poses[:, None, :2] + turned_all(T_CORNERS, poses[:, 2])
    goals = GOAL_POSE[:2] + turned_all(T_CORNERS, GOAL_POSE[2:])
    return np.asarray(np.sqrt(((corners - goals) ** 2).sum(-1).mean(-1)))


def way_round(pusher: np.ndarray, goal: np.ndarray, pose: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return points by which the pusher goes to ``goal`` without touching the block; the last is the goal.

    Ways round the block on the left and on the right differ; one of them is drawn to count as much longer.

    Args:
        pusher: ``(2,)`` where it is.
        goal: ``(2,)``.
        pose: ``(3,)`` of the block.
        rng: Draws.
    """
    angles = np.arange(NUM_ROUND) * 2 * np.pi / NUM_ROUND
    centre = pose[:2] + turned(CENTRE[None], pose[2:])[0]
    ring = np.concatenate([centre + r * np.column_stack([np.cos(angles), np.sin(angles)]) for r in (75.0, 115.0)])
    points = np.concatenate([pusher[None], goal[None], np.clip(ring, *FIELD)])
    lengths = np.linalg.norm(points[:, None] - points[None], axis=-1)
    across = goal - pusher
    side = across[0] * (points - pusher)[:, 1] - across[1] * (points - pusher)[:, 0]
    unloved = np.sign(side) == rng.choice([-1.0, 1.0])
    costs = lengths * np.where(unloved[:, None] | unloved[None], DETOUR, 1.0)
    costs = np.where(_is_free(points, pose), costs, np.inf)
    return [points[i] for i in _shortest(costs)]


def _is_free(points: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Return ``(P, P)`` whether the pusher passes between two points, freely from where it stands (point 0)."""
    shares = np.linspace(0.0, 1.0, 25)[:, None, None, None]
    between = points[:, None] * (1 - shares) + points[None] * shares
    local = to_frame(between.reshape(-1, 2), pose[None])
    free = distance_to_block(local).reshape(between.shape[:-1]) >= PUSHER_RADIUS + CLEARANCE / 3
    # The pusher touches the block when it leaves it: what lies near the begin of its way does not count.
    leaves = np.linalg.norm(between - points[0], axis=-1) < PUSHER_RADIUS
    return np.asarray((free | leaves).all(axis=0))


def _shortest(costs: np.ndarray) -> list[int]:
    """Return the points of the cheapest way from point 0 to point 1 (Dijkstra), without point 0; [1] if none is."""
    total, before = np.full(len(costs), np.inf), np.zeros(len(costs), int)
    total[0], is_open = 0.0, np.ones(len(costs), bool)
    while np.isfinite(total[is_open]).any():
        here = int(np.where(is_open, total, np.inf).argmin())
        is_open[here] = False
        better = total[here] + costs[here] < total
        total, before = np.where(better, total[here] + costs[here], total), np.where(better, here, before)
    way, here = [1], int(before[1])
    while here != 0:
        way.insert(0, here)
        here = int(before[here])
    return way


def nearest_on_block(points: np.ndarray) -> np.ndarray:
    """Return ``(P, 2)`` the point of the outline nearest to each of ``(P, 2)``, in the block's frame."""
    ends = np.roll(T_CORNERS, -1, axis=0)
    along = ends - T_CORNERS
    share = ((points[:, None] - T_CORNERS) * along).sum(-1) / (along**2).sum(-1)
    found = T_CORNERS + np.clip(share, 0.0, 1.0)[..., None] * along
    return np.asarray(found[np.arange(len(points)), ((found - points[:, None]) ** 2).sum(-1).argmin(1)])


def distance_to_block(points: np.ndarray) -> np.ndarray:
    """Return ``(P,)`` distances of points, in the block's frame, from it: 0 within."""
    x, y = abs(points[:, 0]), points[:, 1]
    within = ((x <= 60) & (y >= 0) & (y <= 30)) | ((x <= 15) & (y >= 30) & (y <= 120))
    return np.where(within, 0.0, np.linalg.norm(points - nearest_on_block(points), axis=1))


def to_frame(points: np.ndarray, poses: np.ndarray) -> np.ndarray:
    """Return points ``(P, 2)`` in the frames of blocks at ``(P, 3)`` or ``(1, 3)``."""
    return turned(points - poses[:, :2], -poses[:, 2])


def turned(vectors: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return ``(P, 2)`` vectors turned by angles ``(P,)``; one of either may stand for all."""
    cos, sin = np.cos(angles), np.sin(angles)
    return np.stack([cos * vectors[:, 0] - sin * vectors[:, 1], sin * vectors[:, 0] + cos * vectors[:, 1]], axis=-1)


def turned_all(vectors: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return ``(A, P, 2)``: every one of ``(P, 2)`` vectors turned by every one of ``(A,)`` angles."""
    return np.stack([turned(vectors, np.full(len(vectors), angle)) for angle in angles])
