"""The policy head and the critics that the config sections describe."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

from seqrl.configs.sections.agent import CriticSection
from seqrl.configs.sections.algo import PolicySection
from seqrl.core.errors import ConfigError, RegistryError
from seqrl.core.registry import ACTORS, CRITICS, Choice, Registry
from seqrl.core.spaces import ActionCodec, ObsSpec
from seqrl.models.actors import Actor
from seqrl.models.critics import Critics, StateActionCritics, StateCritics
from seqrl.models.distributions import build_head

T = TypeVar("T")


def build_actor(
    d_input: int,
    section: PolicySection,
    obs: Mapping[str, ObsSpec],
    codec: ActionCodec,
    num_policies: int | None = None,
    d_latent: int = 0,
    auto: Mapping[str, Choice] | None = None,
) -> Actor:
    """Return the policy head that the sections ``actor`` and ``distribution`` describe.

    Args:
        d_input: Width of the memory's output.
        section: Of the algorithm.
        obs: What the policy sees.
        codec: Of its actions.
        num_policies: Distributions per input, one per discount or step of a chunk; None for a single one.
        d_latent: Width of a latent vector beside the memory's output.
        auto: Kind of action -> the distribution that ``auto`` means, where it is not the usual one.

    Raises:
        ConfigError: If ``algo.actor.obs_keys`` names an entry that the policy does not see, or ``algo.actor.network`` a
            class that is not registered.
    """
    options = section.actor.options()
    keys, name = options.pop("obs_keys"), options.pop("network")
    if missing := sorted(set(keys) - obs.keys()):
        raise ConfigError(f"algo.actor.obs_keys: {', '.join(missing)} not among the observations {', '.join(obs)}")
    chosen = section.distribution.choice()
    if chosen[0] == "auto" and auto is not None:
        chosen = auto.get(codec.kind, chosen)
    head = build_head(*chosen, codec)
    given = {"obs": {k: obs[k] for k in keys}, "num_policies": num_policies, **options}
    made: type[Actor] = _registered(ACTORS, name, "algo.actor")
    return _made("algo.actor", made, (d_input + d_latent, head), given)


def critic_class(section: CriticSection, codec: ActionCodec) -> type[Critics]:
    """Return the class that ``algo.critic.network`` names; ``mlp`` judges all actions at once if there is one factor.

    Raises:
        ConfigError: If no such class is registered, or it gives the values of all actions, and the space has not one
            discrete factor.
    """
    if section.network == "mlp":
        return StateCritics if len(codec.factors) == 1 else StateActionCritics
    found: type[Critics] = _registered(CRITICS, section.network, "algo.critic")
    if issubclass(found, StateCritics) and len(codec.factors) != 1:
        raise ConfigError(
            f"algo.critic.network: {section.network!r} gives the values of all actions, which needs a Discrete space, "
            f"not {codec.space!r}"
        )
    return found


def build_critics(
    cls: type[Critics], d_state: int, section: CriticSection, codec: ActionCodec, discounts: Tensor, **more: Any
) -> Critics:
    """Return an ensemble of critics of a class.

    Args:
        cls: Of :func:`critic_class`.
        d_state: Width of the memory's output.
        section: Sizes.
        codec: Of the actions.
        discounts: ``(G,)``.
        more: Further arguments of critics that take the action as an input.
    """
    options = section.options()
    del options["network"]
    if issubclass(cls, StateCritics):
        return _made("algo.critic", cls, (d_state, codec.dim, len(discounts)), options)
    given = {"num_active": len(codec.factors) or None, "d_out": 1, **options, **more}
    return _made("algo.critic", cls, (d_state, codec.dim, discounts), given)


def check_networks(owner: Any, nets: nn.ModuleDict) -> None:
    """Refuse networks of an algorithm that are not among its ``nets``: nothing trains, saves or moves them.

    Raises:
        ConfigError: That names the attribute.
    """
    known = {id(parameter) for parameter in nets.parameters()}
    for name, value in vars(owner).items():
        if any(p.requires_grad and id(p) not in known for p in _parameters_in(value)):
            raise ConfigError(
                f"{type(owner).__name__}.{name} is not in self.nets, so it would be neither trained nor saved: put it "
                "there in _create_networks, or call requires_grad_(False) on it if it is fixed"
            )


def _parameters_in(value: Any) -> Iterator[nn.Parameter]:
    if isinstance(value, nn.Module):
        yield from value.parameters()
    elif isinstance(value, nn.Parameter):
        yield value
    elif isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _parameters_in(each)


def _registered(registry: Registry[Any], name: str, key: str) -> Any:
    try:
        return registry.get(name)
    except RegistryError as error:
        raise ConfigError(f"{key}.network: {error}") from None


def _made(key: str, cls: type[T], args: tuple[Any, ...], given: dict[str, Any]) -> T:
    """Return an object of a class; arguments that it does not take, or gets anyway, are an error in words."""
    kwargs = given.pop("kwargs")
    if twice := sorted(kwargs.keys() & given.keys()):
        raise ConfigError(f"{key}.kwargs: {', '.join(twice)} cannot be set there: seqrl or {key} sets it")
    name = getattr(cls, "__name__", repr(cls))
    try:
        inspect.signature(cls).bind(*args, **given, **kwargs)
    except TypeError as error:
        raise ConfigError(f"{key}: {name} does not accept its arguments: {error}") from None
    try:
        return cls(*args, **given, **kwargs)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):  # of the constructor that **options are passed to
            raise
        raise ConfigError(f"{key}: {name} does not accept its arguments: {error}") from error
