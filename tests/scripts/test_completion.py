"""The script of `weftformer completion` completes commands, options and choices."""

import shutil
import subprocess
import sys

import pytest

from weftformer.scripts import cli
from weftformer.scripts.parsers.completion import SHELLS


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_in_the_script(shell, capsys):
    pytest.importorskip("shtab")
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert name in script
    assert "only-purchasable" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [(["upc"], ["upcycle"]), (["plan", "--beam"], ["--beams"]), (["plan", "--ranking", "sqrt"], ["sqrt_length"])],
)
def test_bash_completes(words, expected, tmp_path, capsys):
    pytest.importorskip("shtab")
    cli.main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    ask = (
        f"source {tmp_path / 'script'}; COMP_WORDS=(weftformer {' '.join(words)}); COMP_CWORD={len(words)}; "
        '_shtab_weftformer; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == expected


def test_without_shtab_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 1
    assert "pip install shtab" in capsys.readouterr().err
