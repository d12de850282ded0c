"""Typed config sections, and fields that hold the sections of registered components."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import CoreSchema, core_schema

from seqrl.core.errors import ConfigError
from seqrl.core.registry import Choice, Registry

FOLDER_NAME = r"^\.*[\w+=-][\w.+=-]*$"
"""Names that a folder may have: letters, digits and _ . + = -, and not dots alone."""


class Section(BaseModel):
    """Base of all sections: unknown keys and ill-typed assignments are errors.

    Attributes:
        refused: Key that others know -> why there is none of that name here.
    """

    refused: ClassVar[Mapping[str, str]] = MappingProxyType({})
    model_config = ConfigDict(
        extra="forbid", strict=True, validate_assignment=True, allow_inf_nan=False, protected_namespaces=()
    )

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign a field; a value that is refused leaves the old one."""
        before = self.__dict__.get(name)
        try:
            super().__setattr__(name, value)
        except ValidationError:
            if name in self.__dict__:
                self.__dict__[name] = before
            raise

    def options(self) -> dict[str, Any]:
        """Return the fields of a component's section as keyword arguments for its class (all but ``type``).

        The section of a component within it becomes a :data:`~seqrl.core.registry.Choice`.
        """
        return {name: _plain(getattr(self, name)) for name in type(self).model_fields if name != "type"}

    def choice(self) -> Choice:
        """Return a component's section as its registered name and its options.

        Raises:
            ConfigError: If the section is not a component's, so it has no ``type``.
        """
        if "type" not in type(self).model_fields:
            raise ConfigError(f"{type(self).__name__} is not the section of a registered component: it has no 'type'")
        return self.__dict__["type"], self.options()

    def to_values(self) -> dict[str, Any]:
        """Return the section as nested dicts, lists and scalars, each component's fields included."""
        return self.model_dump(serialize_as_any=True)


def _plain(value: Any) -> Any:
    """Return an option with the components' sections in it as type and options."""
    if isinstance(value, Section) and "type" in type(value).model_fields:
        return value.choice()
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value


class Component:
    """Marks a field that holds the section of one registered component, chosen by its ``type`` key.

    A field is ``Annotated[Section, Component(registry)]``, or a list or a dict with names of such.
    """

    def __init__(self, registry: Registry[Any]) -> None:
        self.registry = registry

    def section(self, name: str) -> type[Section]:
        """Return the section class of the component ``name``.

        Raises:
            ConfigError: If no such component is registered.
        """
        if name in self.registry.sections:
            return self.registry.sections[name]
        if name not in self.registry:
            raise ConfigError(self.registry.unknown(name))
        section = _derived_section(name, self.registry.get(name))
        self.registry.register_section(name)(section)
        return section

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Accept only sections of registered components, also on assignment."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, section: Section | None) -> Section | None:
        if section is not None and type(section) not in self.registry.sections.values():
            raise ValueError(f"must be the section of a registered {self.registry.kind}, got {type(section).__name__}")
        return section

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        """Describe the field as one of the registered sections, for editors."""
        options = [self.section(name).model_json_schema() for name in self.registry.names()]
        is_optional = schema.get("type") == "nullable" or "nullable" in str(schema.get("schema", {}).get("type"))
        return {"anyOf": [*options, {"type": "null"}] if is_optional else options or [{"type": "object"}]}


def _derived_section(name: str, component: Any) -> type[Section]:
    """Make a section from the annotated keyword-only arguments of a plug-in's class or function."""
    function = component.__init__ if inspect.isclass(component) else component
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    options: dict[str, Any] = {
        p.name: (hints.get(p.name, Any), ... if p.default is inspect.Parameter.empty else p.default)
        for p in parameters
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    options["type"] = (typing.Literal[name], name)
    return create_model(f"{component.__name__}Section", __base__=Section, **options)
