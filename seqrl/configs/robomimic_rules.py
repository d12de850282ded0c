"""What becomes of each key of a run file of robomimic; :mod:`seqrl.configs.robomimic` goes through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seqrl.configs.dotted import value_at

Rule = Callable[["Translation", Any], None]
MODALITIES = ("low_dim", "rgb", "depth", "scan")


@dataclass
class Translation:
    """A run file that becomes one of seqrl's.

    Attributes:
        given: Their run file.
        values: Ours.
        partly: Their key -> what of it is not carried over.
        dropped: Their key -> why it has no place.
        translated: Their keys that have one.
        unused: Their keys of parts that are switched off.
    """

    given: Mapping[str, Any]
    values: dict[str, Any] = field(default_factory=dict)
    partly: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    translated: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def get(self, path: str, default: Any = None) -> Any:
        """Return what they say under a dotted key."""
        return value_at(self.given, path, default)

    def put(self, path: str, value: Any) -> None:
        """Set one of our keys."""
        *folders, name = path.split(".")
        at = self.values
        for folder in folders:
            at = at.setdefault(folder, {})
        at[name] = value

    @property
    def memory(self) -> str:
        """Which of our memories stands for theirs."""
        if self.get("algo.transformer.enabled"):
            return "transformer"
        if self.get("algo.rnn.enabled"):
            return str(self.get("algo.rnn.rnn_type", "LSTM")).lower()
        return "identity" if int(self.get("train.frame_stack", 1)) == 1 else "feedforward"

    @property
    def head(self) -> str:
        """Which of our distributions stands for theirs."""
        return next((h for h in ("gaussian", "gmm") if self.get(f"algo.{h}.enabled")), "deterministic")


def _to(place: str) -> Rule:
    return lambda t, value: t.put(place, value)


def _unless_none(place: str) -> Rule:
    return lambda t, value: t.put(place, value) if value is not None else None


def _if(condition: Callable[[Translation], bool], rule: Rule) -> Rule:
    return lambda t, value: rule(t, value) if condition(t) else None


def _head(kind: str, name: str) -> Rule:
    return _if(lambda t: t.head == kind, _to(f"algo.distribution.{name}"))


def _in_vae(place: str) -> Rule:
    return _if(lambda t: bool(t.get("algo.vae.enabled")), _to(place))


def _memory(kinds: tuple[str, ...], name: str) -> Rule:
    return _if(lambda t: t.memory in kinds, _to(f"algo.sequence_encoder.{name}"))


RNN = ("lstm", "gru")


def _best(measure: str) -> Rule:
    def rule(t: Translation, value: Any) -> None:
        kept = t.values.setdefault("experiment", {}).setdefault("save", {}).setdefault("best", [])
        if value:
            kept.append(measure)

    return rule


def _data(t: Translation, value: Any) -> None:
    entries = value if isinstance(value, list) else [] if value is None else [{"path": value}]
    ours = []
    for entry in entries:
        one = {
            new: entry[old]
            for old, new in (
                ("path", "path"),
                ("filter_key", "filter_key"),
                ("demo_limit", "max_episodes"),
                ("weight", "weight"),
                ("key", "name"),
            )
            if entry.get(old) is not None
        }
        if (key := t.get("train.hdf5_filter_key")) is not None:
            one.setdefault("filter_key", key)
        if t.get("experiment.validate") and (key := t.get("train.hdf5_validation_filter_key")) is not None:
            one["valid_filter_key"] = key
        ours.append(one | _columns(t))
    t.put("train.data", ours)
    if any("eval" in e or "lang" in e for e in entries):
        t.partly["train.data"] = "eval and lang of an entry: env.tasks says what is played; language is an observation"


def _validate(t: Translation, value: Any) -> None:
    if not value or t.get("train.hdf5_validation_filter_key") is None:
        t.put("train.valid_fraction", 0.1 if value else 0.0)


def _window(t: Translation, value: Any) -> None:
    """The window of a memory is what it sees in training and acting; robomimic has three keys that must agree."""
    asked = [int(value), int(t.get("train.frame_stack", 1))]
    if t.memory in RNN:
        asked.append(int(t.get("algo.rnn.horizon", 1)))
    if t.memory == "transformer":
        asked.append(int(t.get("algo.transformer.context_length", 1)))
    t.put("train.window_steps", max(asked))


def _padding(t: Translation, _: Any) -> None:
    ends = (bool(t.get("train.pad_frame_stack", True)), bool(t.get("train.pad_seq_length", True)))
    uses_stack = int(t.get("train.frame_stack", 1)) > 1
    kinds = {(True, True): "both", (True, False): "left", (False, True): "right", (False, False): "none"}
    t.put("train.window_padding", kinds[ends[0] and uses_stack, ends[1]])


HIERARCHIES = ("gl", "hbc", "iris")
"""Algorithms whose memories are in their parts."""


def _frames(t: Translation, value: Any) -> None:
    if t.memory != "feedforward":
        return
    if t.given.get("algo_name") in HIERARCHIES:
        t.partly["train.frame_stack"] = "set the memories of the algorithm's parts: docs/algorithms"
    else:
        t.put("algo.sequence_encoder.num_frames", int(value))


def _layers(t: Translation, value: Any) -> None:
    widths = [int(w) for w in value]
    t.put("algo.actor.num_layers", len(widths))
    if widths:
        t.put("algo.actor.d_hidden", max(widths))
    if len(set(widths)) > 1:
        t.partly["algo.actor_layer_dims"] = f"layers of different widths; all have {max(widths)} here"


def _vae_layers(t: Translation, value: Any) -> None:
    if t.get("algo.vae.enabled"):
        t.put("algo.latent.num_layers", len(value))
        t.put("algo.latent.d_hidden", max(value, default=256))


def _fixed_std(t: Translation, value: Any) -> None:
    if t.head == "gaussian" and value:
        t.put("algo.distribution.fixed_std", t.get("algo.gaussian.init_std", 0.1))


def _std_activation(kind: str) -> Rule:
    def rule(t: Translation, value: Any) -> None:
        if value in ("softplus", "exp"):
            t.put("algo.distribution.std_activation", value)
        else:
            t.partly[f"algo.{kind}.std_activation"] = f"{value}: softplus or exp here, softplus by default"

    return rule


def _scheduler(t: Translation, value: Any) -> None:
    milestones = t.get(f"{OPTIMIZER}.learning_rate.epoch_schedule") or []
    steps = int(t.get("experiment.epoch_every_n_steps", 100) or STEPS_PER_EPOCH)
    factor = t.get(f"{OPTIMIZER}.learning_rate.decay_factor", 0.1)
    if value in ("multistep", "linear") and not milestones:
        return
    if value == "multistep":
        t.put("algo.optimizer.schedule", "multistep")
        t.put("algo.optimizer.milestones", [int(m) * steps for m in milestones])
        t.put("algo.optimizer.milestone_factor", factor)
    elif value == "linear":  # to a share of the rate, within the first number of epochs
        t.put("algo.optimizer.schedule", "linear")
        t.put("algo.optimizer.final_factor", factor)
        t.put("algo.optimizer.decay_steps", int(milestones[0]) * steps)
    elif value == "cosine":
        t.put("algo.optimizer.schedule", value)
    else:
        t.partly[f"{OPTIMIZER}.learning_rate.scheduler_type"] = f"{value}: the rate stays constant here"


def _reconstruction(t: Translation, value: Any) -> None:
    if t.get("algo.vae.enabled"):
        t.put("algo.reconstruction", "sum" if value else "mean")


def _prior(t: Translation, _: Any) -> None:
    if not t.get("algo.vae.enabled"):
        return
    kind = next((k for k in ("gmm", "categorical") if t.get(f"algo.vae.prior.use_{k}")), "gaussian")
    t.put("algo.latent.prior", kind)


def _bidirectional(t: Translation, value: Any) -> None:
    if value and t.memory in RNN:
        t.partly["algo.rnn.kwargs.bidirectional"] = "left out: a policy cannot see the future"


def _open_loop(t: Translation, value: Any) -> None:
    if value and t.memory in RNN:
        t.put("algo.chunk_steps", t.get("algo.rnn.horizon", 10))


def _positions(t: Translation, value: Any) -> None:
    if t.memory == "transformer":
        t.put("algo.sequence_encoder.positions", "learned" if not value else "fixed")


def _keys(t: Translation, _: Any) -> None:
    groups = t.get("observation.modalities.obs", {})
    t.put("observation.keys", [key for kind in MODALITIES for key in groups.get(kind) or []] or None)


def _goals(t: Translation, _: Any) -> None:
    groups = t.get("observation.modalities.goal", {})
    keys = [key for kind in MODALITIES for key in groups.get(kind) or []]
    if keys:
        t.put("observation.goal_keys", keys)


CORES = {"ResNet18Conv": "resnet18", "ResNet50Conv": "resnet50"}
POOLS = {"SpatialSoftmax": "spatial_softmax", "SpatialMeanPool": "mean"}


def _images(t: Translation, value: Any) -> None:
    """Give each image the core that robomimic's VisualCore stands for, as far as there is one."""
    kwargs = t.get("observation.encoder.rgb.core_kwargs") or {}
    backbone, pool = kwargs.get("backbone_class", "ResNet18Conv"), kwargs.get("pool_class", "SpatialSoftmax")
    if value != "VisualCore" or backbone not in CORES:
        name = backbone if value == "VisualCore" else value
        t.partly["observation.encoder.rgb.core_class"] = f"{name}: images get the default core; docs/observations.md"
        return
    options: dict[str, Any] = {"type": "image", "core": {"type": CORES[backbone]}}
    if pool in POOLS:
        options["core"]["pool"] = POOLS[pool]
    if kwargs.get("feature_dimension"):
        options["d_output"] = kwargs["feature_dimension"]
    lost = [f"pool_class {pool}"] * (pool not in POOLS) + [
        k for k in ("backbone_kwargs", "pool_kwargs") if kwargs.get(k)
    ]
    if lost:
        t.partly["observation.encoder.rgb.core_kwargs"] = f"not carried over: {', '.join(lost)}; docs/observations.md"
    if t.get("observation.encoder.rgb.obs_randomizer_class") == "CropRandomizer":
        crop = t.get("observation.encoder.rgb.obs_randomizer_kwargs") or {}
        size = {ours: crop[theirs] for theirs, ours in CROP.items() if theirs in crop}
        options["randomizers"] = [{"type": "crop", **size}]
    keys = t.get("observation.modalities.obs.rgb")
    t.put("observation.timestep_encoder", {"type": "multimodal", "modalities": {key: dict(options) for key in keys}})


CROP = {"crop_height": "height", "crop_width": "width", "num_crops": "num_crops"}


def _randomizer(t: Translation, value: Any) -> None:
    if value not in (None, "CropRandomizer"):
        t.partly["observation.encoder.rgb.obs_randomizer_class"] = f"{value}: add it to randomizers yourself"


def _device(t: Translation, value: Any) -> None:
    t.put("train.device", "auto" if value else "cpu")


def _tasks(t: Translation, value: Any) -> None:
    if value:
        t.partly["experiment.additional_envs"] = "list them in env.tasks"


def _columns(t: Translation) -> dict[str, Any]:
    """Return which columns make up the action, and which of them are rotations, where they say so."""
    keys = list(t.get("train.action_keys") or ["actions"])
    rotations = {}
    for key in keys:
        entry = _of_column(t, key)
        if entry.get("rot_conversion") == "axis_angle_to_6d":
            rotations[key] = "axis_angle"
        elif entry.get("format") == "rot_6d" and entry.get("convert_at_runtime", "rot_axis_angle") == "rot_axis_angle":
            rotations[key] = "6d"
    found = {"action_keys": keys} if rotations or keys != ["actions"] else {}
    return found | ({"action_rotations": rotations} if rotations else {})


def _of_column(t: Translation, key: str) -> Mapping[str, Any]:
    """Return what they say of a column of the action."""
    return (t.get("train.action_config") or {}).get(key) or {}


def _action_config(t: Translation, value: Any) -> None:
    used = {key: _of_column(t, key) for key in t.get("train.action_keys") or value}
    kinds = {entry.get("normalization") for entry in used.values()}
    told = []
    if len(kinds - {None}) == 1:
        t.put("train.normalize_actions", next(iter(kinds - {None})))
    if len(kinds) > 1:
        told.append("columns are normalised in several ways; here all are in one")
    known = _columns(t).get("action_rotations", {})
    rotated = [k for k, entry in used.items() if entry.get("rot_conversion") or entry.get("format") == "rot_6d"]
    if lost := [key for key in rotated if key not in known]:
        told.append(f"rotations of {', '.join(lost)} are learned as the file has them")
    if told:
        t.partly["train.action_config"] = "; ".join(told)


def _goal_mode(t: Translation, value: Any) -> None:
    if value is not None:
        t.put("train.goal_mode", value)


def _wandb_project(t: Translation, value: Any) -> None:
    if t.get("experiment.logging.log_wandb"):
        t.put("experiment.logging.wandb.project", value)


def _normalize(t: Translation, value: Any) -> None:
    t.put("train.normalize_obs", "gaussian" if value else "none")


def _steps(key: str, place: str) -> Rule:
    told = {f"experiment.{key}": f"null is a pass over all data there: set {place}"}
    return lambda t, value: t.partly.update(told) if value is None else t.put(place, value)


def _env_meta(t: Translation, value: Any) -> None:
    value = dict(value or {})
    if kwargs := value.pop("env_kwargs", None):
        t.put("env.kwargs", kwargs)
    if (name := value.pop("env_name", None)) and not t.get("experiment.env"):
        t.put("env.id", name)
    if value:
        t.partly["experiment.env_meta_update_dict"] = f"not carried over: {', '.join(map(str, value))}"


OPTIMIZER, STEPS_PER_EPOCH = "algo.optim_params.policy", 500  # the latter where theirs is a pass over the data
RULES: dict[str, Rule] = {
    "experiment.name": _to("experiment.name"),
    "experiment.validate": _validate,
    "experiment.logging.log_tb": _to("experiment.logging.tensorboard"),
    "experiment.logging.log_wandb": _to("experiment.logging.wandb.enabled"),
    "experiment.logging.wandb_proj_name": _wandb_project,
    "experiment.save.every_n_seconds": _to("experiment.save.every_s"),
    "experiment.save.every_n_epochs": _to("experiment.save.every_n_epochs"),
    "experiment.save.epochs": _to("experiment.save.epochs"),
    "experiment.save.on_best_validation": _best("valid_loss"),
    "experiment.save.on_best_rollout_return": _best("return"),
    "experiment.save.on_best_rollout_success_rate": _best("success"),
    "experiment.epoch_every_n_steps": _steps("epoch_every_n_steps", "train.steps_per_epoch"),
    "experiment.validation_epoch_every_n_steps": _if(
        lambda t: bool(t.get("experiment.validate")), _steps("validation_epoch_every_n_steps", "train.valid_batches")
    ),
    "experiment.env": _unless_none("env.id"),
    "experiment.additional_envs": _tasks,
    "experiment.env_meta_update_dict": _env_meta,
    "experiment.render_video": _to("experiment.rendering.enabled"),
    "experiment.keep_all_videos": lambda t, v: t.put("experiment.rendering.keep", "all" if v else "best"),
    "experiment.video_skip": _to("experiment.rendering.every_n_frames"),
    "experiment.rollout.enabled": _to("experiment.evaluation.enabled"),
    "experiment.rollout.n": _to("experiment.evaluation.episodes"),
    "experiment.rollout.horizon": _to("experiment.evaluation.max_steps"),
    "experiment.rollout.rate": _to("experiment.evaluation.every_n_epochs"),
    "experiment.rollout.warmstart": _to("experiment.evaluation.first_epoch"),
    "experiment.rollout.terminate_on_success": _to("experiment.evaluation.terminate_on_success"),
    "experiment.ckpt_path": _unless_none("train.init_from"),
    "train.data": _data,
    "train.hdf5_filter_key": lambda t, v: None,  # in train.data
    "train.hdf5_validation_filter_key": lambda t, v: None,  # in train.data
    "train.output_dir": _to("experiment.output_dir"),
    "train.hdf5_normalize_obs": _normalize,
    "train.normalize_weights_by_ds_size": lambda t, v: t.put("train.weigh_data_by", "share" if v else "size"),
    "train.seq_length": _window,
    "train.frame_stack": _frames,
    "train.pad_seq_length": _padding,
    "train.pad_frame_stack": _padding,
    "train.action_config": _action_config,
    "train.action_keys": lambda t, v: None,  # in train.data
    "train.goal_mode": _goal_mode,
    "train.cuda": _device,
    "train.batch_size": _to("train.batch_size"),
    "train.num_epochs": _to("train.num_epochs"),
    "train.seed": _to("train.seed"),
    "train.max_grad_norm": _to("algo.optimizer.grad_clip"),
    f"{OPTIMIZER}.optimizer_type": _to("algo.optimizer.method"),
    f"{OPTIMIZER}.learning_rate.initial": _to("algo.optimizer.learning_rate"),
    f"{OPTIMIZER}.learning_rate.scheduler_type": _scheduler,
    f"{OPTIMIZER}.learning_rate.epoch_schedule": lambda t, v: None,  # with the scheduler
    f"{OPTIMIZER}.learning_rate.decay_factor": lambda t, v: None,  # with the scheduler
    f"{OPTIMIZER}.regularization.L2": _to("algo.optimizer.weight_decay"),
    "algo.loss.l2_weight": _head("deterministic", "l2_weight"),
    "algo.loss.l1_weight": _head("deterministic", "l1_weight"),
    "algo.loss.cos_weight": _head("deterministic", "cosine_weight"),
    "algo.actor_layer_dims": _layers,
    "algo.gaussian.enabled": lambda t, v: None,  # the distribution's type
    "algo.gaussian.fixed_std": _fixed_std,
    "algo.gaussian.init_std": _head("gaussian", "init_std"),
    "algo.gaussian.min_std": _head("gaussian", "min_std"),
    "algo.gaussian.std_activation": _std_activation("gaussian"),
    "algo.gaussian.low_noise_eval": _head("gaussian", "low_noise_eval"),
    "algo.gmm.enabled": lambda t, v: None,  # the distribution's type
    "algo.gmm.num_modes": _head("gmm", "num_modes"),
    "algo.gmm.min_std": _head("gmm", "min_std"),
    "algo.gmm.std_activation": _std_activation("gmm"),
    "algo.gmm.low_noise_eval": _head("gmm", "low_noise_eval"),
    "algo.vae.enabled": lambda t, v: None,  # the algorithm
    "algo.vae.latent_dim": _in_vae("algo.latent.dim"),
    "algo.vae.latent_clip": _in_vae("algo.latent.clip"),
    "algo.vae.kl_weight": _in_vae("algo.latent.kl_weight"),
    "algo.vae.decoder.is_conditioned": _in_vae("algo.decoder_sees_history"),
    "algo.vae.decoder.reconstruction_sum_across_elements": _reconstruction,
    "algo.vae.prior.is_conditioned": _in_vae("algo.latent.is_conditioned"),
    "algo.vae.prior.use_gmm": _prior,
    "algo.vae.prior.use_categorical": _prior,
    "algo.vae.prior.gmm_num_modes": _in_vae("algo.latent.num_modes"),
    "algo.vae.prior.gmm_learn_weights": _in_vae("algo.latent.learns_weights"),
    "algo.vae.prior.categorical_dim": _in_vae("algo.latent.num_categories"),
    "algo.vae.prior.categorical_init_temp": _in_vae("algo.latent.init_temperature"),
    "algo.vae.prior.categorical_temp_anneal_step": _in_vae("algo.latent.temperature_step"),
    "algo.vae.prior.categorical_min_temp": _in_vae("algo.latent.min_temperature"),
    "algo.vae.prior_layer_dims": _vae_layers,
    "algo.rnn.enabled": lambda t, v: None,  # the memory's type
    "algo.rnn.rnn_type": lambda t, v: None,  # the memory's type
    "algo.rnn.hidden_dim": _memory(RNN, "d_hidden"),
    "algo.rnn.num_layers": _memory(RNN, "num_layers"),
    "algo.rnn.open_loop": _open_loop,
    "algo.rnn.kwargs.bidirectional": _bidirectional,
    "algo.transformer.enabled": lambda t, v: None,  # the memory's type
    "algo.transformer.context_length": lambda t, v: None,  # train.window_steps
    "algo.transformer.embed_dim": _memory(("transformer",), "d_model"),
    "algo.transformer.num_layers": _memory(("transformer",), "num_layers"),
    "algo.transformer.num_heads": _memory(("transformer",), "num_heads"),
    "algo.transformer.emb_dropout": _memory(("transformer",), "dropout_embedding"),
    "algo.transformer.attn_dropout": _memory(("transformer",), "dropout_attention"),
    "algo.transformer.block_output_dropout": _memory(("transformer",), "dropout_ff"),
    "algo.transformer.activation": _memory(("transformer",), "activation"),
    "algo.transformer.supervise_all_steps": _if(lambda t: t.memory == "transformer", _to("algo.supervise_all_steps")),
    "algo.transformer.sinusoidal_embedding": lambda t, v: None,  # with the next
    "algo.transformer.nn_parameter_for_timesteps": lambda t, v: _positions(
        t, t.get("algo.transformer.sinusoidal_embedding")
    ),
    **{f"observation.modalities.obs.{kind}": _keys for kind in MODALITIES},
    **{f"observation.modalities.goal.{kind}": _goals for kind in MODALITIES},
    "observation.encoder.rgb.core_class": _images,
    "observation.encoder.rgb.core_kwargs": lambda t, v: None,  # with the class
    "observation.encoder.rgb.obs_randomizer_class": _randomizer,
    "observation.encoder.rgb.obs_randomizer_kwargs": lambda t, v: None,  # with the core
}
"""Their key -> what becomes of it."""

PARTLY = {
    "experiment.rollout.n": "episodes are played by 20 environments at a time (experiment.evaluation.num_envs)",
    "algo.rnn.horizon": "train.window_steps; acting does not clear the memory every so many steps",
    "algo.transformer.embed_dim": "our blocks differ, by NormFormer and sigma reparametrisation",
    "algo.transformer.supervise_all_steps": "false imitates only at the last step of each window",
    "algo.vae.encoder_layer_dims": "one size, that of the prior's layers, serves encoder and prior",
    "algo.vae.decoder_layer_dims": "the decoder has the sizes of algo.actor",
}
"""Their key -> what of it is not carried over, where it is in use."""

DROPPED = {
    "experiment.logging.terminal_output_to_txt": "log.txt is always written",
    "experiment.save.enabled": "the last and the best checkpoints are always kept",
    "experiment.render": "a window is opened after training: seqrl run-trained-agent --render",
    "train.num_data_workers": "windows are read from memory maps by one thread, ahead of their use",
    "train.hdf5_cache_mode": "files are read once into a store that is mapped into memory",
    "train.hdf5_use_swmr": "files are read once into a store",
    "train.hdf5_load_next_obs": "next observations are read where the file has them",
    "train.dataset_keys": "actions, rewards and ends are always read",
    "algo.vae.prior.learn": "priors of algo.latent are always learned; gaussian without is_conditioned is near it",
    "algo.vae.prior.categorical_gumbel_softmax_hard": "samples are relaxed in training and hard in acting",
    "observation.encoder": "give such an entry a modality: docs/observations.md",
    "meta": "use seqrl sweep: docs/sweeps.md",
    "algo_name": "",
}
"""Their key, or the section that it is in -> why it has no place."""

WHOLE = ("core_kwargs", "obs_randomizer_kwargs", "env_meta_update_dict", "action_config")
"""Keys whose value is an object of its own."""
