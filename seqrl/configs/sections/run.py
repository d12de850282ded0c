"""Sections that every run file has: experiment, env, train, observation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

import seqrl.configs.sections.relabel  # noqa: F401  (registers its sections)
from seqrl.configs.section import FOLDER_NAME, Component, Section
from seqrl.configs.sections.exploration import EpsilonGreedySection
from seqrl.configs.sections.rendering import RenderingSection
from seqrl.configs.sections.timestep_encoders import AutoTimestepEncoderSection
from seqrl.core.registry import EXPLORATIONS, LOGGERS, METRICS, RELABELERS, TIMESTEP_ENCODERS


class WandbSection(Section):
    """Weights & Biases; needs ``pip install "seqrl[wandb]"``."""

    enabled: bool = Field(False, description="Log to Weights & Biases too; a resumed run continues the same run there.")
    project: str | None = Field(None, description="Project there; null takes the default of wandb.")
    entity: str | None = Field(None, description="User or team there; null takes the default of wandb.")
    mode: Literal["online", "offline"] = Field("online", description="Send at once, or keep it for 'wandb sync'.")
    group: str | None = Field(None, description="Group of runs there, for instance the seeds of one setting.")
    tags: list[str] = Field([], description="Tags of the run there.")


class LoggingSection(Section):
    """What is written while the run goes on, besides ``metrics.jsonl``."""

    every_n_steps: PositiveInt = Field(50, description="Gradient steps between two training lines.")
    progress_bar: bool = Field(True, description="Show tqdm bars on a terminal.")
    tensorboard: bool = Field(True, description="Write TensorBoard events to tb/.")
    wandb: WandbSection = WandbSection()
    robomimic_names: bool = Field(
        False,
        description="Log under robomimic's names too (Rollout/Success_Rate/..., Train/Loss, ...), but not to "
        "metrics.jsonl.",
    )
    others: list[Annotated[Section, Component(LOGGERS)]] = Field([], description="Loggers of plug-ins.")


class SaveSection(Section):
    """Which checkpoints are kept; ``last`` always is."""

    every_n_epochs: PositiveInt | None = Field(None, description="Keep one checkpoint per n epochs; null keeps none.")
    every_s: PositiveFloat | None = Field(
        None, description="Keep one at the first end of an epoch this many seconds after the last one kept this way."
    )
    epochs: list[PositiveInt] = Field([], description="Keep the checkpoints after these epochs.")
    last_every_n_epochs: PositiveInt = Field(
        1, description="Epochs between saves of 'last', from which a run resumes; the final epoch always saves it."
    )
    best: list[Literal["valid_loss", "return", "success", "value"]] = Field(
        ["success", "return", "valid_loss"],
        description="Keep the best by these measures, where they exist, as best_<measure>; value is what the critics "
        "expect at the beginning of held-out episodes.",
    )


class EvaluationSection(Section):
    """Rollouts in the environment while training."""

    enabled: bool = Field(True, description="Roll out where the environment can be made.")
    every_n_epochs: PositiveInt = Field(1, description="Epochs between evaluations; the last epoch always has one.")
    first_epoch: NonNegativeInt = Field(
        0, description="No evaluation before this many epochs, except after the last one."
    )
    episodes: PositiveInt = Field(
        200, description="Episodes per evaluation, spread evenly over the environments; at least one per task."
    )
    num_envs: PositiveInt = Field(20, description="Environments stepped at once.")
    deterministic: bool = Field(True, description="Act greedily rather than by sampling.")
    engine: Literal["eager", "onnx", "auto"] = Field(
        "eager",
        description="What takes the policy's steps: PyTorch, or ONNX Runtime on a CPU (pip install 'seqrl[onnx]'). "
        "'auto' takes ONNX Runtime where it can; the run's config.json says which it is.",
    )
    max_steps_per_env: PositiveInt | None = Field(
        None, description="Stop an evaluation after this many steps of each environment; only finished episodes count."
    )
    max_steps: PositiveInt | None = Field(
        None,
        description="Cut an episode after this many steps, also in run-trained-agent, probe, collect-dataset and "
        "seqrl.evaluate; needed only where the environment sets no limit.",
    )
    terminate_on_success: bool = Field(
        False,
        description="End an episode at its first success, even where the environment goes on; in the same places.",
    )


class ReportSection(Section):
    """The page report.html, written at the end."""

    enabled: bool = Field(True, description="Write report.html.")
    animation_episodes: NonNegativeInt = Field(2, description="Evaluation episodes shown as an animation.")


class ExperimentSection(Section):
    """Where the run lives and what it records."""

    name: str | None = Field(
        None, pattern=FOLDER_NAME, description="Name of the run's folder; null composes one from algorithm and task."
    )
    output_dir: str = Field("runs", description="Folder that holds the run's folder.")
    logging: LoggingSection = LoggingSection()
    save: SaveSection = SaveSection()
    evaluation: EvaluationSection = EvaluationSection()
    rendering: RenderingSection = RenderingSection()
    report: ReportSection = ReportSection()


class TaskSection(Section):
    """One of several environments."""

    id: str | None = Field(None, description="gymnasium id; null takes env.id.")
    kwargs: dict[str, Any] = Field({}, description="Arguments over those of env.kwargs.")


class ReferenceScoresSection(Section):
    """Returns that normalised scores are measured by: 0 is random play's, 100 an expert's (D4RL's formula)."""

    random: float = Field(description="Mean return of random play.")
    expert: float = Field(description="Mean return of an expert.")

    @model_validator(mode="after")
    def _differ(self) -> ReferenceScoresSection:
        if self.random >= self.expert:
            raise ValueError(f"the return of random play, {self.random}, must be below the expert's, {self.expert}")
        return self


class EnvSection(Section):
    """The environment: any gymnasium id. Offline training may leave it out, and then goes without evaluation."""

    id: str | None = Field(None, description="gymnasium id, or 'module:Env-v0'; null takes the data's own.")
    kwargs: dict[str, Any] = Field({}, description="Arguments of gymnasium.make.")
    eval_kwargs: dict[str, Any] = Field({}, description="Arguments added in evaluation.")
    reference_scores: ReferenceScoresSection | None = Field(
        None, description="Log eval/score_mean, 0 at random play's return and 100 at an expert's; null logs none."
    )
    tasks: list[TaskSection] = Field([], description="Several environments of the same spaces; rows take them in turn.")
    common_space: Literal["off", "on", "with_task"] = Field(
        "off", description="Join tasks of different spaces: padded vectors, masked actions; with_task observes which."
    )
    vectorization: Literal["sync", "async", "native"] = Field(
        "sync", description="One process, processes of their own, or the environment's own vector."
    )
    num_workers: PositiveInt | None = Field(
        None, description="Processes of 'async', which share the environments; null is one per environment."
    )
    start_method: Literal["auto", "forkserver", "spawn", "fork"] = Field(
        "auto", description="How the processes of 'async' begin; auto is forkserver, or spawn where there is none."
    )
    max_restarts: NonNegativeInt = Field(
        10, description="Failures of environments to recover from, each by making it again; one more stops the run."
    )
    timeout_s: PositiveFloat = Field(
        300.0, description="Longest time of one step of 'async', in seconds; 'sync' then says which environment hangs."
    )


class SourceSection(Section):
    """What every source of trajectories has."""

    weight: PositiveFloat = Field(1.0, description="Share of this source among all, before normalisation.")
    initial_weight: NonNegativeFloat | None = Field(
        None, description="Weight at first; null is 0 where anneal_epochs is positive."
    )
    anneal_epochs: NonNegativeInt = Field(
        0, description="Epochs, from when the source first has enough data, until its weight is reached."
    )
    relabel: Annotated[Section | None, Component(RELABELERS)] = Field(
        None, description="What changes the trajectories when they are drawn."
    )

    @model_validator(mode="after")
    def _reaches_its_weight(self) -> SourceSection:
        if self.initial_weight is not None and not self.anneal_epochs:
            raise ValueError("initial_weight has no effect without anneal_epochs, the epochs until weight is reached")
        return self


class DataSection(SourceSection):
    """One source of trajectories: a file, or a scripted expert."""

    path: str | None = Field(None, description="A seqrl store, or a file or folder in any readable format.")
    format: str | None = Field(
        None, description="Name of the reader of the path, such as 'robomimic'; null takes the first that can read it."
    )
    name: str | None = Field(
        None,
        pattern=r"^[\w.+=-]+$",
        description="Name of the source in metrics and messages; null takes the file's or environment's.",
    )
    scripted: str | None = Field(None, description="Environment id whose scripted expert makes the data on first use.")
    episodes: PositiveInt = Field(500, description="Episodes to make (scripted only).")
    noise: float = Field(
        0.0, ge=0.0, le=1.0, description="Probability of a random action instead of the expert's (scripted only)."
    )
    seed: NonNegativeInt = Field(0, description="Seed of the data (scripted only).")
    env_kwargs: dict[str, Any] | None = Field(
        None, description="Arguments of the scripted environment; null takes env.kwargs where the id is the same."
    )
    filter_key: str | None = Field(None, description="Episodes listed under mask/<filter_key> of an HDF5 file.")
    valid_filter_key: str | None = Field(None, description="Episodes held out, listed under mask/<valid_filter_key>.")
    max_episodes: PositiveInt | None = Field(
        None, description="Use the first n episodes that filter_key selects, and no more; null uses all."
    )
    dones_mean: Literal["terminated", "truncated"] = Field(
        "terminated", description="What a 1 in robomimic's 'dones' says about the task."
    )
    columns: dict[str, str] | None = Field(
        None, description="What the arrays of the path are: 'obs/NAME', 'actions', 'rewards', ... -> name of an array."
    )
    image_size: list[PositiveInt] | None = Field(
        None, min_length=2, max_length=2, description="Height and width to which images of LeRobot are reduced."
    )
    action_keys: list[str] | None = Field(
        None,
        min_length=1,
        description="Columns of a robomimic file that make up the action, side by side: 'actions', or entries of "
        "action_dict; null takes 'actions'.",
    )
    action_rotations: dict[str, Literal["axis_angle", "6d"]] | None = Field(
        None,
        description="Those of action_keys that are rotations -> their form in the file; policies learn six numbers, "
        "the environment gets axis-angle.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> DataSection:
        if (self.path is None) == (self.scripted is None):
            raise ValueError("give exactly one of 'path' and 'scripted'")
        if unknown := sorted((self.action_rotations or {}).keys() - set(self.action_keys or ["actions"])):
            raise ValueError(f"action_rotations names {', '.join(unknown)}, which action_keys does not")
        return self

    def reader_options(self) -> dict[str, Any]:
        """Return what the reader of the path is told."""
        names = ("dones_mean", "columns", "image_size", "action_keys", "action_rotations")
        return {name: getattr(self, name) for name in names}


class ReplaySection(SourceSection):
    """What is collected, on disk. Whole files are deleted, oldest first, when a limit is exceeded."""

    path: str | None = Field(
        None, description="Store to add to, which other runs may share; null is replay/ in the run's folder."
    )
    max_gb: PositiveFloat | None = Field(None, description="Most gigabytes on disk; null is no limit.")
    max_transitions: PositiveInt | None = Field(None, description="Most transitions; null is no limit.")
    max_trajectories: PositiveInt | None = Field(None, description="Most trajectories; null is no limit.")
    min_transitions: NonNegativeInt = Field(0, description="Transitions before learning begins.")
    min_trajectories: PositiveInt = Field(1, description="Trajectories before learning begins.")

    @model_validator(mode="after")
    def _can_be_enough(self) -> ReplaySection:
        for name in ("transitions", "trajectories"):
            least, most = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if most is not None and least > most:
                raise ValueError(f"min_{name} {least} exceeds max_{name} {most}, so learning would never begin")
        if self.max_transitions is not None and self.min_transitions > self.max_transitions / 2:
            raise ValueError(
                f"min_transitions {self.min_transitions} is more than half of max_transitions {self.max_transitions}: "
                "as whole files are deleted, learning might never begin"
            )
        return self


class RaySection(Section):
    """Ray actors that collect, on this machine or many; needs ``pip install "seqrl[ray]"``."""

    num_actors: PositiveInt = Field(2, description="Actors; each has collect.num_envs environments and its own policy.")
    address: str = Field("local", description="'local' starts Ray on this machine, 'auto' finds a running cluster.")
    cpus_per_actor: PositiveFloat = Field(1.0, description="Cores that Ray reserves for an actor.")
    resources: dict[str, PositiveFloat] = Field({}, description="Further resources of an actor, by their names in Ray.")
    runtime_env: dict[str, Any] = Field({}, description="Packages, modules and variables of the actors: Ray's own.")
    batches_in_flight: PositiveInt = Field(
        2, description="Batches of collect.steps_per_epoch steps that an actor may have in progress or waiting."
    )
    max_restarts: NonNegativeInt = Field(
        100, description="Restarts of an actor that dies; after the last of them the others go on without it."
    )

    @field_validator("resources")
    @classmethod
    def _are_no_cores(cls, resources: dict[str, float]) -> dict[str, float]:
        if named := sorted(resources.keys() & {"CPU", "GPU", "memory", "object_store_memory"}):
            raise ValueError(f"{named[0]} cannot be set here; cores are cpus_per_actor, and actors use no GPU")
        return resources


class CollectSection(Section):
    """Acting in training environments between the epochs of learning."""

    steps_per_epoch: NonNegativeInt = Field(
        0, description="Steps of each environment per epoch; 0 collects nothing (offline)."
    )
    num_envs: PositiveInt = Field(12, description="Environments stepped at once, by each process.")
    collectors: Literal["local", "ray"] = Field(
        "local", description="Collect in the run's own process, or in Ray actors while this process learns."
    )
    ray: RaySection = RaySection()
    start_epoch: NonNegativeInt = Field(0, description="First epoch that collects.")
    deterministic: bool = Field(False, description="Act greedily, before exploration, rather than by sampling.")
    engine: Literal["eager", "onnx", "auto"] = Field(
        "eager",
        description="What takes the policy's steps: PyTorch, or ONNX Runtime on a CPU (pip install 'seqrl[onnx]'). "
        "'auto' takes ONNX Runtime where it can; the run's config.json says which it is.",
    )
    reset_every_n_epochs: PositiveInt | None = Field(
        None, description="Epochs after which unfinished episodes are cut off and all environments reset."
    )
    trajectory_steps: PositiveInt | None = Field(
        None, description="Longest stored trajectory; longer episodes are stored in pieces. null stores whole ones."
    )
    stagger_trajectories: bool = Field(
        True, description="Cut each environment's first piece at another length, so that they do not end together."
    )
    exploration: Annotated[Section, Component(EXPLORATIONS)] = EpsilonGreedySection()
    replay: ReplaySection = ReplaySection()


class TrainSection(Section):
    """Data, windows, and the length of training."""

    data: list[DataSection] = Field([], description="Where the trajectories come from.")
    window_steps: PositiveInt = Field(128, description="Transitions per training window, and the memory's context.")
    window_padding: Literal["none", "left", "right", "both"] = Field(
        "none",
        description="Ends of an episode that windows may extend past, so its first or last steps are seen as often.",
    )
    burn_in_steps: int = Field(
        0,
        ge=0,
        description="Inputs before a window that a recurrent memory reads first, without learning from them, where the "
        "stored episode has as many. Helps a policy to act longer than a window.",
    )
    sample_by: str = Field(
        "trajectory",
        description="How often an episode is drawn: 'trajectory' all equally often, 'transition' in proportion to "
        "their steps, or a plug-in's sampler.",
    )
    goal_mode: Literal["last"] | None = Field(
        None, description="Goals of observation.goal_keys: 'last' is each episode's end; null takes those of the data."
    )
    normalize_obs: Literal["none", "min_max", "gaussian"] = Field(
        "none", description="Scale observed vectors by the training data's range, or by its mean and deviation."
    )
    normalize_actions: Literal["none", "min_max", "gaussian"] = Field(
        "none", description="Scale continuous actions by the training data likewise, beyond the space's own bounds."
    )
    normalize_rewards: Literal["none", "return_range"] = Field(
        "none",
        description="Scale rewards in the losses of values so that the best return of the training data is 1000 above "
        "the worst, on top of algo.reward_multiplier.",
    )
    weigh_data_by: Literal["share", "size"] = Field(
        "share",
        description="'share': the weight of a source is its share of every batch. 'size': it is multiplied by the "
        "source's episodes, or transitions (sample_by), so that sources of equal weights are drawn as if one.",
    )
    valid_fraction: float = Field(0.1, ge=0.0, lt=1.0, description="Share of the episodes held out for validation.")
    valid_batches: PositiveInt = Field(10, description="Batches per validation; the same windows every time.")
    metrics: list[Annotated[Section, Component(METRICS)]] = Field(
        [], description="Metrics of plug-ins on the held-out windows, at each validation."
    )
    batch_size: PositiveInt = Field(
        24, description="Windows per gradient step; batch_size_is says whether per process."
    )
    batch_size_is: Literal["per_rank", "total"] = Field(
        "per_rank",
        description="Whether each process of torchrun draws batch_size windows, or all share one batch, as one process "
        "would draw it.",
    )
    num_epochs: NonNegativeInt = Field(100, description="Epochs; 0 evaluates only.")
    steps_per_epoch: NonNegativeInt = Field(500, description="Gradient steps per epoch; 0 learns nothing.")
    replay_ratio: PositiveFloat | None = Field(
        None,
        description="Gradient steps per environment step of this process; sets steps_per_epoch. null "
        "takes steps_per_epoch.",
    )
    start_epoch: NonNegativeInt = Field(0, description="First epoch that learns.")
    accumulate_batches: PositiveInt = Field(1, description="Batches whose gradients make one step.")
    init_from: str | None = Field(None, description="Checkpoint whose weights the run starts from.")
    allow_nonfinite: bool = Field(
        False, description="Load weights and optimiser states with NaN or inf too, when resuming and from init_from."
    )
    seed: NonNegativeInt = Field(0, description="Seed of every random generator of the run.")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="Mixed precision of the forward pass.")
    compile: bool = Field(
        False, description="Compute the losses through torch.compile: minutes at first, worth it on a GPU."
    )
    device: str = Field("auto", description="'auto', 'cpu', 'cuda' or 'cuda:N'.")
    num_threads: PositiveInt | None = Field(
        None, le=4096, description="CPU threads of torch; null leaves torch's choice."
    )
    prefetch_batches: NonNegativeInt = Field(
        2, description="Batches prepared ahead on a thread; 0 prepares them inline."
    )
    on_nonfinite: Literal["stop", "skip"] = Field(
        "stop", description="After a non-finite loss (whose update is always suppressed): stop, or go on."
    )

    @model_validator(mode="after")
    def _names_differ(self) -> TrainSection:
        names = [section.name for section in self.data if section.name is not None]
        if again := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two entries of 'data' have the name {again!r}")
        types = [section.choice()[0] for section in self.metrics]
        if again := next((name for name in types if types.count(name) > 1), None):
            raise ValueError(f"two entries of 'metrics' are of the type {again!r}")
        return self


class ObservationSection(Section):
    """What the policy sees at each step, and how it becomes a vector."""

    keys: list[str] | None = Field(None, min_length=1, description="Observation entries to use; null uses all.")
    goal_keys: list[str] = Field([], description="Entries whose goal the policy reads, as further entries goal/<key>.")
    use_prev_action: bool = Field(True, description="Feed the previous action; false hides it from every encoder.")
    use_prev_reward: bool = Field(True, description="Feed the previous reward; false hides it from every encoder.")
    prev_dropout: float = Field(
        0.0, ge=0.0, lt=1.0, description="Share of training windows in which the previous action and reward are hidden."
    )
    timestep_encoder: Annotated[Section, Component(TIMESTEP_ENCODERS)] = Field(
        AutoTimestepEncoderSection(), description="What turns the observation of one step into a vector."
    )


class ImitationObservationSection(ObservationSection):
    """What an imitating policy sees: not its last action, which it would learn to copy, nor the last reward."""

    use_prev_action: bool = Field(False, description="Feed the previous action; tempts imitation to repeat it.")
    use_prev_reward: bool = Field(False, description="Feed the previous reward, which has to be given when acting.")
