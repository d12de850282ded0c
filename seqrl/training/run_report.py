"""What the report says about an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqrl.reports.console import format_count, format_duration
from seqrl.reports.page import Report, write_report
from seqrl.reports.series import read_metrics
from seqrl.rollout.filming import is_named
from seqrl.training.rendering import record_evaluation

if TYPE_CHECKING:
    from seqrl.training.experiment import Experiment


def write_run_report(experiment: Experiment) -> Path:
    """Write ``report.html`` and the animation of an experiment that has ended; return the page's path."""
    config, folder = experiment.config, experiment.folder
    animation, caption = _animation(experiment)
    memory = config.algo.sequence_encoder.choice()[0]
    task = experiment.env_id or experiment.info.source
    report = Report(
        title=folder.path.name,
        subtitle=f"{config.algo_name} with {memory} on {task}, seed {config.train.seed}, {experiment.device}",
        config=config.to_json(),
        rows=read_metrics(folder.metrics),
        final=experiment.metrics,
        facts=_facts(experiment),
        animation=animation,
        animation_caption=caption,
        warnings=experiment.warnings,
    )
    file = folder.path / "report.html"
    write_report(file, report)
    return file


def _facts(experiment: Experiment) -> dict[str, str]:
    metrics = experiment.metrics
    facts = {}
    if "eval/success_mean" in metrics:
        facts["success"] = f"{metrics['eval/success_mean']:.3f}"
    if "eval/return_mean" in metrics:
        facts["mean return"] = f"{metrics['eval/return_mean']:.4g}"
    facts["gradient steps"] = format_count(experiment.num_steps)
    if experiment.progress.num_env_steps:
        facts["environment steps"] = format_count(experiment.progress.num_env_steps)
    facts["wall time"] = format_duration(experiment.wall_s)
    facts["parameters"] = format_count(sum(p.numel() for p in experiment.algo.nets.parameters()))
    return facts


def _animation(experiment: Experiment) -> tuple[bytes | None, str]:
    """Return a GIF of evaluation episodes and its caption; a failure to render is a warning."""
    section, makers = experiment.config.experiment, experiment.eval_makers
    num_episodes = section.report.animation_episodes
    is_possible = section.rendering.enabled or all(
        is_named(m) for m in ([makers] if callable(makers) else makers or [])
    )
    if not (num_episodes and section.evaluation.enabled and makers and is_possible):
        return None, ""
    file = experiment.folder.path / "videos" / "evaluation.gif"
    episodes = record_evaluation(experiment, file, num_episodes, section.rendering.fps)
    if episodes is None:
        return None, ""
    results = ", ".join(f"return {e.total_reward:.3g}{_outcome(e.success)}" for e in episodes)
    return (
        file.read_bytes(),
        f"{len(episodes)} episodes after training: {results}" if episodes else "Unfinished episode",
    )


def _outcome(success: bool | None) -> str:
    return "" if success is None else (" (success)" if success else " (failure)")
