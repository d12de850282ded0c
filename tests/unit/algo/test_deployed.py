"""What a deployed policy takes of an observation, and what it refuses: with torch, and as an ONNX file."""

import re

import numpy as np
import pytest
import torch
from gymnasium import spaces

from seqrl.algo import RolloutPolicy, algo_factory
from seqrl.algo.export import export_onnx
from seqrl.configs import config_factory
from seqrl.core.errors import DataError
from seqrl.core.spaces import ActionCodec, obs_specs
from seqrl.deploy import policy_from_onnx
from seqrl.training.learner import predict_cost
from tests.helpers import small_algo

ACTIONS = spaces.Box(-1.0, 1.0, (2,))
STATE = spaces.Dict(
    {
        "arm": spaces.Dict({"pos": spaces.Box(-9, 9, (3,)), "image": spaces.Box(0, 255, (4, 4, 3), np.uint8)}),
        "robot0_eef_pos": spaces.Box(-9, 9, (2,)),
        "camera": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    }
)
"""Of the data; the policy reads two of its entries."""
BYTES = spaces.Dict({"image": spaces.Box(0, 255, (16, 15, 3), np.uint8)})
FLOATS = spaces.Dict({"image": spaces.Box(0, 1, (16, 15, 3))})
KINDS = ("torch", "onnx")
EXPORTED = ("torch", pytest.param("onnx", marks=pytest.mark.slow))  # where a test exports a policy of its own
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def build(space, encoder=None, *, actions=ACTIONS, memory=None, **observation):
    torch.manual_seed(0)
    encoder = encoder or {"d_hidden": 16, "d_output": 16}
    values = {
        "observation": {"timestep_encoder": encoder, **observation},
        "train": {"window_steps": 5},
        "algo": {"sequence_encoder": memory or {"type": "gru", "d_hidden": 16}},
    }
    config = config_factory("bc", values)
    return algo_factory("bc", config, obs_specs(space), ActionCodec(actions).dim, "cpu", actions)


@pytest.fixture(scope="module")
def makers(tmp_path_factory):
    """Kind, name -> function that returns a fresh policy."""
    folder, found = tmp_path_factory.mktemp("onnx"), {}
    for name, space, observation in (
        ("state", STATE, {"keys": ["arm/pos", "robot0_eef_pos"], "use_prev_reward": True}),
        ("bytes", BYTES, {}),
        ("floats", FLOATS, {}),
    ):
        algo = build(space, **observation)
        export_onnx(algo, folder / name, space, ACTIONS)
        assert all(net.training for net in algo.nets.modules())  # as they were made
        found["torch", name] = lambda a=algo, s=space: RolloutPolicy(a, s, ACTIONS)
        found["onnx", name] = lambda f=folder / name: policy_from_onnx(f)
    return found


@pytest.fixture(params=KINDS)
def policy_of(request, makers):
    return lambda name: makers[request.param, name]()


def state(rng=None, *rows):
    rng = rng or np.random.default_rng(0)
    pos, eef = (rng.normal(size=(*rows, n)).astype(np.float32) for n in (3, 2))
    return {"arm": {"pos": pos}, "robot0_eef_pos": eef}


# ------------------------------------------------------------------------------------------ what is there
def test_only_what_the_policy_reads_is_needed(policy_of):
    camera = np.zeros((8, 8, 3), np.uint8)
    ob = state()
    full = {"camera": camera, "another": "text", **ob, "arm": {**ob["arm"], "image": camera[:4, :4]}}
    actions = [policy_of("state")(given) for given in (ob, full)]
    np.testing.assert_array_equal(*actions)
    flat = {"arm/pos": ob["arm"]["pos"], "robot0_eef_pos": ob["robot0_eef_pos"]}
    np.testing.assert_array_equal(policy_of("state")({"arm": {}, **flat}), actions[0])


def test_what_lacks_is_named_with_what_is_near(policy_of):
    ob = state()
    ob["robot0_eef_poz"] = ob.pop("robot0_eef_pos")
    text = "the observation lacks 'robot0_eef_pos'; it has .*robot0_eef_poz.*; did you mean 'robot0_eef_poz'"
    with pytest.raises(DataError, match=text):
        policy_of("state")(ob)


def test_arrays_with_negative_strides_are_read(policy_of):
    image = np.random.default_rng(0).integers(0, 256, (16, 15, 3), np.uint8)
    for turned in (image[::-1], image[..., ::-1], np.rot90(np.ascontiguousarray(np.rot90(image)))):
        copy = np.ascontiguousarray(turned)
        np.testing.assert_array_equal(*(policy_of("bytes")({"image": x}) for x in (turned, copy)))
    policy = policy_of("bytes")
    policy({"image": np.stack([image, image])[::-1]}, batched_ob=True)
    policy.reset_rows(np.array([True, False])[::-1])


# ------------------------------------------------------------------------------------- what is not finite
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_what_is_not_finite_is_refused_and_the_memory_is_as_before(policy_of, value):
    policy, other, rng = policy_of("state"), policy_of("state"), np.random.default_rng(0)
    first, second = state(rng, 2), state(rng, 2)
    bad = state(rng, 2)
    bad["arm"]["pos"] = bad["arm"]["pos"].astype(np.float64)
    bad["arm"]["pos"][1, 2] = value
    number = np.inf if value == 1e300 else value  # it is a float32 that is read
    with np.errstate(over="ignore"), pytest.raises(DataError, match=rf"'arm/pos' has {number} at \[2\] in row 1; "):
        policy(bad, batched_ob=True)
    one = {"arm": {"pos": first["arm"]["pos"][0]}, "robot0_eef_pos": first["robot0_eef_pos"][0]}
    policy(one)  # no episode of two rows had begun
    policy.start_episode()
    policy(first, batched_ob=True)
    with np.errstate(over="ignore"), pytest.raises(DataError, match="'arm/pos' has"):
        policy(bad, reward=[0.0, 0.0], batched_ob=True)
    with pytest.raises(DataError, match="reward is nan in row 1; the policy reads finite numbers only"):
        policy(second, reward=[0.0, np.nan], batched_ob=True)
    other(first, batched_ob=True)
    after = [each(second, reward=[0.0, 1.0], batched_ob=True) for each in (policy, other)]
    np.testing.assert_array_equal(*after)


def both(algo, space, actions, file):
    """Return the policy with torch, and as an ONNX file."""
    export_onnx(algo, file, space, actions)
    return RolloutPolicy(algo, space, actions), policy_from_onnx(file)


@pytest.mark.slow
def test_a_double_that_no_float_holds_is_refused_and_nothing_is_acted_on(tmp_path):
    space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    algo = build(space, {"d_hidden": 16, "d_output": 16, "normalize_inputs": False})
    for policy in both(algo, space, ACTIONS, tmp_path / "policy"):
        expected = policy(np.zeros(3))
        policy.start_episode()
        with np.errstate(over="ignore"), pytest.raises(DataError, match=r"'obs' has inf at \[0\]"):
            policy(np.array([1e39, 0, 0]))
        np.testing.assert_array_equal(policy(np.zeros(3)), expected)
        policy.start_episode()
        with pytest.raises(DataError, match="'obs' has no rows, so there is nothing to act on"):
            policy(np.zeros((0, 3)), batched_ob=True)


@pytest.mark.parametrize("kind", EXPORTED)
def test_an_action_that_is_not_finite_is_never_returned(kind, tmp_path):
    algo = build(spaces.Dict({"state": spaces.Box(-9, 9, (3,))}))
    with torch.no_grad():
        for parameter in algo.nets["actor"].parameters():
            parameter.fill_(torch.nan)
    space = spaces.Dict({"state": spaces.Box(-9, 9, (3,))})
    if kind == "onnx":
        export_onnx(algo, tmp_path / "policy", space, ACTIONS)
    policy = policy_from_onnx(tmp_path / "policy") if kind == "onnx" else RolloutPolicy(algo, space, ACTIONS)
    with pytest.raises(DataError, match=r"the policy's action is .*nan.*, which is not finite"):
        policy({"state": np.zeros(3, np.float32)})


def test_a_reward_that_is_not_read_may_be_anything(policy_of):
    policy, image = policy_of("bytes"), np.zeros((16, 15, 3), np.uint8)
    assert np.isfinite([policy({"image": image}, reward=reward) for reward in (None, np.nan)]).all()


def test_inf_is_as_far_as_can_be_where_distances_are_read():
    space = spaces.Dict({"depth": spaces.Box(0, np.inf, (16, 16)), "scan": spaces.Box(0, np.inf, (30,))})
    modalities = {
        "depth": {"type": "depth", "max_depth": 2.0, "core": {"type": "drq"}},
        "scan": {"type": "scan", "max_range": 3.0},
    }
    policy = RolloutPolicy(build(space, {"type": "multimodal", "modalities": modalities}), space)
    far = {"depth": np.full((16, 16), np.inf), "scan": np.full(30, np.nan)}
    near = {"depth": np.full((16, 16), 2.0), "scan": np.full(30, 3.0)}
    actions = []
    for ob in (far, near):
        policy.start_episode()
        actions.append(policy(ob))
    np.testing.assert_array_equal(*actions)


@pytest.mark.parametrize("kind", EXPORTED)
def test_a_nested_entry_that_is_not_read_is_not_taken_for_a_mask(kind, tmp_path):
    space = spaces.Dict(
        {"x": spaces.Box(-1, 1, (3,)), "action_mask": spaces.Tuple([spaces.MultiBinary(n) for n in (2, 3)])}
    )
    algo = build(space, keys=["x"])
    if kind == "onnx":
        export_onnx(algo, tmp_path / "policy", space, ACTIONS)
    policy = RolloutPolicy(algo, space, ACTIONS) if kind == "torch" else policy_from_onnx(tmp_path / "policy")
    given = {"x": np.zeros(3, np.float32), "action_mask": (np.ones(2, np.int8), np.ones(3, np.int8))}
    assert policy(given).shape == (2,)


@pytest.mark.parametrize("kind", EXPORTED)
def test_a_mask_that_is_forgotten_is_asked_for(kind, tmp_path):
    algo, actions = small_algo("bc", action_space=spaces.Discrete(3)), spaces.Discrete(3)
    policy = RolloutPolicy(algo, action_space=actions)
    if kind == "onnx":
        export_onnx(algo, tmp_path / "policy", policy.observation_space, actions)
        policy = policy_from_onnx(tmp_path / "policy")
    given = {name: np.zeros(spec.shape, spec.dtype) for name, spec in algo.obs.items()}
    assert policy(given, action_mask=np.array([0, 1, 0])) == 1
    with pytest.raises(DataError, match=r"the last call had an action_mask, this one has none: pass info"):
        policy(given)
    assert policy(given, action_mask=np.array([0, 0, 1])) == 2
    policy.start_episode()
    policy(given)


@pytest.mark.slow
def test_masks_by_factor_are_those_of_the_rows(tmp_path):
    space, actions = spaces.Box(-1, 1, (3,)), spaces.MultiDiscrete([3, 3])
    algo = build(space, actions=actions)
    legal = [(0, 1), (2, 2)]
    rows = [tuple(np.eye(3, dtype=np.int8)[number] for number in row) for row in legal]
    by_factor = tuple(np.stack(part) for part in zip(*rows, strict=True))
    for policy in both(algo, space, actions, tmp_path / "policy"):
        for mask in (rows, tuple(rows), by_factor, np.concatenate(by_factor, axis=1)):
            policy.start_episode()
            taken = policy(np.zeros((2, 3), np.float32), batched_ob=True, action_mask=mask)
            assert taken.tolist() == [[0, 1], [2, 2]]
        policy.start_episode()
        with pytest.raises(DataError, match="action_mask has no rows, but the observation has 2 rows"):
            policy(np.zeros((2, 3), np.float32), batched_ob=True, action_mask=[])


ROOM = {"x": spaces.Discrete(3, start=2), "y": spaces.Box(-1, 1, (2,))}
Y = np.array([0.3, -0.2], np.float32)
SAME = {
    "nested": (spaces.Dict({"b": spaces.Dict(ROOM)}), [{"b": {"x": 3, "y": Y}}, {"b/x": 3, "b/y": Y}]),
    "entry": (spaces.Dict({"y": ROOM["y"]}), [{"y": Y}, Y]),
    "array": (ROOM["y"], [Y, {"obs": Y}]),
    "tuple": (spaces.Tuple([ROOM["x"], ROOM["y"]]), [(3, Y), {"0": 3, "1": Y}]),
}
"""Name -> space, and two ways to give the same observation."""


@pytest.mark.parametrize("name", ["nested", *(pytest.param(k, marks=pytest.mark.slow) for k in SAME if k != "nested")])
def test_names_that_are_flat_already_and_single_entries_are_read_alike(name, tmp_path):
    space, given = SAME[name]
    actions, policies = [], both(build(space), space, ACTIONS, tmp_path / "policy")
    for policy in policies:
        for ob in given:
            policy.start_episode()
            actions.append(policy(ob))
    np.testing.assert_array_equal(actions[0], actions[1])
    np.testing.assert_allclose(actions[2:], actions[:2], atol=1e-6)
    if name == "nested":
        for policy in policies:
            with pytest.raises(DataError, match=r"outside its categories"):
                policy({"b/x": 1, "b/y": Y})


def test_acting_leaves_the_networks_in_the_mode_they_were_in():
    """And has no dropout in either."""
    space = spaces.Box(-1, 1, (3,))
    algo = build(space, memory={"type": "transformer", "d_model": 16, "d_ff": 16, "num_heads": 2, "dropout_ff": 0.5})
    assert algo.nets.training  # as it was made
    policy, ob = RolloutPolicy(algo, space, ACTIONS), np.ones(3, np.float32)
    actions = []
    for _ in range(2):
        policy.start_episode()
        algo.reset()
        actions += [policy(ob), algo.get_action({"obs": ob[None]})[0].numpy()]
    for action in actions[1:]:
        np.testing.assert_array_equal(action, actions[0])
    assert all(net.training for net in algo.nets.modules())
    algo.nets["trunk"].eval()  # as a user may freeze a part
    policy(ob)
    assert algo.nets.training
    assert not any(net.training for net in algo.nets["trunk"].modules())
    algo.set_eval()
    policy(ob)
    assert not any(net.training for net in algo.nets.modules())


# ------------------------------------------------------------------------------------------------ images
def test_bytes_as_an_image_of_floats_are_refused(policy_of):
    policy, image = policy_of("floats"), np.full((16, 15, 3), 0.5, np.float32)
    with pytest.raises(DataError, match=r"'image' has 127.5, but images of floats are read as numbers in \[0, 1\]"):
        policy({"image": image * 255})
    with pytest.raises(DataError, match=r"'image' has 100 in row 1, but"):
        policy({"image": np.stack([image, image * 200])}, batched_ob=True)
    policy({"image": image * 5})  # standardised images go beyond 1, too


def test_an_image_of_bytes_is_given_as_bytes(policy_of):
    policy, image = policy_of("bytes"), np.full((16, 15, 3), 7)
    for dtype in ("int64", "int8", "uint16", "bool", "float32"):
        with pytest.raises(DataError, match=rf"'image' is {dtype}, but was uint8 \(0 to 255\) in training"):
            policy({"image": image.astype(dtype)})
    policy({"image": image.astype(np.uint8)})


CNN = {"type": "cnn", "core": {"type": "drq"}}


@pytest.mark.parametrize("encoder", [{"type": "auto"}, CNN], ids=["auto", "cnn"])
def test_training_refuses_bytes_as_images_of_floats_in_its_first_batch(encoder):
    algo = build(FLOATS, encoder)
    batch = {"obs": {"image": torch.full((2, 3, 16, 15, 3), 200.0)}, "actions": torch.zeros(2, 3, 2)}
    with pytest.raises(DataError, match="the data's observation 'image' has 200, but images of floats are read as"):
        algo.process_batch_for_training(batch)
    algo.process_batch_for_training({**batch, "obs": {"image": batch["obs"]["image"] / 255}})


def test_other_numbers_are_read_where_the_scale_is_none():
    algo = build(FLOATS, {**CNN, "scale": "none"})
    numbers = torch.full((2, 3, 16, 15, 3), 200.0)
    algo.process_batch_for_training({"obs": {"image": numbers}, "actions": torch.zeros(2, 3, 2)})
    assert RolloutPolicy(algo, FLOATS)({"image": numbers[0, 0].numpy()}).shape == (2,)


# ------------------------------------------------------------------------------------------------ shapes
@pytest.mark.parametrize(
    ("shape", "is_batched", "text"),
    [
        ((3, 16, 15), False, "has shape (3, 16, 15), expected (16, 15, 3); its axes are in another order than in "
         "training, where the channels were last"),
        ((4, 15, 3, 16), True, "has shape (4, 15, 3, 16), expected (rows, 16, 15, 3); its axes are in another order"),
        ((2, 16, 15, 3), False, "expected (16, 15, 3); for several rows at once pass batched_ob=True"),
        ((16, 15, 3), True, "has shape (16, 15, 3), expected (rows, 16, 15, 3); with batched_ob=True give one row per"),
        ((16, 15), False, "has shape (16, 15), expected (16, 15, 3)$"),
        ((2, 2, 16, 15, 3), False, "has shape (2, 2, 16, 15, 3), expected (16, 15, 3)$"),
        ((), True, "has shape (), expected (rows, 16, 15, 3)$"),
    ],
)  # fmt: skip
def test_shapes_are_told_as_they_were_given(policy_of, shape, is_batched, text):
    with pytest.raises(DataError, match=re.escape(text).replace(r"\$", "$")):
        policy_of("bytes")({"image": np.zeros(shape, np.uint8)}, batched_ob=is_batched)


def test_rows_are_counted_in_english(policy_of):
    policy = policy_of("state")
    with pytest.raises(DataError, match="'robot0_eef_pos' has 1 row, but 'arm/pos' has 3"):
        policy({**state(None, 3), "robot0_eef_pos": np.zeros((1, 2), np.float32)}, batched_ob=True)
    policy(state(None, 3), batched_ob=True)
    with pytest.raises(DataError, match="the observation has 1 row, but the episode began with 3; call start_episode"):
        policy(state(), reward=0.0)
    with pytest.raises(DataError, match=r"reward has shape \(2,\), but the observation has 3 rows"):
        policy(state(None, 3), reward=[0.0, 0.0], batched_ob=True)
    with pytest.raises(DataError, match=r"rows has shape \(2,\), but the episode has 3 rows"):
        policy.reset_rows(np.array([True, False]))
    policy.start_episode()
    policy(state())
    with pytest.raises(DataError, match=r"rows has shape \(2,\), but the episode has 1 row$"):
        policy.reset_rows(np.array([True, False]))


# ------------------------------------------------------------------------------------------------- goals
OBJECT = spaces.Dict({"object": spaces.Box(-9, 9, (3,)), "room": spaces.Discrete(3, start=2)})
OB = {"object": np.zeros(3, np.float32), "room": 2}
GOAL = np.array([1.0, -2.0, 3.0], np.float32)


def with_goals(*keys):
    return RolloutPolicy(build(OBJECT, goal_keys=list(keys)), OBJECT)


def test_a_goal_is_given_apart_or_within_the_observation_or_alone():
    ways = [((OB, {"object": GOAL}), {}), (({**OB, "goal/object": GOAL},), {}), ((OB, GOAL), {})]
    ways += [(({k: np.stack([v]) for k, v in OB.items()}, {"object": GOAL[None]}), {"batched_ob": True})]
    actions = [np.ravel(with_goals("object")(*given, **options)) for given, options in ways]
    for action in actions[1:]:
        np.testing.assert_array_equal(action, actions[0])
    assert not np.array_equal(actions[0], with_goals("object")(OB, -GOAL))


def test_a_goal_that_is_a_category_counts_from_where_the_space_does():
    actions = [with_goals("room")(*given) for given in ((OB, {"room": 4}), ({**OB, "goal/room": 4},))]
    np.testing.assert_array_equal(*actions)
    with pytest.raises(DataError, match=r"goal 'room' is outside its categories \[3\]"):
        with_goals("room")(OB, {"room": 1})


@pytest.mark.parametrize(
    ("keys", "goal", "is_batched", "text"),
    [
        (("object",), None, False, "reads a goal of 'object', and none was given: pass goal={'object': ...}, or"),
        (("object",), {"object": GOAL}, True, "goal 'object' has shape (3,), expected (rows, 3); with batched_ob=True "
         "give one row per environment, goals too"),
        (("object",), {"object": GOAL[:2]}, False, "goal 'object' has shape (2,), expected (3,)"),
        (("object",), {"object": GOAL * np.nan}, False, "goal 'object' has nan at [0]; the policy reads finite"),
        (("object", "room"), GOAL, False, "goal is of type ndarray; this policy reads several: pass "
         "goal={'object': ..., 'room': ...}"),
        ((), {"object": GOAL}, False, "a goal was given, but this policy reads none"),
        ((), GOAL, False, "a goal was given, but this policy reads none"),
        (("object",), {"objects": GOAL}, False, "goal: 'objects' is not among object; did you mean 'object'"),
        (("object",), {"objects": GOAL, "room": 2}, False, "goal: 'objects' is not among object; did you mean"),
    ],
)  # fmt: skip
def test_a_goal_that_does_not_fit_is_refused(keys, goal, is_batched, text):
    ob = {k: np.stack([v] * 4) for k, v in OB.items()} if is_batched else OB
    with pytest.raises(DataError, match=re.escape(text)):
        with_goals(*keys)(ob, goal, batched_ob=is_batched)


REACH = spaces.Dict({name: spaces.Box(-9, 9, (3,)) for name in ("observation", "achieved_goal", "desired_goal")})


@pytest.mark.parametrize("keys", [None, ["observation"]])
def test_a_goal_of_gymnasium_has_either_name_and_is_read_as_one(keys):
    policy = RolloutPolicy(build(REACH, goal_keys=["achieved_goal"], keys=keys), REACH)
    ob = {name: np.zeros(3, np.float32) for name in REACH}
    wanted = policy({**ob, "desired_goal": GOAL})
    for goal in ({"achieved_goal": GOAL}, {"desired_goal": GOAL}, GOAL):
        policy.start_episode()
        np.testing.assert_array_equal(policy(ob, goal=goal), wanted)
    policy.start_episode()
    np.testing.assert_array_equal(policy(ob, goal={**ob, "achieved_goal": GOAL}), wanted)  # its own name wins
    policy.start_episode()
    assert not np.array_equal(policy(ob), wanted)
    both = RolloutPolicy(build(REACH, goal_keys=["achieved_goal", "desired_goal"], keys=keys), REACH)
    assert both(ob, goal={"achieved_goal": GOAL, "desired_goal": GOAL}).shape == (2,)


def test_rows_are_told_by_flags(policy_of):
    policy = policy_of("state")
    policy(state(None, 3), batched_ob=True)
    with pytest.raises(DataError, match="rows must be one bool for each row, got int64"):
        policy.reset_rows([0])


def test_a_blank_batch_is_no_look_at_the_images():
    algo = build(FLOATS, {"type": "auto"})
    predict_cost(algo, algo.config.train)
    with pytest.raises(DataError, match="the data's observation 'image' has 200"):
        algo.process_batch_for_training(
            {"obs": {"image": torch.full((2, 3, 16, 15, 3), 200.0)}, "actions": torch.zeros(2, 3, 2)}
        )
