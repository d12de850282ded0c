"""A sweep on this machine: all runs, as many at once as there are cores."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator, Sequence

from seqrl.core.console import bar_class, in_notebook
from seqrl.reports.console import format_duration
from seqrl.sweeps.planning import Plan, SweepRun
from seqrl.sweeps.pool import POLL_S, Ended, Interrupt, Pool
from seqrl.sweeps.sweep_folder import SweepFolder

logger = logging.getLogger(__name__)


class Teller:
    """Tells of every run that has ended: one line each, and a bar over all of them.

    Args:
        folder: Of the sweep.
        metric: That is told.
        total: Number of runs.
    """

    def __init__(self, folder: SweepFolder, metric: str, total: int) -> None:
        self._folder, self._metric, self._total = folder, metric, total
        self._num_done = self.num_failed = 0
        shown = sys.stderr.isatty() or in_notebook()
        kind = bar_class()
        kind.monitor_interval = 0  # no thread beside the one that starts processes
        self._bar = kind(total=total, unit=" runs", disable=not shown, leave=False)

    def skip(self, num: int) -> None:
        """Count runs that were finished before."""
        if num:
            logger.info("%d of %d runs are finished already", num, self._total)
            self._bar.initial = num  # they do not count as speed
        self.count(num)

    def count(self, num: int) -> None:
        """Count runs of which there is nothing to tell, such as those that are not needed any more."""
        self._num_done += num
        self._bar.update(num)

    def tell(self, ended: Ended) -> bool:
        """Tell of a run, keep why it failed, and return whether it is finished.

        Raises:
            DataError: If it did not log the metric.
        """
        run, took = ended.run, format_duration(ended.seconds)
        if ended.exit_code == 0:
            self._folder.forget_failure(run)
            self._folder.check_metric(run)
            self.count(1)
            score = self._folder.score(run)
            text = "no finite value" if score is None else f"{score:.4g}"
            logger.info("%s  %s  %s %s  %s", self._place(), run.name, self._metric, text, took)
            return True
        self.count(1)
        self.num_failed += 1
        self._folder.note_failure(run, ended.exit_code, ended.last_lines)
        said = ended.last_lines[-1] if ended.last_lines else "it printed nothing"
        log = self._folder.log_file(run)
        logger.warning("%s  %s failed (exit code %d): %s; see %s", self._place(), run.name, ended.exit_code, said, log)
        return False

    def drop(self, ended: Ended, num: int, why: str) -> None:
        """Tell of a run that was ended on purpose, and count it and those that would have followed."""
        self.count(num)
        logger.info("%s  %s  %s  %s", self._place(), ended.run.name, why, format_duration(ended.seconds))

    def show(self, running: Sequence[str]) -> None:
        """Say beside the bar how many run."""
        self._bar.set_postfix_str(f"{len(running)} running, {self.num_failed} failed")

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()

    def _place(self) -> str:
        return f"{self._num_done:>{len(str(self._total))}}/{self._total}"


@contextlib.contextmanager
def working(folder: SweepFolder, plan: Plan, jobs: int, total: int) -> Iterator[tuple[Pool, Teller, Interrupt]]:
    """Yield what runs a sweep; at the end of the block, however it ends, no run is left."""
    pool, teller = Pool(folder, jobs), Teller(folder, plan.section.metric, total)
    with Interrupt().watched() as interrupt:
        try:
            yield pool, teller, interrupt
        finally:
            pool.close(lambda: interrupt.is_hurried)
            teller.close()


def run_all(folder: SweepFolder, plan: Plan, jobs: int) -> int:
    """Run what is not finished, and return how many runs failed.

    Raises:
        RunInterrupted: After Ctrl-C, SIGTERM or SIGHUP; the runs under way have saved.
        DataError: If a run does not log the metric.
    """
    runs = plan.runs()
    folder.write_run_files(runs)
    left = [run for run in runs if not folder.is_finished(run)]
    with working(folder, plan, jobs, len(runs)) as (pool, teller, interrupt):
        teller.skip(len(runs) - len(left))
        while left or pool.names:
            interrupt.check()
            _start(pool, left)
            for ended in pool.ended():
                teller.tell(ended)
            teller.show(pool.names)
            time.sleep(POLL_S)
        interrupt.check()
    return teller.num_failed


def _start(pool: Pool, left: list[SweepRun]) -> None:
    """Start runs as far as there is room, and take them out of the list."""
    for run in list(left):
        if not pool.has_room:
            return
        if pool.start(run):
            left.remove(run)
