"""Notices from the scheduler: USR2 (checkpoint now) and TERM. The handler only sets a flag.

Import this before torch and call watch(): the import takes seconds, and a notice that arrives in
between must be kept, not kill the process.
"""
import signal

_noticed = 0


def _note(number, _frame):
    global _noticed
    _noticed = number


def watch():
    for number in (signal.SIGUSR2, signal.SIGTERM):
        signal.signal(number, _note)


def noticed():
    """The number of the last signal that came, or 0."""
    return _noticed
