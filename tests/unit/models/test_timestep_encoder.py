"""What one step looks like to the network: order, one-hots, widths, and the statistics of the inputs."""

import pytest
import torch

from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError, RegistryError
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.timestep_encoders import MLPTimestepEncoder, build_timestep_encoder

B, L, A = 2, 3, 4
SPECS = {
    "room": ObsSpec((), "int64", (5,)),
    "image": ObsSpec((2, 2, 3), "uint8"),
    "digits": ObsSpec((2,), "int64", (3, 4)),
    "body": ObsSpec((6,), "float32"),
}
WIDTH = 5 + 12 + 7 + 6


def _inputs(seed=0, specs=SPECS):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda high, *shape: torch.randint(0, high, (B, L, *shape), generator=generator)  # noqa: E731
    obs = {
        "room": draw(5),
        "image": draw(256, 2, 2, 3).to(torch.uint8),
        "digits": torch.stack([draw(3), draw(4)], dim=-1),
        "body": torch.randn(B, L, 6, generator=generator),
    }
    return SeqInputs(
        obs={k: obs[k] for k in specs},
        prev_action=torch.randn(B, L, A, generator=generator),
        prev_reward=torch.randn(B, L, generator=generator),
        step=torch.arange(L).expand(B, L),
    )


def _identity_encoder(specs, d_action, d_reward):
    """Return an encoder whose output is its input features."""
    return MLPTimestepEncoder(
        specs, d_action, d_reward, num_layers=0, d_output=None, norm="none", normalize_inputs=False
    )


def test_without_a_width_there_is_no_layer():
    encoder = _identity_encoder(SPECS, A, 1)
    assert (encoder.d_output, list(encoder.parameters())) == (WIDTH + 1 + A, [])
    with pytest.raises(ConfigError, match="num_layers must be 0, got 2"):
        config_factory("bc", {"observation": {"timestep_encoder": {"type": "mlp", "d_output": None}}})


def test_features_are_sorted_flat_and_one_hot_with_the_side_input_last():
    inputs = _inputs()
    out = _identity_encoder(SPECS, A, 1)(inputs)
    assert out.shape == (B, L, WIDTH + 1 + A)
    for b in range(B):
        for t in range(L):
            room, digits = inputs.obs["room"][b, t], inputs.obs["digits"][b, t]
            expected = [
                *inputs.obs["body"][b, t].tolist(),
                *[float(i == digits[0]) for i in range(3)],
                *[float(i == digits[1]) for i in range(4)],
                *[float(x) for x in inputs.obs["image"][b, t].reshape(-1)],
                *[float(i == room) for i in range(5)],
                inputs.prev_reward[b, t].item(),
                *inputs.prev_action[b, t].tolist(),
            ]
            assert out[b, t].tolist() == pytest.approx(expected)


def test_order_of_the_dict_is_irrelevant():
    inputs = _inputs()
    reverse = SeqInputs(
        obs=dict(reversed(inputs.obs.items())),
        prev_action=inputs.prev_action,
        prev_reward=inputs.prev_reward,
        step=inputs.step,
    )
    first = MLPTimestepEncoder(SPECS, A, 1, d_hidden=16, d_output=8)
    second = MLPTimestepEncoder(dict(reversed(SPECS.items())), A, 1, d_hidden=16, d_output=8)
    second.load_state_dict(first.state_dict())
    mask = torch.ones(B, L, dtype=torch.bool)
    assert torch.equal(first(inputs), second(reverse))
    assert torch.equal(first.stats(inputs, mask)["inputs"], second.stats(reverse, mask)["inputs"])


@pytest.mark.parametrize(("d_action", "d_reward"), [(0, 0), (A, 0), (0, 1), (A, 1)])
def test_width_and_influence_of_the_side_input(d_action, d_reward):
    torch.manual_seed(0)
    encoder = MLPTimestepEncoder(SPECS, d_action, d_reward, d_hidden=16, d_output=8)
    assert encoder.mlp[0].in_features == WIDTH + d_action + d_reward
    inputs = _inputs()
    base = encoder(inputs)
    assert base.shape == (B, L, 8)
    for name, reads in (("prev_action", d_action), ("prev_reward", d_reward)):
        values = {"prev_action": inputs.prev_action, "prev_reward": inputs.prev_reward}
        values[name] = values[name] + 1.0
        changed = encoder(SeqInputs(obs=inputs.obs, step=inputs.step, **values))
        assert torch.equal(changed, base) == (not reads)


def test_positions_do_not_mix():
    torch.manual_seed(0)
    encoder, inputs = MLPTimestepEncoder(SPECS, A, 1, d_hidden=16, d_output=8), _inputs()
    base = encoder(inputs)
    body = inputs.obs["body"].clone()
    body[0, 1] += 1.0
    moved = encoder(SeqInputs({**inputs.obs, "body": body}, inputs.prev_action, inputs.prev_reward, inputs.step))
    assert (moved != base).any(-1).tolist() == [[False, True, False], [False] * 3]


def test_unread_entries_are_ignored():
    specs = {"body": SPECS["body"]}
    encoder, inputs = MLPTimestepEncoder(specs, 0, 0, d_hidden=16, d_output=8), _inputs()
    alone = SeqInputs({"body": inputs.obs["body"]}, inputs.prev_action, inputs.prev_reward, inputs.step)
    assert torch.equal(encoder(inputs), encoder(alone))


def test_scalar_and_matrix_entries_are_flattened():
    specs = {"temperature": ObsSpec(()), "grid": ObsSpec((2, 3))}
    inputs = SeqInputs(
        obs={"temperature": torch.full((1, 1), 7.0), "grid": torch.arange(6.0).reshape(1, 1, 2, 3)},
        prev_action=torch.zeros(1, 1, 1),
        prev_reward=torch.zeros(1, 1),
        step=torch.zeros(1, 1, dtype=torch.int64),
    )
    assert _identity_encoder(specs, 0, 0)(inputs).tolist() == [[[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0]]]


def test_statistics_move_in_update_only():
    encoder, inputs = MLPTimestepEncoder(SPECS, A, 1, d_hidden=16, d_output=8), _inputs()
    mask = torch.tensor([[True, True, False], [True, False, False]])
    before = {k: v.clone() for k, v in encoder.state_dict().items()}
    encoder.train()
    encoder(inputs)
    stats = encoder.stats(inputs, mask)
    assert all(torch.equal(v, before[k]) for k, v in encoder.state_dict().items())
    assert stats["inputs"].shape == (2, WIDTH + A + 1 + 1)
    encoder.update(stats)
    body = inputs.obs["body"][mask].mean(0)
    torch.testing.assert_close(encoder.normalizer.mean[:6], 0.5 * body, rtol=1e-3, atol=1e-4)


def test_without_normalisation_there_are_no_statistics():
    encoder = MLPTimestepEncoder(SPECS, A, 1, d_hidden=16, d_output=8, normalize_inputs=False)
    assert encoder.stats(_inputs(), torch.ones(B, L, dtype=torch.bool)) == {}
    encoder.update({})
    assert not list(encoder.buffers())


def test_built_by_name_with_its_options():
    encoder = build_timestep_encoder("mlp", {"d_output": 24, "num_layers": 1, "d_hidden": 10}, SPECS, A, 1)
    assert encoder.d_output == 24
    assert [m.out_features for m in encoder.mlp if hasattr(m, "out_features")] == [10, 24]
    with pytest.raises(RegistryError, match=r"'mpl'.*mlp"):
        build_timestep_encoder("mpl", {}, SPECS, A, 1)


def test_only_the_named_entries_are_read():
    encoder, inputs = MLPTimestepEncoder(SPECS, A, 1, d_hidden=16, d_output=8, obs_keys=["room", "body"]), _inputs()
    assert list(encoder.obs) == ["body", "room"]
    assert encoder.mlp[0].in_features == 6 + 5 + 1 + A
    other = SeqInputs(_inputs(seed=1).obs, inputs.prev_action, inputs.prev_reward, inputs.step)
    both = {**other.obs, "room": inputs.obs["room"], "body": inputs.obs["body"]}
    same = SeqInputs(both, inputs.prev_action, inputs.prev_reward, inputs.step)
    assert torch.equal(encoder(inputs), encoder(same))
    assert not torch.equal(encoder(inputs), encoder(other))
    only_side = MLPTimestepEncoder(SPECS, A, 0, d_hidden=16, d_output=8, obs_keys=[])
    assert only_side.mlp[0].in_features == A


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            ["body", "rom"],
            r"timestep_encoder.obs_keys: unknown observation 'rom'; did you mean 'room'\?; the policy obs",
        ),
        ([], r"timestep_encoder.obs_keys: \[\] leaves nothing to read"),
    ],
)
def test_wrong_names_of_entries(keys, expected):
    with pytest.raises(ConfigError, match=expected):
        MLPTimestepEncoder(SPECS, 0, 0, obs_keys=keys)


@pytest.mark.parametrize(
    ("d_hidden", "width", "expected"), [(16, 30, 30), (64, 30, 64), (16, 5000, 2048), (4096, 5000, 4096)]
)
def test_width_follows_the_inputs(d_hidden, width, expected):
    specs = {"x": ObsSpec((width,))}
    encoder = MLPTimestepEncoder(specs, 0, 0, d_hidden=d_hidden, d_output=8, num_layers=1, auto_scale=True)
    assert [m.out_features for m in encoder.mlp if hasattr(m, "out_features")] == [expected, 8]
    fixed = MLPTimestepEncoder(specs, 0, 0, d_hidden=d_hidden, d_output=8, num_layers=1)
    assert fixed.mlp[0].out_features == d_hidden


# ------------------------------------------------------------------------------------------------ auto
def test_auto_is_an_mlp_where_nothing_is_an_image():
    options = {"num_layers": 1, "d_hidden": 8, "d_output": 6, "auto_scale": True, "obs_keys": ["room", "image"]}
    torch.manual_seed(0)
    auto = build_timestep_encoder("auto", options, SPECS, A, 1)
    torch.manual_seed(0)
    mlp = build_timestep_encoder("mlp", options, SPECS, A, 1)
    assert type(auto) is MLPTimestepEncoder
    assert torch.equal(auto(_inputs()), mlp(_inputs()))


@pytest.mark.parametrize(("size", "core"), [(96, "NatureCore"), (36, "NatureCore"), (20, "DrQCore")])
def test_auto_reads_images_by_convolutions(size, core):
    specs = {"camera": ObsSpec((size, size, 3), "uint8"), "body": ObsSpec((6,)), "grid": ObsSpec((7, 7, 3), "uint8")}
    auto = build_timestep_encoder("auto", {"d_output": 6, "normalize_inputs": False}, specs, 0, 0)
    kinds = {m.name: type(m).__name__ for m in auto.modalities}
    assert kinds == {"body": "VectorModality", "camera": "ImageModality", "grid": "VectorModality"}
    assert type(auto.modalities[1].reader.core).__name__ == core
    assert auto.modalities[0].normalizer is None
    cube = build_timestep_encoder("auto", {}, {"voxels": ObsSpec((20, 20, 20), "uint8")}, 0, 0)
    assert type(cube) is MLPTimestepEncoder
    only = build_timestep_encoder("auto", {"obs_keys": ["body"]}, specs, 0, 0)
    assert type(only) is MLPTimestepEncoder
    with pytest.raises(ConfigError, match="unknown observation 'bod'; did you mean 'body'"):
        build_timestep_encoder("auto", {"obs_keys": ["bod"]}, specs, 0, 0)
