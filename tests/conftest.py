"""Shared fixtures. Shapes in annotations are checked at run time, so the hook comes before any import of seqrl.

They are checked where networks and losses are tested by themselves, not in whole runs, which take a third longer by it.
"""

from jaxtyping import install_import_hook

install_import_hook(["seqrl.models", "seqrl.algo"], "beartype.beartype")

import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402

import jaxtyping  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

CHECKED = ("tests/conformance/", "tests/unit/algo/", "tests/unit/models/")
"""Tests in which shapes are checked."""

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

# A shell starts what it puts into the background with Ctrl-C ignored, and tests that send it need what a terminal has.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Check shapes or not, before any fixture of the test is made."""
    jaxtyping.config.update("jaxtyping_disable", not item.nodeid.startswith(CHECKED))


@pytest.fixture(autouse=True, scope="session")
def _cache_folder(tmp_path_factory):
    """Keep the cache of ingested data out of the user's home."""
    before = os.environ.get("SEQRL_CACHE_DIR")
    os.environ["SEQRL_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["SEQRL_CACHE_DIR"]
    else:
        os.environ["SEQRL_CACHE_DIR"] = before


@pytest.fixture
def unchecked_shapes(monkeypatch):
    """Leave shapes unchecked, for tests of a thousand small gradient steps: checking takes as long as the steps."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def caplog(caplog):
    """Get what runs say: whoever listens to ``INFO`` does, in place of the terminal."""
    caplog.set_level("INFO")
    return caplog


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def registries_as_before(monkeypatch):
    """Take back what a test registers, and forget the plug-ins that it loaded."""
    import seqrl.api
    import seqrl.training.experiment  # noqa: F401  (all that registers itself when it is imported)

    loaded = set(sys.modules)
    from seqrl.algo import ALGOS
    from seqrl.configs.base_config import CONFIGS
    from seqrl.core import registry
    from seqrl.data.readers import READERS
    from seqrl.envs.experts import EXPERTS
    from seqrl.envs.suites import SUITES
    from seqrl.models.timestep_encoders.text import TEXT_FUNCTIONS

    for each in (
        *(ALGOS, CONFIGS, EXPERTS, READERS, SUITES, TEXT_FUNCTIONS),
        *(v for v in vars(registry).values() if isinstance(v, registry.Registry)),
    ):
        monkeypatch.setattr(each, "_entries", dict(each._entries))
        monkeypatch.setattr(each, "sections", dict(each.sections))
    yield
    for name in [n for n in set(sys.modules) - loaded if n.startswith("seqrl_plugin_")]:
        del sys.modules[name]
