"""Processes of a killed torchrun agent."""

import subprocess
import sys

import pytest

import weftformer

# the file alone: the package would take seconds to import
CODE = """
import ctypes, os, runpy, sys
end_with_agent = runpy.run_path(sys.argv[1])["end_with_agent"]
signals = []
for name in ("", "TORCHELASTIC_RUN_ID"):
    os.environ |= {name: "run"} if name else {}
    end_with_agent()
    ctypes.CDLL(None).prctl(2, ctypes.byref(found := ctypes.c_int()))  # PR_GET_PDEATHSIG
    signals.append(found.value)
print(signals)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
def test_process_of_torchrun_is_killed_with_its_agent():
    file = weftformer.__file__.replace("__init__.py", "common/agent.py")
    done = subprocess.run([sys.executable, "-c", CODE, file], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 9]\n"
