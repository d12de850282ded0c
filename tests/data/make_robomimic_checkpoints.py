"""Write tiny checkpoints by robomimic itself, and what they do on 100 inputs: ``python make_robomimic_checkpoints.py``.

It needs an interpreter with robomimic 0.3.0. Each policy learns for 50 steps on made-up data. Distributions give
their mean, mixtures the mean of their most probable mode, so that what is recorded can be compared.
"""

import json
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import robomimic.utils.file_utils as file_utils
import robomimic.utils.obs_utils as obs_utils
import robomimic.utils.train_utils as train_utils
import torch
from robomimic.algo import algo_factory
from robomimic.config import config_factory
from torch.utils.data import DataLoader

HERE = Path(__file__).parent
DATASET = str(Path(tempfile.mkdtemp()) / "data.hdf5")
SIZES = {"vel": 3, "pos": 2}  # not in the order of their names
KINDS = {
    "mlp": {"actor_layer_dims": [16, 16]},
    "gaussian": {"actor_layer_dims": [16, 16], "gaussian.enabled": True},
    "gmm": {"actor_layer_dims": [16], "gmm.enabled": True, "gmm.num_modes": 3},
    "lstm": {"actor_layer_dims": [], "rnn.enabled": True, "rnn.hidden_dim": 12},
    "gru_gmm": {
        "actor_layer_dims": [8],
        "rnn.enabled": True,
        "rnn.rnn_type": "GRU",
        "rnn.hidden_dim": 12,
        "gmm.enabled": True,
    },
}


def write_data():
    rng = np.random.default_rng(0)
    with h5py.File(DATASET, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "PointMass-v0", "type": 2, "env_kwargs": {}})
        data.attrs["total"] = 200
        for i in range(10):
            demo = data.create_group(f"demo_{i}")
            demo.attrs["num_samples"] = 20
            for key, size in SIZES.items():
                demo[f"obs/{key}"] = rng.normal(2.0, 3.0, (20, size)).astype(np.float32)
            demo["actions"] = np.tanh(demo["obs/vel"][:, :2] - demo["obs/pos"]).astype(np.float32)
            demo["rewards"], demo["dones"] = np.zeros(20), np.arange(20) == 19


def make(name, settings, normalize):
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (what robomimic draws from)
    config = config_factory("bc")
    with config.unlocked():
        config.train.data = DATASET
        config.train.cuda = False
        config.train.batch_size = 16
        config.train.hdf5_normalize_obs = normalize
        config.observation.modalities.obs.low_dim = list(SIZES)
        for key, value in settings.items():
            at = config.algo
            *folders, last = key.split(".")
            for folder in folders:
                at = at[folder]
            at[last] = value
        if config.algo.rnn.enabled:
            config.train.seq_length = config.algo.rnn.horizon = 10
    config.lock()
    obs_utils.initialize_obs_utils_with_config(config)
    shapes = file_utils.get_shape_metadata_from_dataset(DATASET, all_obs_keys=config.all_obs_keys)
    model = algo_factory("bc", config, shapes["all_shapes"], shapes["ac_dim"], torch.device("cpu"))
    data, _ = train_utils.load_data_for_training(config, obs_keys=shapes["all_obs_keys"])
    stats = data.get_obs_normalization_stats() if normalize else None
    model.set_train()
    train_utils.run_epoch(model, DataLoader(data, batch_size=16, shuffle=True), epoch=1, num_steps=50)
    path = HERE / f"robomimic_{name}.pth"
    train_utils.save_model(model, config, file_utils.get_env_metadata_from_dataset(DATASET), shapes, str(path), stats)
    return path


def record(path):
    """Return inputs (10 episodes of 10 steps), and what the policy does there (or its distribution, if it draws)."""
    policy, _ = file_utils.policy_from_checkpoint(ckpt_path=str(path), device=torch.device("cpu"), verbose=False)
    rng, inputs, outputs = np.random.default_rng(0), [], []
    for _ in range(10):
        policy.start_episode()
        for _ in range(10):
            obs = {key: rng.normal(2.0, 3.0, size).astype(np.float32) for key, size in SIZES.items()}
            inputs.append({key: values.tolist() for key, values in obs.items()})
            outputs.append(np.asarray(policy(ob=obs)).tolist())
    return inputs, outputs


def deviations(path, inputs):
    """Return the standard deviations of the learned distribution at the inputs, of a policy without memory."""
    policy, _ = file_utils.policy_from_checkpoint(ckpt_path=str(path), device=torch.device("cpu"), verbose=False)
    net = policy.policy.nets["policy"]
    net.low_noise_eval = False
    with torch.no_grad():
        found = net.forward_train({key: torch.tensor([each[key] for each in inputs]) for key in SIZES})
    return getattr(found, "component_distribution", found).base_dist.scale.tolist()


def most_probable(mixture, sample_shape=None):
    means, logits = mixture.component_distribution.mean, mixture.mixture_distribution.logits
    return torch.take_along_dim(means, logits.argmax(-1)[..., None, None], dim=-2).squeeze(-2)


def main():
    write_data()
    torch.distributions.Independent.sample = lambda self, sample_shape=None: self.mean
    torch.distributions.MixtureSameFamily.sample = most_probable
    found = {}
    for name, settings in KINDS.items():
        path = make(name, settings, normalize=name == "mlp")
        inputs, outputs = record(path)
        found[name] = {"inputs": inputs, "actions": outputs}
        if name in ("gaussian", "gmm"):
            found[name]["stds"] = deviations(path, inputs)
    (HERE / "robomimic_actions.json").write_text(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
