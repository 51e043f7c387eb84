"""Processes of a killed torchrun agent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import weftformer

# the file alone: the package would take seconds to import
LOAD = f"import runpy; end_with_agent = runpy.run_path({str(Path(weftformer.__file__).parent / 'common' / 'agent.py')!r})['end_with_agent']"
CHILD = f"{LOAD}; end_with_agent(); import time; print('ready', flush=True); time.sleep(60)"
# only the agent writes to the test, because the lines of two processes could mix
AGENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], start_new_session=True, stdout=subprocess.PIPE)
assert child.stdout.readline() == b'ready\\n'
print(child.pid, flush=True)
input()
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # a zombie: dead, but its parent has not read its status


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
def test_processes_die_with_the_agent_that_started_them():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environment = os.environ | {"TORCHELASTIC_RUN_ID": "run"}
    with subprocess.Popen([sys.executable, "-c", AGENT], env=environment, text=True, **pipes) as agent:
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        try:
            assert is_running(pid)
            agent.kill()
            agent.wait()
            end = time.monotonic() + 10
            while is_running(pid) and time.monotonic() < end:
                time.sleep(0.01)
            assert not is_running(pid)
        finally:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
