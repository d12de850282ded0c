"""Signals and wishes to stop, as one process or several of a run hear of them."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from seqrl.core.errors import RunInterrupted, TrainingError
from seqrl.training.ending import Ending

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Rank:
    """One of several processes that agree, here in threads.

    Args:
        rank: Its number.
        shared: What all ranks said, and where they meet.
        during: Called when this rank has said what it knows, and has not heard the others yet.
    """

    is_alone = False

    def __init__(self, rank, shared, during=lambda: None):
        self.rank, self.is_main, self._during = rank, rank == 0, during
        self._said, self._meeting = shared

    def gather(self, value):
        self._said[self.rank] = value
        self._during()
        self._meeting.wait(10)
        known = list(self._said)
        self._meeting.wait(10)
        return known


class Alone:
    is_alone = is_main = True

    def __init__(self, during=lambda: None):
        self._during = during

    def gather(self, value):
        self._during()
        return [value]


def outcomes(ending, rank, num_calls):
    """Return the exit codes that a rank hears when it checks so often, None where it goes on."""
    found = []
    for _ in range(num_calls):
        try:
            ending.agree_and_check(rank)
            found.append(None)
        except RunInterrupted as error:
            found.append(error.exit_code)
    return found


def heard(endings, ranks, num_calls):
    """Let rank 0 check in a thread and rank 1 here; return what both hear."""
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(outcomes, endings[0], ranks[0], num_calls)
        second = outcomes(endings[1], ranks[1], num_calls)
        return first.result(), second


def two_ranks(during=lambda: None):
    shared = [None, None], threading.Barrier(2)
    return (Ending(), Ending()), (Rank(0, shared), Rank(1, shared, during))


def test_a_signal_that_comes_while_ranks_agree_ends_all_of_them_the_next_time():
    once = iter([signal.SIGTERM])
    endings, ranks = two_ranks(lambda: [signal.raise_signal(number) for number in once])
    with endings[1].handling_signals(ranks[1]):
        assert heard(endings, ranks, 2) == ([None, 128 + signal.SIGTERM],) * 2


def test_a_wish_to_stop_that_comes_while_ranks_agree_is_kept_too():
    endings, ranks = two_ranks(lambda: endings[1].ask("enough"))
    heard(endings, ranks, 1)
    assert [ending.reason for ending in endings] == [None, None]
    heard(endings, ranks, 1)
    assert [ending.reason for ending in endings] == ["enough", "enough"]


def test_a_signal_that_a_rank_has_heard_of_is_not_forced_by_its_own_copy():
    """The launcher passes Ctrl-C on to every process, perhaps after they have agreed."""
    endings, ranks = two_ranks()
    with endings[0].handling_signals(ranks[0]):
        signal.raise_signal(signal.SIGINT)
    with endings[1].handling_signals(ranks[1]):
        assert heard(endings, ranks, 1) == ([128 + signal.SIGINT],) * 2
        signal.raise_signal(signal.SIGINT)
    assert not endings[1].is_forced


@pytest.fixture
def outside_nohup():
    """Where the tests run under nohup, SIGHUP is ignored, and a run would leave it so."""
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.usefixtures("outside_nohup")
def test_alone_a_signal_at_any_moment_is_heard(number):
    ending = Ending()
    with ending.handling_signals(Alone()):
        ending.agree_and_check(Alone(lambda: signal.raise_signal(number)))
        for hears in (ending.check, lambda: ending.agree_and_check(Alone()), ending.checking(Alone())):
            with pytest.raises(RunInterrupted) as caught:
                hears()
            assert caught.value.exit_code == 128 + number


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ending = Ending()
        with ending.handling_signals(Alone()):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
        ending.check()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_failure_of_a_thread_ends_all_even_if_it_comes_while_ranks_agree():
    ending = Ending()
    ending.check()
    alone = Alone(during=lambda: ending.fail("the actors are gone"))
    ending.agree_and_check(alone)  # it was said too late for this time
    with pytest.raises(TrainingError, match="the actors are gone"):
        ending.agree_and_check(alone)
    with pytest.raises(TrainingError, match="the actors are gone"):
        ending.check()
