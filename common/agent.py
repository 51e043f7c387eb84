"""Ends a process that `torchrun` has started when its agent dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def end_with_agent() -> None:
    """Let the kernel kill this process when the `torchrun` agent that has started it dies.

    A killed agent leaves its processes behind. They would continue training, and write checkpoints next to those of
    the run that takes their place. Nothing changes for a process that torchrun has not started, or on systems other
    than Linux.

    Raises:
        OSError: the kernel refuses.
    """
    if sys.platform != "linux" or "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    agent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot be bound to its torchrun agent")
    if os.getppid() != agent:  # it has died in the meantime
        os.kill(os.getpid(), signal.SIGKILL)
