"""What the report says about an experiment."""

from __future__ import annotations

from pathlib import Path

from seqrl.algo.ema import num_parameters
from seqrl.configs import BaseConfig
from seqrl.core.host import read_starts
from seqrl.reports.console import format_count, format_duration
from seqrl.reports.page import Report, write_report
from seqrl.reports.series import read_metrics
from seqrl.rollout.filming import is_named
from seqrl.training.parts import Parts
from seqrl.training.progress import Progress
from seqrl.training.rendering import record_evaluation
from seqrl.training.run_log import RunLog

FILM_S = 5.0
"""Longest time that the page's animation is drawn."""


def write_run_report(config: BaseConfig, parts: Parts, progress: Progress, run_log: RunLog) -> tuple[Path, Path | None]:
    """Write ``report.html`` and the animation of a run that has ended; return their paths."""
    folder, world = parts.folder, parts.world
    animation, caption = _animation(config, parts, progress, run_log)
    memory = config.algo.sequence_encoder.choice()[0]
    task = world.env_id or world.info.source
    report = Report(
        title=folder.path.name,
        subtitle=f"{config.algo_name} with {memory} on {task}, seed {config.train.seed}, {parts.processes.device}",
        config=config.to_json(),
        rows=read_metrics(folder.metrics),
        final=progress.metrics,
        facts=_facts(parts, progress),
        animation=None if animation is None else animation.read_bytes(),
        animation_caption=caption,
        warnings=list(dict.fromkeys(progress.warnings)),
    )
    file = folder.path / "report.html"
    write_report(file, report)
    return file, animation


def _facts(parts: Parts, progress: Progress) -> dict[str, str]:
    metrics = progress.metrics
    facts = {}
    if "eval/success_mean" in metrics:
        facts["success"] = f"{metrics['eval/success_mean']:.3f}"
    if "eval/return_mean" in metrics:
        facts["mean return"] = f"{metrics['eval/return_mean']:.4g}"
    facts["gradient steps"] = format_count(parts.num_steps)
    if progress.num_env_steps:
        facts["environment steps"] = format_count(progress.num_env_steps)
    facts["wall time"] = format_duration(progress.run_s)
    facts["parameters"] = format_count(num_parameters(parts.algo.nets))
    if commit := _commit(parts.folder.path / "provenance.json"):
        facts["commit"] = commit
    return facts


def _commit(file: Path) -> str:
    """Return the commit of the last start in short, and whether files had changed; nothing if it is not known."""
    starts = read_starts(file)
    commit, dash, state = str(starts[-1].get("commit", "") if starts else "").partition("-")
    return commit[:10] + dash + state


def _animation(config: BaseConfig, parts: Parts, progress: Progress, run_log: RunLog) -> tuple[Path | None, str]:
    """Return a GIF of evaluation episodes and its caption; a failure to render is a warning."""
    section, makers = config.experiment, parts.world.eval_makers
    num_episodes = section.report.animation_episodes
    is_possible = section.rendering.enabled or all(
        is_named(m) for m in ([makers] if callable(makers) else makers or [])
    )
    if not (num_episodes and section.evaluation.enabled and makers and is_possible):
        return None, ""
    file = parts.folder.path / "videos" / "evaluation.gif"
    episodes = record_evaluation(
        config, parts, progress.epoch, file, num_episodes, section.rendering.fps, run_log=run_log, max_s=FILM_S
    )
    if episodes is None:
        return None, ""
    results = ", ".join(f"return {e.total_reward:.3g}{_outcome(e.success)}" for e in episodes)
    return file, f"After training: {results}" if episodes else "Unfinished episode"


def _outcome(success: bool | None) -> str:
    return "" if success is None else (" (success)" if success else " (failure)")
