"""Ctrl-C and SIGTERM end a run after the current step is saved."""

import os
import signal


class Interrupt:
    """Notes Ctrl-C and SIGTERM in `asked`, so that the current step can be finished and saved.

    The second signal stops the program at once.
    """

    def __enter__(self):
        self.asked = False
        self.old = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _note(self, number, frame):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # The signal may have interrupted a print, which must not run twice at the same time.
        os.write(1, b"\nstopping after this step ...\n")

    def __exit__(self, *_):
        for number, old in self.old.items():
            signal.signal(number, old)
