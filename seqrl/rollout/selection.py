"""Which policy to deploy, from data alone: what each would earn, by fitted Q evaluation with its own history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces
from jaxtyping import Float

from seqrl.algo.acting import VectorPolicy, acts_greedily
from seqrl.algo.algo import Algo
from seqrl.algo.fqe import FQE, PROPOSED
from seqrl.configs.base_config import BaseConfig
from seqrl.configs.building import build_section
from seqrl.configs.fqe_config import FQEConfig, FQESection
from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import DataError
from seqrl.core.seeding import integer_seed
from seqrl.core.spaces import ActionCodec, obs_specs
from seqrl.core.tensors import SeqInputs
from seqrl.data.extras import check_whole, discounted_returns
from seqrl.data.mixture import Source
from seqrl.data.sequence_dataset import SequenceDataset
from seqrl.data.statistics import column_stats
from seqrl.data.store import Store
from seqrl.data.store_info import codec_for
from seqrl.reports.intervals import Estimate, bootstrap_interval, resamples
from seqrl.rollout.agreement import check_data
from seqrl.rollout.evaluator import evaluation_mode

ROWS_AT_ONCE, MAX_WINDOW, TOKENS = 1024, 64, 768
MIN_STEPS = 1000


@dataclass(frozen=True)
class PolicyValue:
    """What a policy is expected to earn.

    Attributes:
        value: Mean over the episodes' first inputs, in rewards discounted by ``gamma``, with a bootstrap interval over
            episodes. It tells how far the data's starts differ, not how wrong the fit may be.
        disagreement: How much it departs from the data: the share of actions that differ, or the mean squared distance
            of continuous ones, over all transitions.
        starts: The value at each of these inputs.
    """

    value: Estimate
    disagreement: float
    starts: np.ndarray


# ----------------------------------------------------------------------------- what it would have done
def actions_along(
    algo: Algo, store: Store, *, num_draws: int = 1, deterministic: bool | None = None, seed: int = 0
) -> Float[np.ndarray, "N K A"]:
    """Return what a policy would do at every input of a store, remembering the episode as it went.

    The policy acts as it does when deployed; then the data's action counts as what was executed.

    Args:
        algo: The policy.
        store: Of whole episodes.
        num_draws: K samples at every input.
        deterministic: Act greedily; False samples, None does what the run's evaluations did. K is 1 if it is greedy.
        seed: Of sampled actions.

    Returns:
        Policy actions of all inputs, trajectory after trajectory.

    Raises:
        DataError: If a trajectory begins within an episode: what the policy remembers there is not known.
    """
    deterministic = acts_greedily(algo.config, deterministic)
    num_draws = 1 if deterministic else num_draws
    check_whole(store.start_step, np.ones(len(store), bool), store.label)
    if algo.goal_keys:
        raise DataError(
            "a policy that reads goals (observation.goal_keys) cannot be judged: it would know how each episode ends"
        )
    order = np.argsort(store.length, kind="stable")  # trajectories of like length together
    size = max(1, ROWS_AT_ONCE // num_draws)
    found: list[np.ndarray] = [np.empty(0)] * len(store)
    with evaluation_mode(algo, integer_seed(seed, "policy")):
        for begin in range(0, len(order), size):
            numbers = order[begin : begin + size]
            for number, actions in zip(numbers, _in_step(algo, store, numbers, num_draws, deterministic), strict=True):
                found[number] = actions
    return np.concatenate(found)


def _in_step(algo: Algo, store: Store, numbers: np.ndarray, num_draws: int, deterministic: bool) -> list[np.ndarray]:
    """Return the actions ``(L, K, A)`` along each of some trajectories, all at their steps at once."""
    lengths = store.length[numbers]
    offsets = np.minimum(np.arange(lengths.max() + 1), lengths[:, None])
    needed = [f"obs/{k}" for k in algo.obs] + ["prev_action", "prev_reward"]
    has_mask = "action_mask" in store.schema
    columns = store.gather(numbers, offsets, [*needed, "action_mask"] if has_mask else needed)
    if has_mask:  # at the end, where nobody acts, nothing needs to be legal
        columns["action_mask"] |= (offsets == lengths[:, None])[..., None]
    raw = columns["prev_action"]
    raw[:, 0] = raw[:, 1]  # zeros, which need not be a legal action
    done = codec_for(store.info, algo.codec.space).encode(raw)
    policy = VectorPolicy(algo, len(numbers) * num_draws, deterministic=deterministic)
    policy.reset(np.ones(len(numbers) * num_draws, bool))
    chosen = []
    for t in range(offsets.shape[1]):
        now = {k: np.repeat(v[:, t], num_draws, axis=0) for k, v in columns.items()}
        if t:
            policy.note_executed(np.repeat(done[:, t], num_draws, axis=0))
        given = {k[4:]: v for k, v in now.items() if k.startswith("obs/")}
        drawn = policy.act(given, now["prev_reward"], action_mask=now.get("action_mask"))
        chosen.append(drawn.reshape(len(numbers), num_draws, -1))
    stacked = np.stack(chosen, axis=1)
    return [rows[: length + 1].astype(np.float32) for rows, length in zip(stacked, lengths, strict=True)]


# ------------------------------------------------------------------------------------ what it would earn
def policy_value(
    algo: Algo,
    store: Store,
    action_space: spaces.Space[object],
    *,
    config: BaseConfig | None = None,
    num_draws: int = 4,
    deterministic: bool | None = None,
) -> PolicyValue:
    """Return what a policy would earn in the environment that a store's episodes come from.

    Args:
        algo: The policy.
        store: Whole episodes of anybody's, with rewards.
        action_space: Of the environment.
        config: Of the fit: window, batch, steps, seed, memory, discount; None takes :func:`fit_config`.
        num_draws: Samples of the policy at every input, if it does not act greedily.
        deterministic: Act greedily; False samples, None does what the run's evaluations did.

    Raises:
        DataError: If the store holds pieces of episodes, or no last observations, or no rewards, or is of other
            observations or actions.
    """
    check_data(store.info, algo.obs, action_space, store.label)
    if not store.info.has_next_obs:
        raise DataError(f"{store.label}: fitted Q evaluation needs the observation after the last action (next_obs)")
    config = config or fit_config(store, like=algo.config)
    proposed = actions_along(algo, store, num_draws=num_draws, deterministic=deterministic, seed=config.train.seed)
    codec = action_codec(action_space)
    fit = fitted(config, store, codec, proposed, keys=list(algo.obs))
    first = np.concatenate([[0], np.cumsum(store.length + 1)[:-1]])
    starts = _values_at_starts(fit, store, proposed[first])
    interval = bootstrap_interval(float(starts.mean()), resamples(starts).mean(-1), len(starts))
    return PolicyValue(interval, _disagreement(store, codec, proposed), starts)


def fit_config(
    store: Store,
    *,
    like: BaseConfig | None = None,
    num_steps: int | None = None,
    gamma: float = 0.99,
    seed: int = 0,
) -> FQEConfig:
    """Return the settings of a fit: windows of whole episodes up to 64 steps, values about the data's mean.

    Args:
        store: The data.
        like: Of the policy: the fit sees, scales and encodes observations as it does, and scales actions too, but by
            their range where it standardises them; None takes a small network.
        num_steps: Gradient steps; None takes what values need to reach the start of the longest episode.
        gamma: Discount of the value.
        seed: Of weights and batches.
    """
    longest = int(store.length.max())
    index = np.minimum(np.arange(longest + 1), store.length[:, None])
    rewards = store.gather(np.arange(len(store)), index, ["prev_reward"])["prev_reward"][:, 1:]
    if not rewards.any():
        raise DataError(f"{store.label}: all rewards are 0, so no policy is worth more than another")
    returns = discounted_returns(rewards, store.length, gamma)[:, :-1][index[:, :-1] < store.length[:, None]]
    spread = float(returns.std())
    window = max(2, min(longest, MAX_WINDOW))
    if num_steps is None:
        horizon = min(longest, 1.0 / (1.0 - gamma))
        num_steps = max(MIN_STEPS, round(5 * horizon / FQESection().tau))
    sizes = {"window_steps": window, "batch_size": max(8, TOKENS // window)}
    seen = {"timestep_encoder": {"type": "mlp", "d_hidden": 64, "d_output": 64}}
    values = {
        "train": {**sizes, "seed": seed, "num_epochs": 1, "steps_per_epoch": num_steps},
        "observation": seen if like is None else like.observation.model_dump(mode="json", serialize_as_any=True),
        "algo": {
            "gamma": gamma,
            "reward_multiplier": 1.0 / spread if spread > 1e-6 else 1.0,
            "value_offset": float(returns.mean()),
        },
    }
    if like is not None:
        how = like.train.normalize_actions
        scaled = "min_max" if how == "gaussian" else how  # critics tell actions apart within [-1, 1] only
        values["train"] |= {"normalize_obs": like.train.normalize_obs, "normalize_actions": scaled}
    config: FQEConfig = build_section(FQEConfig, values, "fitted Q evaluation")
    return config


def fitted(
    config: BaseConfig,
    store: Store,
    codec: ActionCodec,
    proposed: Float[np.ndarray, "N K A"],
    *,
    keys: Sequence[str] | None = None,
) -> FQE:
    """Return the fit of a policy's values, given what it would do at every input.

    Args:
        config: From :func:`fit_config`.
        store: The data.
        codec: Of the policy's actions.
        proposed: From :func:`actions_along`.
        keys: Observation entries that it sees; None is all.
    """
    train = config.train
    specs = obs_specs(store.info.observation_space)
    seen = list(specs) if keys is None else list(keys)
    sources = [Source(store, indices=np.arange(len(store)))]
    dataset = SequenceDataset(sources, train.window_steps, padding="both", sample_by="transition", keys=seen)
    dataset.use_categories(codec.space)
    dataset.attach(PROPOSED, [proposed])
    with torch.random.fork_rng([]):
        torch.manual_seed(integer_seed(train.seed, "fqe"))
        fit = FQE(config, {k: specs[k] for k in seen}, codec, "cpu")
        if fit.normalizer is not None:
            obs = {k: column_stats(sources, f"obs/{k}") for k in fit.normalizer.names}
            encode = codec_for(store.info, codec.space).encode
            has_actions = fit.normalizer.action is not None
            fit.use_statistics(obs, column_stats(sources, "prev_action", convert=encode) if has_actions else None)
        fit.set_train()
        fit.wants_metrics = False
        for k in range(train.steps_per_epoch):
            batch = dataset.batch(train.batch_size, seed=train.seed, path=("fqe", k))
            fit.train_on_batch(fit.process_batch_for_training(batch))
    fit.set_eval()
    return fit


def _values_at_starts(fit: FQE, store: Store, proposed: Float[np.ndarray, "E K A"]) -> Float[np.ndarray, " E"]:
    columns = store.gather(np.arange(len(store)), np.zeros((len(store), 1), np.int64), [f"obs/{k}" for k in fit.obs])
    num = len(store)
    inputs = SeqInputs(
        obs={k: torch.from_numpy(np.ascontiguousarray(columns[f"obs/{k}"])) for k in fit.obs},
        prev_action=torch.zeros(num, 1, fit.codec.dim),
        prev_reward=torch.zeros(num, 1),
        step=torch.zeros(num, 1, dtype=torch.int64),
    )
    values = fit.values(fit.inputs.scaled(inputs), torch.from_numpy(proposed).unsqueeze(1))
    starts: np.ndarray = values[:, 0].double().numpy()
    return starts


def _disagreement(store: Store, codec: ActionCodec, proposed: Float[np.ndarray, "N K A"]) -> float:
    """Return how much a policy's actions differ from the data's, over all transitions."""
    ends = np.cumsum(store.length + 1) - 1
    has_action = np.ones(len(proposed), bool)
    has_action[ends] = False
    taken, codec_of_data = [], codec_for(store.info, codec.space)
    for number in range(len(store)):
        index = np.arange(1, store.length[number] + 1)[None]
        taken.append(codec_of_data.encode(store.gather(np.array([number]), index, ["prev_action"])["prev_action"])[0])
    done, own = np.concatenate(taken)[:, None], proposed[has_action]
    if codec.kind in ("continuous", "hybrid"):
        return float(np.mean((own - done) ** 2))
    return float(np.mean((own != done).any(-1)))


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation; values that are equal share their mean rank. NaN if all are equal.

    Raises:
        DataError: If there are fewer than two, or not as many of both.
    """
    if len(first) != len(second) or len(first) < 2:
        raise DataError(f"a rank correlation needs two or more pairs, got {len(first)} and {len(second)} values")
    a, b = (_ranks(np.asarray(values, np.float64)) for values in (first, second))
    spread = float(a.std() * b.std())
    return float(np.mean((a - a.mean()) * (b - b.mean())) / spread) if spread else math.nan


def _ranks(values: np.ndarray) -> np.ndarray:
    below = (values[:, None] > values).sum(1)
    equal = (values[:, None] == values).sum(1)
    ranks: np.ndarray = below + (equal - 1) / 2
    return ranks
