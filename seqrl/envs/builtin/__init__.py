"""Built-in environments, one file each, registered with gymnasium as ``seqrl/<Name>-v0``, and their experts."""

from importlib.util import find_spec

from gymnasium.envs.registration import register, registry

from seqrl.envs.experts import EXPERTS

_ENTRY_POINTS = {
    "seqrl/Attempts-v0": "seqrl.envs.builtin.attempts:make_attempts",
    "seqrl/Copying-v0": "seqrl.envs.builtin.copying:Copying",
    "seqrl/Fork-v0": "seqrl.envs.builtin.fork:Fork",
    "seqrl/HalfCheetahVelocity-v0": "seqrl.envs.builtin.half_cheetah:make_half_cheetah_velocity",
    "seqrl/MazeRunner-v0": "seqrl.envs.builtin.maze_runner:MazeRunner",
    "seqrl/MultiDiscreteRecall-v0": "seqrl.envs.builtin.multi_discrete_recall:MultiDiscreteRecall",
    "seqrl/Bandit-v0": "seqrl.envs.builtin.bandit:Bandit",
    "seqrl/DarkKeyDoor-v0": "seqrl.envs.builtin.dark_key_door:DarkKeyDoor",
    "seqrl/MaskedBandit-v0": "seqrl.envs.builtin.bandit:MaskedBandit",
    "seqrl/MetaFrozenLake-v0": "seqrl.envs.builtin.meta_frozen_lake:MetaFrozenLake",
    "seqrl/PointRecall-v0": "seqrl.envs.builtin.point_recall:PointRecall",
    "seqrl/RecallFork-v0": "seqrl.envs.builtin.recall_fork:RecallFork",
    "seqrl/Relay-v0": "seqrl.envs.builtin.relay:Relay",
    "seqrl/ToolRecall-v0": "seqrl.envs.builtin.tool_recall:ToolRecall",
    "seqrl/TMazePassive-v0": "seqrl.envs.builtin.tmaze:TMazePassive",
    "seqrl/TMazeActive-v0": "seqrl.envs.builtin.tmaze:TMazeActive",
    "seqrl/TMazePixels-v0": "seqrl.envs.builtin.tmaze_pixels:TMazePixels",
}

_OF_OTHERS = {"seqrl/Mixture-v0": "seqrl.envs.mixture:Mixture"}
"""Those that cannot be made without arguments."""

_EXPERTS = {
    "gym_pusht/PushT-v0": "seqrl.envs.suites.pusht_expert:PushTExpert",
    "seqrl/Copying-v0": "seqrl.envs.builtin.copying:CopyingExpert",
    "seqrl/Fork-v0": "seqrl.envs.builtin.fork:ForkDemonstrator",
    "seqrl/MazeRunner-v0": "seqrl.envs.builtin.maze_expert:MazeExpert",
    "seqrl/MultiDiscreteRecall-v0": "seqrl.envs.builtin.multi_discrete_recall:MultiDiscreteRecallExpert",
    "seqrl/PointRecall-v0": "seqrl.envs.builtin.point_recall:PointRecallExpert",
    "seqrl/RecallFork-v0": "seqrl.envs.builtin.recall_fork:RecallForkDemonstrator",
    "seqrl/Relay-v0": "seqrl.envs.builtin.relay:RelayDemonstrator",
    "seqrl/ToolRecall-v0": "seqrl.envs.builtin.tool_recall:ToolRecallExpert",
    "seqrl/TMazePassive-v0": "seqrl.envs.builtin.tmaze:TMazeExpert",
    "seqrl/TMazeActive-v0": "seqrl.envs.builtin.tmaze:TMazeExpert",
    "seqrl/TMazePixels-v0": "seqrl.envs.builtin.tmaze_pixels:TMazePixelsExpert",
}

_NEEDS = {"seqrl/HalfCheetahVelocity-v0": "mujoco"}
"""Environment -> package that it needs, which is an extra of the same name."""


def builtin_env_ids(*, only_installed: bool = False) -> list[str]:
    """Return the ids of the built-in environments.

    Args:
        only_installed: Leave out those whose optional package is not installed.
    """
    missing = {i for i, package in _NEEDS.items() if only_installed and find_spec(package) is None}
    return sorted(set(_ENTRY_POINTS) - missing)


def register_builtin_envs() -> None:
    """Make ``gymnasium.make("seqrl/...")`` and their experts known; safe to call twice."""
    for env_id, entry_point in (_ENTRY_POINTS | _OF_OTHERS).items():
        if env_id not in registry:
            register(id=env_id, entry_point=entry_point)
    for env_id, expert in _EXPERTS.items():
        EXPERTS.register_lazy(env_id, expert)
