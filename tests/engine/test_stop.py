"""Signals that ask a run to save and stop."""

import signal
import threading

import pytest

from safecl.engine.stop import stoppable


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_wish_and_the_handlers_of_before_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stoppable() as asked:
        assert not asked()
        signal.raise_signal(number)
        signal.raise_signal(number)  # an echo of the first
        assert asked()
    assert signal.getsignal(number) is before


def test_a_second_wish_that_is_no_echo_stops_at_once() -> None:
    with stoppable(patience=-1) as asked:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert asked()


def test_a_thread_that_may_install_no_handler_is_never_asked() -> None:
    found = []

    def work() -> None:
        with stoppable() as asked:
            found.append(asked())

    thread = threading.Thread(daemon=True, target=work)
    thread.start()
    thread.join()
    assert found == [False]
