"""Name -> object tables behind every ``type`` key and every ``register_*`` decorator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar

from seqrl.core.errors import RegistryError, did_you_mean

T = TypeVar("T")

Choice = tuple[str, dict[str, Any]]
"""A registered component and its options, as a component that contains others is given them."""


@dataclass(frozen=True)
class _Lazy:
    """An entry whose module is not imported yet: ``module:attribute``."""

    target: str

    def resolve(self) -> Any:
        """Import the module, and return the attribute."""
        module, _, attribute = self.target.partition(":")
        return getattr(import_module(module), attribute)


class Registry(Generic[T]):
    """A table of named components of one kind.

    Args:
        kind: What the names stand for, as it reads in an error message ("memory").

    Attributes:
        sections: Name -> config section class of the component, where it has a typed one.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.sections: dict[str, type] = {}
        self._entries: dict[str, T | _Lazy] = {}

    def register(self, name: str, *, section: type | None = None) -> Callable[[Any], Any]:
        """Return a decorator that files its object under ``name`` and returns it unchanged.

        Args:
            name: Registry key, snake_case.
            section: Config section of a plug-in component; derived from its keyword-only arguments if None.

        Raises:
            RegistryError: If ``name`` is taken by another object.
        """

        def decorate(entry: Any) -> Any:
            self._file(name, entry)
            if section is not None:
                self.register_section(name)(section)
            return entry

        return decorate

    def register_lazy(self, name: str, target: str) -> None:
        """File under ``name`` what is imported when it is first asked for, as gymnasium's entry points are.

        Args:
            name: Registry key.
            target: ``module:attribute``.

        Raises:
            RegistryError: If ``name`` is taken by another object.
        """
        self._file(name, _Lazy(target))

    def _file(self, name: str, entry: Any) -> None:
        taken = self._entries.get(name)
        if taken is not None and not _same_definition(taken, entry):
            raise RegistryError(f"{self.kind} {name!r} is already registered, by {_origin(taken)}; choose another name")
        if taken is None or not isinstance(entry, _Lazy):
            self._entries[name] = entry

    def register_section(self, name: str) -> Callable[[Any], Any]:
        """Return a decorator that files a config section class for the component ``name``."""

        def decorate(section: Any) -> Any:
            taken = self.sections.get(name)
            if taken is not None and not _same_definition(taken, section):
                raise RegistryError(f"the section of {self.kind} {name!r} is already registered")
            self.sections[name] = section
            return section

        return decorate

    def get(self, name: str) -> T:
        """Return the entry ``name``.

        Raises:
            RegistryError: If there is none; the message lists the names and the nearest one.
        """
        if name not in self._entries:
            raise RegistryError(self.unknown(name))
        entry = self._entries[name]
        if isinstance(entry, _Lazy):
            entry = self._entries[name] = entry.resolve()
        return entry

    def unknown(self, name: str) -> str:
        """Return the text of the error for an unknown name."""
        legal = self.names()
        return (
            f"unknown {self.kind} {name!r}{did_you_mean(name, legal) or ';'} registered: {', '.join(legal) or 'none'}"
        )

    def names(self) -> list[str]:
        """Return all names, sorted, of entries and of sections whose code is not imported yet."""
        return sorted(self._entries.keys() | self.sections.keys())

    def __contains__(self, name: object) -> bool:
        """Tell whether an entry of that name exists."""
        return name in self._entries


def _origin(entry: Any) -> str:
    if isinstance(entry, _Lazy):
        return entry.target.replace(":", ".")
    return f"{getattr(entry, '__module__', '?')}.{getattr(entry, '__qualname__', entry)}"


def _same_definition(a: Any, b: Any) -> bool:
    """Tell whether b is a re-import of a (a plug-in file loaded twice), not a rival."""
    return a is b or ((isinstance(a, _Lazy) or hasattr(a, "__qualname__")) and _origin(a) == _origin(b))


# Registries that both configuration and the layers above it name live here.
SEQUENCE_ENCODERS: Registry[Any] = Registry("memory")
TIMESTEP_ENCODERS: Registry[Any] = Registry("timestep encoder")
DISTRIBUTIONS: Registry[Any] = Registry("distribution")
ACTORS: Registry[Any] = Registry("actor")
CRITICS: Registry[Any] = Registry("critic")
DENOISERS: Registry[Any] = Registry("denoiser")
FILTERS: Registry[Any] = Registry("filter")
SAMPLERS: Registry[Any] = Registry("sampler")
RELABELERS: Registry[Any] = Registry("relabeler")
EXPLORATIONS: Registry[Any] = Registry("exploration")
ATTENTIONS: Registry[Any] = Registry("attention back-end")
ATTENTION_SCORES: Registry[Any] = Registry("attention score")
MODALITIES: Registry[Any] = Registry("modality")
IMAGE_CORES: Registry[Any] = Registry("image core")
IMAGE_RANDOMIZERS: Registry[Any] = Registry("image randomizer")
LOGGERS: Registry[Any] = Registry("logger")
METRICS: Registry[Any] = Registry("offline metric")
