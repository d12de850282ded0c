"""The pages for those who come from elsewhere name everything of theirs, and keys, commands and ids that are here."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import gymnasium as gym
import pytest
from pydantic import BaseModel

import seqrl  # noqa: F401  (registers its environments)
from seqrl.__main__ import module_of
from seqrl.configs import get_all_registered_configs
from seqrl.core import registry
from seqrl.core.registry import Registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / f"coming_from_{name}.md" for name in ("amago", "robomimic")]
TOP = ("experiment", "env", "train", "collect", "observation", "algo")
WORD = re.compile(r"--[a-z][a-z_-]*|\w+")
ELSEWHERE = {"torchrun", "accelerate", "launch", "python", "help"}

AMAGO = (
    # agents and policy distributions
    "Agent trunk REDQ DPG k_a "
    "num_critics num_critics_td online_coeff offline_coeff critic_loss_weight gamma reward_multiplier tau "
    "fake_filter num_actions_for_value_in_critic_loss num_actions_for_value_in_actor_loss fbc_filter_func popart "
    "use_target_actor use_multigamma n_step actor_type critic_type pass_obs_keys_to_actor MultiTaskAgent "
    "NCriticsTwoHot DiscreteLikeContinuous temperature Multigammas binary_filter threshold exp_filter beta clips "
    "leaky_relu_filter nstep_return get_values edit_actor_mask edit_critic_mask init_extra_networks "
    "on_checkpoint_loaded is_resume get_grad_norms BaseAgent register_agent infinite-bootstrap Discrete clipping "
    "TanhGaussian std GMM Beta Multibinary PolicyOutput",
    # sequence models
    "identity ff rnn transformer mamba register_traj_encoder hidden-state d_model n_heads d_ff n_layers dropout_ff "
    "dropout_emb dropout_attn dropout_qkv pos_emb fixed learnable rope norm sigma_reparam normformer_norms "
    "head_scaling KV-cache roll-back Vanilla Flash window_size FlexAttention VanillaFlex SlidingWindowFlex "
    "ClippedSlidingSink logit_clip sink_size sink_bias d_state d_conv expand recurrent TformerTrajEncoder "
    "MambaTrajEncoder GRUTrajEncoder FFTrajEncoder attention_type",
    # timestep encoders and nets
    "FFTstepEncoder CNNTstepEncoder d_hidden normalize_inputs InputNorm specify_obs_keys auto_scale Nature IMPALA DrQ "
    "Gridworld drqv2_aug aug_pct_of_batch channels_first last hide_rl2s hide_rewards FF Token cnn_type "
    "cnn_block_depths post_group_norm img_features rl2_features d_output out_norm obs_key MLP FFBlock layer batch RMS "
    "SimNorm hypersphere activation rational symlog symexp PopArt Actor ResidualActor NCritics min_return max_return "
    "output_bins use_symlog label_type twohot hlgauss sigma",
    # exploration
    "egreedy bilevel randomize_eps registry schedule sample_actions_train sample_actions_val eps_start eps_end "
    "steps_anneal rollout_horizon",
    # Experiment
    "run_name ckpt_base_dir max_seq_len dataset tstep_encoder_type traj_encoder_type agent_type make_train_env "
    "make_val_env traj_save_len stagger_traj_file_lengths padded_sampling left right both save_trajs_as npz "
    "npz-compressed traj dloader_workers parallel_actors env_mode async sync already_vectorized async_env_mp_context "
    "exploration_wrapper_type sample_actions force_reset_train_envs_every list-of-envs start_learning_at_epoch "
    "start_collecting_at_epoch train_timesteps_per_epoch train_batches_per_epoch val_interval val_timesteps_per_epoch "
    "ckpt_interval always_save_latest always_load_latest has_dset_edit_rights batch_size batches_per_update "
    "learning_rate lr_warmup_steps grad_clip l2_coeff mixed_precision log_interval log_to_wandb wandb_project "
    "wandb_entity wandb_group_name verbose epochs use_config",
    # its methods
    "start learn evaluate_val evaluate_test timesteps episodes render save_trajs_to interact load_checkpoint "
    "resume_training_state load_checkpoint_from_path save_checkpoint write_latest_policy read_latest_policy "
    "delete_buffer_from_disk init_optimizer init_checkpoints init_dloaders init_dsets init_envs init_logger init_model "
    "collect_new_training_data compute_loss train_step caster policy_metrics x_axis_metrics log summary DEVICE policy "
    "AdamWRel",
    # metrics
    "Average Quintile AMAGO_LOG_METRIC FPS counts deleted GB total_frames Epoch gradient_steps losses Q ensemble "
    "target PopArt stats filter grad activations",
    # data
    "RLData RLData_pad_collate Batch RLDataset on_end_of_collection ready_for_training delete get_description "
    "sample_random_trajectory save_new_trajs_to configure random_slice load_traj_from_disk "
    "get_path_to_trajs update_dset_weights DiskTrajDataset dset_root "
    "dset_name dset_max_size dset_min_size fifo protected relabeler MixtureOfDatasets sampling_weights "
    "smooth_sudden_starts DoNothingDataset Trajectory FrozenTraj Timestep Relabeler NoOpRelabeler",
    # several processes and the command line
    "DDP switch_async_mode make_experiment_learn_only make_experiment_collect_only add_common_cli --configs --trials "
    "--agent_type --env_mode --no_log --ckpt --run_name --epochs --buffer_dir --traj_encoder --memory_size "
    "--memory_layers --batches_per_epoch --timesteps_per_epoch --val_interval --ckpt_interval --parallel_actors "
    "--dset_max_size --start_learning_at_epoch --mixed_precision --dloader_workers --batch_size --mode "
    "switch_traj_encoder switch_tstep_encoder switch_agent switch_exploration create_experiment_from_cli",
    # environments
    "AMAGOEnv dict-ify one-hot env_name SequenceWrapper EnvCreator Continuous MultiBinary space_convert "
    "AlreadyVectorizedEnv DummyAsyncVectorEnv MetaFrozenLake RoomKeyDoor dark light randomised TMazeAlt MazeRunner "
    "HalfCheetahV4 POPGym MultiDomainPOPGym MultitaskMetaBabyAI Metaworld ML1 ML10 ML45 Alchemy AtariGame ALE "
    "RetroArcade TwoAttemptMTProcgen gymnax XLand-MiniGrid",
    # examples
    "00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 lake_size k_episodes hard_mode recover_mode slip_chance "
    "hide_k_progress env eval_timesteps horizon meta_horizon room_size episode_length randomize_actions benchmark k "
    "games cnn distribution train_seeds obs_kind rooms grid_size k_shots velocities maze_size goals time_limit relabel "
    "randomized_actions policy_dist online_after_epoch ManiSkill controller demonstrator il success_only tutorial",
)

ROBOMIMIC = (
    # algorithms
    "bc l2_weight l1_weight cos_weight BC_Gaussian BC_GMM BC_VAE learned categorical gumbel BC_RNN LSTM GRU open_loop "
    "BC_RNN_GMM BC_Transformer BC_Transformer_GMM context_length supervise_all_steps pred_future_acs sinusoidal "
    "nn.Parameter bcq BCQ_GMM BCQ_Distributional perturbation cql target_q_gap deterministic_backup bc_start_steps iql "
    "quantile td3_bc gl GL_VAE ValuePlanner hbc cascade correction iris diffusion_policy DDPM DDIM EMA",
    # registry and verbs
    "register_algo_factory_func algo_factory config_factory get_all_registered_configs algo_config_to_class PolicyAlgo "
    "ValueAlgo PlannerAlgo HierarchicalAlgo _create_networks process_batch_for_training postprocess_batch_for_training "
    "train_on_batch log_info on_epoch_end on_gradient_step set_eval set_train serialize deserialize reset get_action "
    "get_state_value get_state_action_value sample_subgoals RolloutPolicy start_episode(lang=...)",
    # Config
    "Config lock lock_keys unlocked values_unlocked do_not_lock_keys dump exps/templates update_config meta hp_keys",
    # experiment
    "name validate terminal_output_to_txt log_tb log_wandb save.enabled every_n_seconds every_n_epochs save.epochs "
    "on_best_validation on_best_rollout_return on_best_rollout_success_rate epoch_every_n_steps experiment.env "
    "additional_envs experiment.render render_video keep_all_videos video_skip rollout.enabled rollout.n "
    "rollout.horizon rollout.rate warmstart terminate_on_success env_meta_update_dict ckpt_path",
    # train
    "train.data path eval lang key filter_key demo_limit weight output_dir normalize_weights_by_ds_size "
    "num_data_workers hdf5_cache_mode low_dim hdf5_use_swmr hdf5_load_next_obs hdf5_normalize_obs hdf5_filter_key "
    "hdf5_validation_filter_key seq_length frame_stack pad_seq_length pad_frame_stack dataset_keys action_keys "
    "action_config min_max gaussian rot_conversion goal_mode cuda batch_size num_epochs seed max_grad_norm "
    "optimizer_type adam adamw multistep linear cosine warmup L2",
    # observations and data
    "rgb depth scan Modality processor unprocessor goal subgoal VisualCore ResNet18 ResNet50 R3M MVP CoordConv "
    "ShallowConv SpatialSoftmax SpatialMeanPool FiLM ScanCore Conv1d Crop Color GaussianNoise VISUALIZE_RANDOMIZER "
    "cores backbones randomizers CLIP data/demo_i next_obs rewards dones states mask env_args SequenceDataset "
    "MetaDataset sampler get_trajectory_at_index statistics",
    # scripts and sweeps
    "train.py --config --algo --name --dataset --debug --resume run_trained_agent.py --agent --n_rollouts --horizon "
    "--env --render --video_path --video_skip --camera_names --dataset_path --dataset_obs --seed playback_dataset.py "
    "--use-obs --use-actions --first get_dataset_info.py split_train_val.py filter_dataset_size.py "
    "dataset_states_to_obs.py dataset_states_to_obs_mp.py --shaped --camera_ --depth --done_mode --copy_rewards "
    "--copy_dones --exclude-next-obs --compress extract_action_dict.py hyperparam_helper.py "
    "generate_config_templates.py generate_paper_configs.py download_datasets.py download_momart_datasets.py "
    "setup_macros.py convert_d4rl convert_robosuite convert_roboturk_pilot robosuite_add_absolute_actions "
    "ConfigGenerator base_config_file script_file wandb_proj_name generated_config_dir add_param group values "
    "value_names hidename prepend",
    # environments, checkpoints, utils, examples
    "EnvBase reset_to get_state is_success create_for_data_processing EnvGym EnvRobosuite EnvIGMOMART "
    "FrameStackWrapper env_from_checkpoint policy_from_checkpoint config_from_checkpoint algo_name_from_checkpoint "
    "load_dict_from_checkpoint maybe_dict_from_checkpoint last.pth last_bak.pth model_epoch_N best_validation_x "
    "env_success_y TensorUtils 6d axis-angle quaternions Euler DataLogger PrintLogger warnings DownloadProgressBar "
    "macros.py macros_private.py DEBUG WANDB_ENTITY WANDB_API_KEY notebooks Dockerfile zoo train_bc_rnn.py "
    "simple_config.py simple_train_loop.py simple_obs_nets.py add_new_modality.py",
)


def rows_of(page):
    """Return (left, right) of the rows of the page's tables, without their heads."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
    assert all(len(row) == 2 for row in rows)
    return [row for row in rows if row[1] != "seqrl"]


def ours(page):
    """Return what stands in the right column of the page's tables, in code."""
    return [code for _, right in rows_of(page) for code in re.findall(r"`([^`]+)`", right)]


@cache
def words():
    """Return every word and option that occurs in the sources, and the names of run files."""
    files = [*(ROOT / "seqrl").rglob("*.py"), *(ROOT / "examples").glob("*.py")]
    templates = {file.stem for file in (ROOT / "seqrl/configs/templates").iterdir()}
    return templates | {word.rstrip("_") for file in files for word in WORD.findall(file.read_text())}


def unknown(code):
    """Return the words of a text that occur nowhere in the sources; capitals that stand for anything are left out."""
    found = WORD.findall(re.sub(r"_?(?<![a-zA-Z0-9])(NAME|NET|GAMMA|SOURCE|\d+)\b", "", code))
    return [word for word in found if word not in words() | ELSEWHERE]


def field_names():
    """Return the names of all fields of all sections, registered ones included."""
    import seqrl.training.experiment  # noqa: F401  (imports what registers sections)

    found, todo = set(), list(get_all_registered_configs().values())
    registries = [r for r in vars(registry).values() if isinstance(r, Registry)]
    todo += [section for r in registries for section in r.sections.values()]
    while todo:
        cls = todo.pop()
        for name, field in cls.model_fields.items():
            found.add(name)
            default = field.get_default(call_default_factory=True)
            if isinstance(default, BaseModel):
                todo.append(type(default))
    return found


@pytest.mark.parametrize(("page", "names"), [(PAGES[0], AMAGO), (PAGES[1], ROBOMIMIC)], ids=["amago", "robomimic"])
def test_everything_of_theirs_is_there(page, names):
    left = "\n".join(left for left, _ in rows_of(page))
    wanted = [name for group in names for name in group.split()]
    assert [n for n in wanted if not re.search(rf"(?<![\w-]){re.escape(n)}(?![a-zA-Z0-9])", left)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_row_has_an_answer_that_is_here(page):
    for left, right in rows_of(page):
        codes = re.findall(r"`([^`]+)`", right)
        assert codes or "](" in right or re.match(r"not there|not needed: \w|the same", right), left
        if right.startswith("the same"):
            codes += [c for c in re.findall(r"`([^`(]+)", left) if re.fullmatch(r"\w+", c)]
        assert [c for c in codes if unknown(c) and not (ROOT / c).exists()] == [], left
        for target in re.findall(r"\]\(([^)#]+)", right):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_keys_are_keys(page):
    names = field_names()
    keys = [code for code in ours(page) if code.split(".")[0] in TOP and "." in code]
    assert len(keys) > 20
    assert [k for k in keys if not set(k.split(".")) <= {*names, *TOP}] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_commands_and_environments_are_there(page):
    for code in ours(page):
        if match := re.match(r"seqrl ([a-z-]+)", code):
            assert import_module(module_of(match[1])).parser()
        if code.startswith("seqrl/") and code.endswith("-v0"):
            assert code in gym.registry
