"""Ctrl-C at the right moment."""

from __future__ import annotations

import signal
import threading

import pytest

from nanovllm.interrupts import uninterrupted


def press_twice(reached: list[str]) -> None:
    with uninterrupted():
        signal.raise_signal(signal.SIGINT)
        reached.append("after the first")
        signal.raise_signal(signal.SIGINT)
        reached.append("after the second")


def test_a_second_interrupt_does_not_wait() -> None:
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        press_twice(reached)
    assert reached == ["after the first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def press_in_an_inner_block(reached: list[str]) -> None:
    with uninterrupted():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
        reached.append("after the inner block")


def test_an_interrupt_waits_for_the_outermost_block() -> None:
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        press_in_an_inner_block(reached)
    assert reached == ["after the inner block"]


def press_and_fail() -> None:
    with uninterrupted():
        signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError


def test_a_fault_is_not_replaced_by_the_interrupt() -> None:
    with pytest.raises(ZeroDivisionError):
        press_and_fail()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whoever_handles_the_signal_goes_on_doing_so(monkeypatch: pytest.MonkeyPatch) -> None:
    received = []
    before = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            assert received == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_are_left_alone() -> None:
    handlers = []

    def work() -> None:
        with uninterrupted():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
