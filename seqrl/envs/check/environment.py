"""Find out what is wrong with an environment before anything is trained on it, and say it in words."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.vector.utils import CloudpickleWrapper
from gymnasium.wrappers import TimeLimit

from seqrl.core.errors import EnvError
from seqrl.core.spaces import ActionCodec, ObsSpec, obs_specs
from seqrl.envs.check.play import Actor, Findings, RandomPlay, described, has_ended
from seqrl.envs.check.values import Fault, Level, as_array, leaves, same, short
from seqrl.envs.make import MakeEnv

COMPARED_STEPS = 200


@dataclass(frozen=True)
class Finding:
    """One thing to know about an environment.

    Attributes:
        level: A ``problem`` has to be mended before training; a ``note`` may be meant so.
        text: Where it is, what was given, what is expected and how to mend it.
    """

    level: Level
    text: str


@dataclass
class EnvReport:
    """What random play tells about an environment.

    Attributes:
        observations: Entries of the observation as policies see them; empty if they are not supported.
        action_space: The environment's action space as text.
        codec: The policy's form of the actions; None if they are not supported.
        num_steps: Steps that were played.
        lengths: Lengths of the episodes that ended.
        returns: Their sums of rewards.
        findings: Problems, then notes.
    """

    observations: dict[str, ObsSpec] = field(default_factory=dict)
    action_space: str = ""
    codec: ActionCodec | None = None
    num_steps: int = 0
    lengths: list[int] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def check_environment(make: MakeEnv, *, num_steps: int = 1000, seed: int = 0) -> list[Finding]:
    """Play random legal actions and return what is wrong, problems first; no fault of the environment raises.

    Args:
        make: Makes the environment; it is called several times.
        num_steps: Steps to play.
        seed: Seed of the environment and of the actions.
    """
    return inspect_environment(make, num_steps=num_steps, seed=seed).findings


def inspect_environment(make: MakeEnv, *, num_steps: int = 1000, seed: int = 0) -> EnvReport:
    """Return the findings of :func:`check_environment`, with the spaces and the episodes that were seen."""
    found, report = Findings(), EnvReport()
    env = _made(make, found)
    if env is not None:
        try:
            _check(env, make, report, found, num_steps, seed)
        except Exception as error:  # from a value that cannot even be looked at
            found.add(Fault("stopped", f"The check could not go on: {described(error)}. The list below is incomplete."))
        _close(env, found)
        _check_pickling(make, found)
    report.findings = [Finding(fault.level, fault.text) for fault in found.in_order()]
    return report


def _check(
    env: gym.Env[Any, Any], make: MakeEnv, report: EnvReport, found: Findings, num_steps: int, seed: int
) -> None:
    space, action_space = _space(env, "observation_space", found), _space(env, "action_space", found)
    if action_space is None:
        return
    report.action_space = str(action_space)
    report.codec = _supported(_bounded_codec, action_space, found)
    report.observations = (_supported(_filled_specs, space, found) if space is not None else None) or {}
    space = space if report.observations else None
    play = RandomPlay(env, report.codec, space, found, seed)
    play.run(num_steps)
    report.num_steps, report.lengths, report.returns = play.num_steps, play.lengths, play.returns
    if play.has_begun:
        _compare_copies(make, report.codec, space, found, min(play.num_steps, COMPARED_STEPS), seed)
    if play.num_steps == num_steps:
        _note_missing(env, play, found)


def _made(make: MakeEnv, found: Findings) -> gym.Env[Any, Any] | None:
    try:
        env = make()
        if isinstance(env, gym.Env):
            return env
        text = f"Making the environment gave a {type(env).__name__}, not a gymnasium.Env. Derive from that class."
    except Exception as error:
        text = f"The environment cannot be made: it raised {described(error)}. Fix its __init__."
    found.add(Fault("make", text))
    return None


def _space(env: gym.Env[Any, Any], name: str, found: Findings) -> spaces.Space[Any] | None:
    try:
        space = getattr(env, name, None)
        if isinstance(space, spaces.Space):
            return space
        text = f"The environment's {name} is {short(space)}, not a gymnasium space."
    except Exception as error:
        text = f"Reading {name} raised {described(error)}."
    found.add(Fault(name, f"{text} Set `self.{name}` in __init__."))
    return None


def _bounded_codec(space: spaces.Space[Any]) -> ActionCodec:
    codec = ActionCodec(space)
    codec.check_bounded()
    return codec


def _supported(read: Callable[[spaces.Space[Any]], Any], space: spaces.Space[Any], found: Findings) -> Any:
    """Return what seqrl reads from a space; None, once reported, if it does not support the space."""
    try:
        return read(space)
    except Exception as error:
        text = str(error) if isinstance(error, EnvError) else f"{space!r} is not supported: {described(error)}"
        found.add(
            Fault(
                f"space {read.__name__}", f"{text[0].upper()}{text[1:]}. A wrapper of the environment can convert it."
            )
        )
        return None


def _filled_specs(space: spaces.Space[Any]) -> dict[str, ObsSpec]:
    specs = obs_specs(space)
    if not specs:
        raise EnvError(f"the observation space {space!r} has no entry")
    return specs


def _compare_copies(
    make: MakeEnv, codec: ActionCodec | None, space: spaces.Space[Any] | None, found: Findings, num: int, seed: int
) -> None:
    """Report where two fresh copies with the same seed and the same actions part."""
    envs: list[gym.Env[Any, Any]] = []
    try:
        envs += [make(), make()]
        if envs[0].unwrapped is envs[1].unwrapped:
            text = "Making the environment twice gave one object, but each row needs its own. Make a new one each time."
            found.add(Fault("copies", text))
            return
        different = next(_differences(envs, codec, space, num, seed), None)
    except Exception as error:
        text = f"A further copy raised {described(error)}, where the first one worked. Copies must not share anything."
        found.add(Fault("copies", text))
        return
    finally:
        for env in envs:
            _close(env, found)
    if different is not None:
        text = (
            f"two fresh copies with the same seed ({seed}) and the same actions differ in {different[1]}. Draw "
            "every random number from `self.np_random`, and call `super().reset(seed=seed)` in reset."
        )
        found.add(Fault("seed", text), different[0])


def _differences(
    envs: list[gym.Env[Any, Any]], codec: ActionCodec | None, space: spaces.Space[Any] | None, num: int, seed: int
) -> Iterator[tuple[str, str]]:
    actor = Actor(envs[0], codec, seed)
    answers: list[Any] = [env.reset(seed=seed) for env in envs]
    yield from _parted("reset", space, answers)
    for step in range(1, num + 1):
        actor.look(answers[0][0], answers[0][-1])
        action = actor.action()
        answers = [env.step(copy.deepcopy(action)) for env in envs]
        yield from _parted(f"step {step}", space, answers)
        if has_ended(answers[0]) and step < num:
            answers = [env.reset() for env in envs]
            yield from _parted(f"the reset after step {step}", space, answers)


def _parted(place: str, space: spaces.Space[Any] | None, answers: list[Any]) -> Iterator[tuple[str, str]]:
    a, b = ([] if space is None else list(leaves(space, answer[0])) for answer in answers)
    pairs = [(f"observation {name!r}", x, y) for (name, x), (_, y) in zip(a, b, strict=False)]
    for name, x, y in zip(("the reward", "terminated", "truncated"), answers[0][1:-1], answers[1][1:-1], strict=False):
        pairs.append((name, as_array(x), as_array(y)))
    for name, x, y in pairs:
        if not same(x, y):
            yield place, f"{name}: {x} and {y}" if x.size <= 4 else name


def _note_missing(env: gym.Env[Any, Any], play: RandomPlay, found: Findings) -> None:
    """Note what no step has shown: an end, a word on success."""
    if not play.lengths and not _has_time_limit(env):
        text = (
            f"No episode ended within {play.num_steps} steps and no time limit is set, so that an evaluation may never "
            "end. Set experiment.evaluation.max_steps, or register the environment with max_episode_steps."
        )
        found.add(Fault("endless", text, "note"))
    if not play.has_success:
        text = "Success was never reported, so only returns will be. If the task can succeed, put `success` into info."
        found.add(Fault("success", text, "note"))


def _has_time_limit(env: gym.Env[Any, Any]) -> bool:
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return True
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            return True
        env = env.env
    return False


def _check_pickling(make: MakeEnv, found: Findings) -> None:
    """Note if worker processes cannot be sent the callable; they get it by cloudpickle."""
    try:
        pickle.dumps(CloudpickleWrapper(make))
    except Exception as error:
        text = (
            f"The callable that makes the environment cannot be pickled ({type(error).__name__}: {error}), which "
            "`env.vectorization=async` needs. Make everything that it refers to inside of it."
        )
        found.add(Fault("pickle", text, "note"))


def _close(env: gym.Env[Any, Any], found: Findings) -> None:
    try:
        env.close()
    except Exception as error:
        found.add(Fault("close", f"Closing the environment raised {described(error)}. Make close work at any time."))
