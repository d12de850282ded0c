"""Run files of robomimic become run files of seqrl: every key has a place, part of one, or a reason."""

import copy
import json
import re
from pathlib import Path

import pytest

from seqrl.configs import config_factory
from seqrl.configs.robomimic import ALGORITHMS, is_robomimic, translate
from seqrl.core.errors import ConfigError
from seqrl.scripts import convert_config, train

DATA = Path(__file__).parents[2] / "data"
GIVEN = json.loads((DATA / "robomimic_bc.json").read_text())


def changed(**changes):
    """Return their defaults with other values of dotted keys, in which two underscores stand for a dot."""
    values = copy.deepcopy(GIVEN)
    for key, value in changes.items():
        *folders, name = key.split("__")
        at = values
        for folder in folders:
            at = at.setdefault(folder, {})
        at[name] = value
    return values


def config_of(**changes):
    """Return our config of their changed defaults, as a dict."""
    values = translate(changed(**changes)).values
    return config_factory(values["algo_name"], values).to_json()


def keys(values, prefix=""):
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_key_of_the_template_is_accounted_for():
    found = translate(GIVEN)
    told = [*found.translated, *found.partly, *found.dropped, *found.unused]
    assert sorted(told) == sorted(set(keys(GIVEN)) - {"algo_name"})
    assert all(found.dropped.values())
    assert "unknown to this translation" not in found.dropped.values()
    assert len(found.translated) >= 60


def test_the_template_keeps_its_numbers():
    config = config_of()
    assert config["algo"]["sequence_encoder"]["type"] == "identity"
    assert config["algo"]["distribution"]["type"] == "deterministic"
    assert (config["algo"]["actor"]["num_layers"], config["algo"]["actor"]["d_hidden"]) == (2, 1024)
    optimizer = config["algo"]["optimizer"]
    assert (optimizer["method"], optimizer["learning_rate"], optimizer["weight_decay"]) == ("adam", 1e-4, 0.0)
    assert (optimizer["grad_clip"], optimizer["warmup_steps"]) == (None, 0)
    train_section = config["train"]
    assert (train_section["batch_size"], train_section["num_epochs"], train_section["seed"]) == (100, 2000, 1)
    assert (train_section["steps_per_epoch"], train_section["window_padding"]) == (100, "right")
    evaluation = config["experiment"]["evaluation"]
    assert (evaluation["episodes"], evaluation["max_steps"], evaluation["terminate_on_success"]) == (50, 400, True)
    assert config["experiment"]["save"]["best"] == ["success"]
    assert config["observation"]["keys"] == ["robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object"]


def test_a_recurrent_mixture():
    config = config_of(
        algo__rnn__enabled=True,
        algo__rnn__rnn_type="GRU",
        algo__rnn__hidden_dim=1000,
        algo__gmm__enabled=True,
        algo__gmm__num_modes=7,
        algo__actor_layer_dims=[],
        train__seq_length=10,
        train__data="low_dim.hdf5",
        train__hdf5_filter_key="train",
        train__hdf5_validation_filter_key="valid",
        experiment__validate=True,
    )
    memory = config["algo"]["sequence_encoder"]
    assert (memory["type"], memory["d_hidden"], memory["num_layers"]) == ("gru", 1000, 2)
    assert (config["algo"]["distribution"]["type"], config["algo"]["distribution"]["num_modes"]) == ("gmm", 7)
    assert config["algo"]["actor"]["num_layers"] == 0
    assert config["train"]["window_steps"] == 10
    (data,) = config["train"]["data"]
    assert (data["path"], data["filter_key"], data["valid_filter_key"]) == ("low_dim.hdf5", "train", "valid")


def test_a_transformer_reads_its_context_length():
    config = config_of(algo__transformer__enabled=True, algo__transformer__context_length=20, train__frame_stack=20)
    assert config["algo"]["sequence_encoder"]["type"] == "transformer"
    assert config["algo"]["sequence_encoder"]["positions"] == "learned"
    assert (config["train"]["window_steps"], config["train"]["window_padding"]) == (20, "both")
    assert config["algo"]["supervise_all_steps"] is False


def test_an_auto_encoder_is_an_algorithm_of_its_own():
    config = config_of(algo__vae__enabled=True, algo__vae__latent_dim=6, algo__vae__prior__use_gmm=True)
    assert config["algo_name"] == "bc_vae"
    assert (config["algo"]["latent"]["dim"], config["algo"]["latent"]["prior"]) == (6, "gmm")
    assert (config["algo"]["latent"]["num_layers"], config["algo"]["latent"]["d_hidden"]) == (2, 400)


def test_images_get_their_core():
    values = changed(observation__modalities__obs__rgb=["agentview_image"])
    values["observation"]["encoder"]["rgb"] |= {
        "core_kwargs": {"backbone_class": "ResNet50Conv", "pool_class": "SpatialSoftmax", "feature_dimension": 64},
        "obs_randomizer_class": "CropRandomizer",
        "obs_randomizer_kwargs": {"crop_height": 70, "crop_width": 72, "num_crops": 1},
    }
    encoder = config_factory("bc", translate(values).values).to_json()["observation"]["timestep_encoder"]
    image = encoder["modalities"]["agentview_image"]
    assert (image["core"]["type"], image["core"]["pool"], image["d_output"]) == ("resnet50", "spatial_softmax", 64)
    assert (image["randomizers"][0]["height"], image["randomizers"][0]["width"]) == (70, 72)


def test_schedules_count_gradient_steps():
    lr = {"initial": 0.01, "decay_factor": 0.5, "epoch_schedule": [3, 6], "scheduler_type": "multistep"}
    optimizer = config_of(algo__optim_params__policy__learning_rate=lr)["algo"]["optimizer"]
    assert (optimizer["schedule"], optimizer["milestones"], optimizer["milestone_factor"]) == (
        "multistep", [300, 600], 0.5
    )  # fmt: skip


def test_a_linear_rate_falls_to_a_share_within_the_first_epochs():
    lr = {"initial": 0.01, "decay_factor": 0.5, "epoch_schedule": [3], "scheduler_type": "linear"}
    optimizer = config_of(algo__optim_params__policy__learning_rate=lr)["algo"]["optimizer"]
    assert (optimizer["schedule"], optimizer["final_factor"], optimizer["decay_steps"]) == ("linear", 0.5, 300)
    none = config_of(algo__optim_params__policy__learning_rate={**lr, "epoch_schedule": []})["algo"]["optimizer"]
    assert none.get("schedule", "constant") == "constant"


def test_changes_of_the_environments_description_go_where_they_belong():
    change = {"env_kwargs": {"controller": "OSC"}, "env_name": "Lift", "env_version": "1.5"}
    found = translate(changed(experiment__env_meta_update_dict=change))
    assert (found.values["env"]["kwargs"], found.values["env"]["id"]) == ({"controller": "OSC"}, "Lift")
    assert found.partly["experiment.env_meta_update_dict"] == "not carried over: env_version"


def test_an_epoch_of_all_data_is_told():
    found = translate(changed(experiment__epoch_every_n_steps=None))
    assert "set train.steps_per_epoch" in found.partly["experiment.epoch_every_n_steps"]


def test_what_is_lost_is_told():
    found = translate(changed(algo__actor_layer_dims=[300, 400]))
    assert found.partly["algo.actor_layer_dims"] == "layers of different widths; all have 400 here"
    assert found.dropped["train.hdf5_use_swmr"]
    assert translate(changed(train__quite_new=1)).dropped["train.quite_new"] == "unknown to this translation"


def test_columns_of_the_action_go_to_the_data():
    """As robomimic's tutorial has them, and as its newer templates do, which also list columns that are not in use."""
    keys = ["action/eef_pos", "action/eef_rot", "action_dict/rot_6d", "action_dict/rot_euler"]
    told = {
        keys[0]: {"normalization": "min_max", "rot_conversion": None},
        keys[1]: {"normalization": "min_max", "rot_conversion": "axis_angle_to_6d"},
        keys[2]: {"normalization": "min_max", "format": "rot_6d"},
        keys[3]: {"normalization": "min_max", "format": "rot_6d", "convert_at_runtime": "rot_euler"},
        "actions": {"normalization": None},
    }
    found = translate(changed(train__action_keys=keys[:3], train__action_config=told, train__data="can.hdf5"))
    assert not {"train.action_keys", "train.action_config"} & found.partly.keys()
    config = config_factory("bc", found.values)
    assert config.train.data[0].action_keys == keys[:3]
    assert config.train.data[0].action_rotations == {keys[1]: "axis_angle", keys[2]: "6d"}
    assert config.train.normalize_actions == "min_max"
    told[keys[0]] = {"normalization": None}
    partly = translate(changed(train__action_keys=keys, train__action_config=told)).partly["train.action_config"]
    assert "here all are in one" in partly
    assert "rotations of action_dict/rot_euler are learned as the file has them" in partly


def test_other_algorithms_keep_what_they_share():
    found = translate(changed(algo_name="iql", algo={"vf_quantile": 0.9}))
    assert config_factory("iql", found.values).train.batch_size == 100
    assert "docs/algorithms" in found.dropped["algo.vf_quantile"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_stacked_frames_are_legal_for_every_algorithm(name):
    values = translate(changed(algo_name=name, train__frame_stack=2)).values
    config = config_factory(values["algo_name"], values).to_json()
    assert config["train"]["window_steps"] == 2
    if name not in ("gl", "hbc", "iris"):
        memory = config["algo"]["sequence_encoder"]
        assert (memory["type"], memory["num_frames"]) == ("feedforward", 2)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("algo__gmm__std_activation", "relu", "relu: softplus or exp"),
        ("algo__optim_params__policy__learning_rate__scheduler_type", "constant_with_warmup", "stays constant"),
        ("observation__encoder__rgb__core_class", "MyCore", "MyCore: images get the default core"),
        ("observation__encoder__rgb__core_kwargs", {"backbone_class": "R3MConv"}, "R3MConv: images get the default"),
        ("observation__encoder__rgb__core_kwargs", {"backbone_kwargs": {"pretrained": True}}, "backbone_kwargs"),
        ("observation__encoder__rgb__core_kwargs", {"pool_class": "MyPool"}, "pool_class MyPool"),
        ("observation__encoder__rgb__obs_randomizer_class", "ColorRandomizer", "ColorRandomizer: add it"),
    ],
)
def test_nothing_in_use_is_lost_without_a_word(key, value, told):
    found = translate(changed(algo__gmm__enabled=True, observation__modalities__obs__rgb=["view"], **{key: value}))
    assert told in " ".join(found.partly.values())
    config_factory("bc", found.values)


@pytest.mark.parametrize(
    ("values", "problem"),
    [({"algo_name": "bc"}, "not a robomimic run file"), (changed(algo_name="mine"), "'mine' has no counterpart")],
)
def test_other_files_are_refused(values, problem):
    with pytest.raises(ConfigError, match=problem):
        translate(values)


def test_none_of_our_templates_is_taken_for_theirs():
    from seqrl.configs import read_config_values, template_names

    assert not any(is_robomimic(read_config_values(name)) for name in template_names())
    assert not is_robomimic(config_factory("bc").to_json())


def test_training_with_their_file_says_so_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("their.json").write_text(json.dumps(GIVEN))
    assert train.main(["--config", "their.json"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "their.json: this is a robomimic run file; convert it with: seqrl convert-config their.json mine.json"
    )


def test_a_translated_file_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = changed(train__data=str(DATA / "robomimic_written.hdf5"), experiment__rollout__enabled=False)
    given["observation"]["modalities"]["obs"]["low_dim"] = []
    Path("their.json").write_text(json.dumps(given))
    assert convert_config.main(["their.json", "mine.json"]) == 0
    told = capsys.readouterr().err
    assert re.search(r"mine\.json: \d\d keys translated, \d\d ignored: their sections are off", told)
    assert "left out" in told
    assert convert_config.main(["their.json", "mine.json"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    values = json.loads(Path("mine.json").read_text())
    del values["observation"]
    Path("mine.json").write_text(json.dumps(values))
    quick = ["train.num_epochs=1", "train.steps_per_epoch=2", "experiment.output_dir=runs", "experiment.name=r"]
    quick += ["experiment.rendering.enabled=false", "experiment.report.enabled=false"]
    assert train.main(["--config", "mine.json", *(a for s in quick for a in ("--set", s))]) == 0


def test_a_value_that_robomimic_does_not_write_is_named():
    with pytest.raises(ConfigError, match=r"train\.seq_length: robomimic has no such value, 'x'"):
        translate(changed(train__seq_length="x"))
    given = changed()
    given["observation"]["modalities"]["obs"]["rgb"] = 9
    with pytest.raises(ConfigError, match=r"observation\.modalities\.obs.*: robomimic has no such value"):
        translate(given)
