"""Ctrl-C, SIGTERM and the stop files of trials: how a run is told to end early."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command at once: there is no run yet, or it was the second one.

    Attributes:
        signal: Its number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


class Interruption:
    """Becomes true when the run is to end early, and says why.

    Attributes:
        signal: The signal that came, if one did.
    """

    def __init__(self, also: Callable[[], bool] = lambda: False) -> None:
        """``also`` is asked too: a run in another process is told through a file."""
        self.signal: int | None = None
        self._also = also
        self._is_listening = False
        self._raised: int | None = None
        self._process = os.getpid()

    def __call__(self) -> bool:
        """Whether to end."""
        return self.signal is not None or self._also()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Takes over Ctrl-C and SIGTERM: they raise :class:`Interrupted`. Ray sets handlers, so enter this after it.

        Ray drops whatever a handler raises inside of its calls, and raises a bare KeyboardInterrupt: that becomes
        :class:`Interrupted` again here.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        except KeyboardInterrupt as error:
            if self._raised is None or isinstance(error, Interrupted):
                raise
            raise Interrupted(self._raised) from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While a run asks: the first signal only makes this true. A second Ctrl-C ends at once."""
        self._is_listening = True
        try:
            yield
        finally:
            self._is_listening = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # an environment's own, that a terminal's signal has reached too
            _end_child(number)
            return
        if not self._is_listening or (self.signal is not None and number == signal.SIGINT):
            self._raised = number
            raise Interrupted(number)
        self.signal = self.signal or number


def _end_child(number: int) -> None:
    """Ctrl-C is for the main process to see to, which needs its environments until then; SIGTERM ends a child."""
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
