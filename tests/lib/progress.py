"""How far a suite is: "[n/m] what is running", on one line of a terminal that
goes away; elsewhere a line each minute, so that a log stays short."""
import sys
import time

EVERY_S = 60


class Progress:
    def __init__(self, total):
        self.total = total
        self.done = 0
        self.running = []  # names, first begun first
        self.said_s = time.monotonic()

    def show(self):
        """Call after a change, and now and then."""
        line = f'[{self.done}/{self.total}] ' + ', '.join(self.running)
        if sys.stdout.isatty():
            print(f'\r\033[K   {line[:74]}', end='', flush=True)
        elif time.monotonic() - self.said_s >= EVERY_S:
            print(f'   {line}', flush=True)
            self.said_s = time.monotonic()

    def clear(self):
        """Call before anything else is printed."""
        if sys.stdout.isatty():
            print('\r\033[K', end='', flush=True)
