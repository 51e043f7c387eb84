"""Parts on an S3 server, that of moto. Its own environment has it (see the Makefile)."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from weftformer.scripts import cli

pytestmark = pytest.mark.integration

LINES = ["one two three", "", "two", "three one four one five nine two six", "six six", "nine five one"]


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """The URI of an empty bucket."""
    program = shutil.which("moto_server", path=f"{sys.prefix}/moto/bin{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("needs an S3 server: make .venv/moto/.installed")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address = f"127.0.0.1:{port}"
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("w") as out:
        server = subprocess.Popen([program, "-p", str(port)], stdout=out, stderr=out)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(f"http://{address}/bucket", method="PUT")).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.1)
        yield lambda folder: f"s3://bucket/{folder}?scheme=http&endpoint_override={address}&region=us-east-1"
    server.kill()
    server.wait()


def test_shards_on_s3_are_joined_to_what_one_process_writes(s3, texts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")
    words = ["generate", "--model", texts, "--input-file", "lines.txt", "--no-progress", "--beams", "1"]
    assert cli.main([*words, "--output-file", "alone"]) == 0
    shared, join = (
        [*words, "--output-file", s3("parts")],
        ["generate", "--join", s3("parts"), "--output-file", "joined"],
    )
    assert cli.main([*shared, "--shard", "2/2"]) == 0
    assert cli.main(join) == 1 and "lacks 3 of 6 rows, numbers 1, 3, 5" in capsys.readouterr().err
    assert cli.main([*shared, "--shard", "1/2"]) == 0 and cli.main(join) == 0
    assert (tmp_path / "joined").read_text() == (tmp_path / "alone").read_text()
    capsys.readouterr()
    assert cli.main([*shared, "--beams", "2", "--shard", "1/2"]) == 1
    assert "was started with --beams 1" in capsys.readouterr().err
