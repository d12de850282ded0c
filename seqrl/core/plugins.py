"""Loading of plug-ins: files named by the user, and installed packages that announce themselves."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from seqrl.core.errors import ConfigError

ENTRY_POINT_GROUP = "seqrl.plugins"
Plugins = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def listed_plugins(values: Mapping[str, Any], place: str = "") -> list[str]:
    """Return the plug-ins that a run file lists.

    Raises:
        ConfigError: If they are no list; ``place`` comes before its message.
    """
    listed = values.get("plugins") or []
    if not isinstance(listed, list):
        raise ConfigError(f"{place}plugins: must be a list of files or modules, got {listed!r}")
    return list(map(str, listed))


def plugin_names(given: Plugins) -> list[str]:
    """Return files or modules; one that is given by itself is a list of one."""
    return [os.fspath(name) for name in ([given] if isinstance(given, str | os.PathLike) else given)]


def load_plugins(names: Plugins) -> list[str]:
    """Import installed plug-ins (entry-point group ``seqrl.plugins``), then those named.

    Args:
        names: Paths of Python files, or names of importable modules; or a single one.

    Returns:
        Their names.

    Raises:
        ConfigError: If one does not exist, a file is not Python, or an installed one cannot be imported. An error of
            the code of one that is named is not caught.
    """
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            entry.load()
        except Exception as error:
            package = f" of the package {entry.dist.name}" if entry.dist else ""
            raise ConfigError(
                f"the installed plug-in {entry.value!r}{package} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    listed = plugin_names(names)
    for name in listed:
        if name.endswith(".py"):
            _load_file(Path(name))
        else:
            _load_module(name)
    return listed


def are_loaded(names: Iterable[str]) -> bool:
    """Tell whether plug-ins of these names have been imported, files from whatever folder."""
    return all(any(_is_of(name, module) for module in sys.modules) for name in names)


def names_foreign_module(env_id: str) -> str | None:
    """Return the module that a ``module:Env-v0`` id would import, or None; data and checkpoints must not cause that."""
    module, colon, _ = env_id.partition(":")
    return module if colon and module not in sys.modules else None


def _is_of(name: str, module: str) -> bool:
    prefix = _module_prefix(Path(name))
    return module[:-8] == prefix if name.endswith(".py") else module == name


def _module_prefix(path: Path) -> str:
    return f"seqrl_plugin_{path.stem}_"


def _load_file(path: Path) -> None:
    if not os.path.isfile(path):  # also if the name is too long for one
        raise ConfigError(f"plug-in {str(path)!r} does not exist (looked in {Path.cwd()})")
    path = path.resolve()
    module_name = f"{_module_prefix(path)}{hashlib.sha1(str(path).encode()).hexdigest()[:8]}"
    if module_name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"plug-in {str(path)!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[module_name]
        raise ConfigError(f"plug-in {error.filename}, line {error.lineno}: {error.msg}") from error
    except BaseException:
        del sys.modules[module_name]
        raise


def _load_module(name: str) -> None:
    file = "its __init__.py" if os.path.isfile(os.path.join(name, "__init__.py")) else "a .py file in it"
    folder = f"plug-in {name!r} is a folder; name {file}" if os.path.isdir(name) else None
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(folder or f"plug-in {name!r} is not a module")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigError(folder or f"plug-in {name!r} is neither a .py file nor an importable module") from error
        raise
    if folder and module.__spec__ is not None and module.__spec__.origin is None:  # it has no __init__.py, so no code
        raise ConfigError(folder)
