"""Where what seqrl can make again is kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

from seqrl.core.errors import DataError


def cache_folder() -> Path:
    """Return the folder of cached stores: ``SEQRL_CACHE_DIR``, else ``seqrl`` in the user's cache folder.

    Raises:
        DataError: If neither is set, and the user has no home, as in some containers.
    """
    if "SEQRL_CACHE_DIR" in os.environ:
        return Path(os.environ["SEQRL_CACHE_DIR"])
    try:
        return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "seqrl"
    except RuntimeError as error:
        raise DataError(
            f"there is no folder for cached data: this user has no home ({error}); set SEQRL_CACHE_DIR to a folder"
        ) from error
