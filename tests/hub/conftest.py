"""A stand-in for the Hub on this machine, which takes, keeps and serves files over HTTP as the Hub does."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from transformers.utils import hub as transformers_hub

COMMIT = "0" * 40


class Hub:
    """The content of the stand-in: files of repositories in a folder, and the pushed files.

    `commits`: the repository of each commit; `pushed`: the files of each commit.
    """

    def __init__(self, folder: Path):
        self.folder, self.commits = folder, []
        self.pushed: list[dict[str, bytes]] = []

    def files(self, repo_id: str) -> set[str]:
        root = self.folder / repo_id
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        match path.strip("/").split("/"):
            case ["api", "repos", "create"]:
                given = json.loads(body)
                return 200, {"url": f"{constants.ENDPOINT}/{given['organization']}/{given['name']}"}
            case ["api", "validate-yaml"]:
                return 200, {"errors": [], "warnings": []}
            case ["api", "models", _, _, "preupload", "main"]:
                files = [file["path"] for file in json.loads(body)["files"]]
                return 200, {
                    "files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in files]
                }
            case ["api", "models", owner, name, "commit", "main"]:
                return 200, self.commit(f"{owner}/{name}", [json.loads(line) for line in body.splitlines()])
        return 404, {"error": f"no {path}"}

    def commit(self, repo_id: str, lines: list[dict]) -> dict[str, str]:
        files = [line["value"] for line in lines if line["key"] == "file"]
        self.pushed.append({file["path"]: base64.b64decode(file["content"]) for file in files})
        for path, content in self.pushed[-1].items():
            target = self.folder / repo_id / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        self.commits.append(repo_id)
        return {"commitUrl": f"{constants.ENDPOINT}/{repo_id}/commit/{COMMIT}", "commitOid": COMMIT}


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def send(self, status: int, body: bytes, **headers: str):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_POST(self):
            path = self.path.partition("?")[0]
            length = self.headers.get("Content-Length")
            status, answer = hub.answer(path, self.rfile.read(int(length or 0)))
            self.send(status, json.dumps(answer).encode(), Content_Type="application/json")

        def do_GET(self):
            path = self.path.partition("?")[0]
            owner, name, *rest = path.strip("/").split("/")
            file = hub.folder / owner / name / "/".join(rest[2:])
            if rest[:1] == ["resolve"] and file.is_file():
                body = file.read_bytes()
                etag = hashlib.sha1(body).hexdigest()
                self.send(200, body, ETag=f'"{etag}"', X_Repo_Commit=COMMIT)
            else:
                self.send(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)

        do_HEAD = do_GET

    return Handler


@pytest.fixture
def hub(tmp_path) -> Iterator[Hub]:
    """The stand-in, which huggingface_hub and transformers use as the Hub during a test."""
    standing_in = Hub(tmp_path / "hub")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(standing_in))
    # the interval at which it checks whether to stop
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", address)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        patch.setattr(transformers_hub, "_hf_api", None, raising=False)  # it caches the address of the Hub
        yield standing_in
    server.shutdown()
    server.server_close()
