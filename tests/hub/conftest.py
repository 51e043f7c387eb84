"""A stand-in for the Hub in this process, which takes, keeps and serves files as the Hub does over HTTP."""

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants, get_session, set_client_factory
from huggingface_hub.utils._http import default_client_factory

COMMIT = "0" * 40


class Hub:
    """The content of the stand-in: files of repositories in a folder, and the pushed files.

    `pushed`: the files of each commit.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.pushed: list[dict[str, bytes]] = []

    def files(self, repo_id: str) -> set[str]:
        root = self.folder / repo_id
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    def answer(self, path: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers of the response to a request."""
        headers = {"X-Repo-Commit": COMMIT}
        match path.strip("/").split("/"):
            case [owner, name, "resolve", _, *parts] if (file := self.folder.joinpath(owner, name, *parts)).is_file():
                content = file.read_bytes()
                return 200, content, headers | {"ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
            case ["api", *_] if (answer := self.api(path, body)) is not None:
                return 200, json.dumps(answer).encode(), {"Content-Type": "application/json"}
        return 404, b"", headers | {"X-Error-Code": "EntryNotFound"}

    def api(self, path: str, body: bytes) -> Any:
        match path.strip("/").split("/")[1:]:
            case ["repos", "create"]:
                given = json.loads(body)
                return {"url": f"{constants.ENDPOINT}/{given['organization']}/{given['name']}"}
            case ["validate-yaml"]:
                return {"errors": [], "warnings": []}
            case ["models", _, _, "preupload", "main"]:
                files = [file["path"] for file in json.loads(body)["files"]]
                return {"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in files]}
            case ["models", owner, name, "commit", "main"]:
                return self.commit(f"{owner}/{name}", [json.loads(line) for line in body.splitlines()])

    def commit(self, repo_id: str, lines: list[dict]) -> dict[str, str]:
        files = [line["value"] for line in lines if line["key"] == "file"]
        self.pushed.append({file["path"]: base64.b64decode(file["content"]) for file in files})
        for path, content in self.pushed[-1].items():
            target = self.folder / repo_id / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return {"commitUrl": f"{constants.ENDPOINT}/{repo_id}/commit/{COMMIT}", "commitOid": COMMIT}


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[Hub]:
    """The stand-in, which huggingface_hub and transformers use as the Hub during a test."""
    standing_in = Hub(tmp_path / "hub")
    httpx: Any = sys.modules[type(get_session()).__module__.partition(".")[0]]  # or its successor, httpx2

    def respond(request: Any) -> Any:
        status, content, headers = standing_in.answer(request.url.path, request.content)
        return httpx.Response(status, content=content, headers=headers)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    set_client_factory(lambda: httpx.Client(transport=httpx.MockTransport(respond)))
    yield standing_in
    set_client_factory(default_client_factory)
