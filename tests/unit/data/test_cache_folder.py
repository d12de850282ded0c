import pwd

import pytest

from seqrl.core.errors import DataError
from seqrl.data.cache_folder import cache_folder


def test_without_a_home_the_message_names_the_variable(monkeypatch, tmp_path):
    def unknown(uid):
        raise KeyError(uid)

    for name in ("SEQRL_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(DataError, match="set SEQRL_CACHE_DIR"):
        cache_folder()
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
