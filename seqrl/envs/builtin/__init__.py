"""Built-in environments, one file each, registered with gymnasium as ``seqrl/<Name>-v0``."""

from gymnasium.envs.registration import register, registry

_ENTRY_POINTS = {
    "seqrl/Bandit-v0": "seqrl.envs.builtin.bandit:Bandit",
    "seqrl/DarkKeyDoor-v0": "seqrl.envs.builtin.dark_key_door:DarkKeyDoor",
    "seqrl/MaskedBandit-v0": "seqrl.envs.builtin.bandit:MaskedBandit",
    "seqrl/MetaFrozenLake-v0": "seqrl.envs.builtin.meta_frozen_lake:MetaFrozenLake",
    "seqrl/PointRecall-v0": "seqrl.envs.builtin.point_recall:PointRecall",
    "seqrl/TMazePassive-v0": "seqrl.envs.builtin.tmaze:TMazePassive",
    "seqrl/TMazeActive-v0": "seqrl.envs.builtin.tmaze:TMazeActive",
    "seqrl/TMazePixels-v0": "seqrl.envs.builtin.tmaze_pixels:TMazePixels",
}


def builtin_env_ids() -> list[str]:
    """Return the ids of the built-in environments."""
    return sorted(_ENTRY_POINTS)


def register_builtin_envs() -> None:
    """Make ``gymnasium.make("seqrl/...")`` work; safe to call twice."""
    for env_id, entry_point in _ENTRY_POINTS.items():
        if env_id not in registry:
            register(id=env_id, entry_point=entry_point)
