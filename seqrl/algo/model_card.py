"""The README of a checkpoint's folder: what the policy is, what it scored, and how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from seqrl.configs import BaseConfig
from seqrl.version import __version__

PAGE = "README.md"
_SHOWN = ("return", "success", "score")
_TEXT = """---
library_name: seqrl
tags: {tags}
---

# `{algo}` on {task}

| | |
|---|---|
| algorithm | `{algo}` |
| memory | `{memory}`, windows of {window} steps |
| task | {task}{kwargs} |
| data | {data} |
| seed | {seed} (one run; a score over seeds needs several) |
| weights | {weights:,} |
| made with | seqrl {version} |

## Score

{score}

## Load it

```python
import seqrl

policy, _ = seqrl.policy_from_checkpoint("path/to/this/folder")  # JSON and safetensors: loading executes no code
policy.start_episode()
action = policy(observation)  # and reward=... after the first step, if the policy reads it; else it says so
```
{plugins}
`config.json` holds the run file with every setting, `spaces.json` the observation and action spaces, and `card.json`
versions, scores and checksums.
"""


def model_card(config: BaseConfig, num_weights: int, env: Mapping[str, Any], metrics: Mapping[str, float]) -> str:
    """Return the page, in Markdown with the YAML head that model hubs read.

    Args:
        config: The run file.
        num_weights: Parameters of the networks.
        env: ``id`` and ``kwargs`` of the environment, where there is one.
        metrics: The last evaluation, as it is logged.
    """
    task = str(env.get("id") or "data without an environment")
    kwargs = env.get("kwargs") or {}
    plugins = ", ".join(f"`{p}`" for p in config.plugins)
    memory = getattr(getattr(config.algo, "sequence_encoder", None), "type", "none")
    return _TEXT.format(
        tags=json.dumps(["reinforcement-learning", "seqrl", config.algo_name, memory, task]),
        algo=config.algo_name,
        task=task,
        kwargs=f" `{json.dumps(kwargs)}`" if kwargs else "",
        memory=memory,
        window=config.train.window_steps,
        data=_data(config),
        seed=config.train.seed,
        weights=num_weights,
        version=__version__,
        score=_score(metrics),
        plugins=f"\nIt needs these plug-ins: {plugins}. Pass them as `plugins=[...]`.\n" if plugins else "",
    )


def _data(config: BaseConfig) -> str:
    named = [
        f"`{source.path}`" if source.path else f"{source.episodes} episodes of the scripted expert of {source.scripted}"
        for source in config.train.data
    ]
    collected = config.collect.steps_per_epoch
    return "; ".join([*named, *(["its own episodes"] if collected else [])]) or "none"


def _score(metrics: Mapping[str, float]) -> str:
    rows = []
    for name in _SHOWN:
        if (mean := metrics.get(f"eval/{name}_mean")) is None:
            continue
        low, high = (metrics.get(f"eval/{name}_mean_{end}") for end in ("low", "high"))
        interval = f" [{low:.4g}, {high:.4g}]" if low is not None and high is not None else ""
        rows.append(f"| {name} | {mean:.4g}{interval} |")
    if not rows:
        return "It was not evaluated in an environment."
    episodes = int(metrics.get("eval/episodes", 0))
    head = f"| | mean of {episodes} episodes, 95 % interval over them |\n|---|---|\n"
    return head + "\n".join(rows)
