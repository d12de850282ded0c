"""Whatever JSON stands anywhere in a run file: a config that can be written and read again, or a message."""

import json
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from seqrl.configs import config_factory
from seqrl.core.errors import SeqrlError

NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.text(max_size=9)
    | st.sampled_from(["gru", "auto", "seqrl/TMazePassive-v0"])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
)


def paths(values: dict, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from paths(value, (*prefix, key))


PATHS = {name: list(paths(config_factory(name).to_json())) for name in ("bc", "actor_critic", "iql")}


@given(data=st.data())
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_any_values_are_a_config_or_a_message(data):
    name = data.draw(st.sampled_from(sorted(PATHS)))
    values: dict = {}
    for _ in range(data.draw(st.integers(1, 4))):
        *parents, key = data.draw(st.sampled_from(PATHS[name]))
        node = values
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                break
        else:
            node[key] = data.draw(VALUES)
    try:
        config = config_factory(name, values)
    except SeqrlError:
        return
    assert config_factory(name, json.loads(json.dumps(config.to_json(), allow_nan=False))) == config
