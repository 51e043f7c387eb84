"""The folder that the processes of a job write to, on a disk, S3 or GCS.

`job.json` describes the job: its settings, the number of its rows, and a digest of them. Each other file is a part:
JSON lines that were written atomically, in the order of completion. A row begins with its `number`, counted from 1,
and its `state`.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import xxhash
from pyarrow import fs

# A part is written this many seconds after the one before, which bounds the work of workers that is lost if their
# driver is killed, or after this many rows, which bounds its memory.
SECONDS, ROWS = 10.0, 1000
_JOB = "job.json"
_HEAD = re.compile(rb'\{"number":\s*(\d+),\s*"state":\s*"([\w ]+)"')
# The states of rows, and the types of the fields of a job.
_STATES = frozenset({b"done", b"unfinished", b"no route", b"refused", b"failed"})
_FIELDS = {"command": str, "rows": int, "input": str, "settings": dict}
# The number of parts that are open at once while they are joined.
_OPEN = 128
# The number of missing rows that an error names.
_MOST_NAMED = 10


class Parts:
    """A folder of parts.

    Args:
        place: a folder, or a URI that Arrow reads, such as `s3://bucket/routes` or `gs://bucket/routes`.

    Raises:
        ValueError: Arrow does not read the URI, or `place` is a file.
    """

    def __init__(self, place: str):
        self.place = place
        is_uri = re.match(r"\w+://", place) is not None
        self._files, self._root = fs.FileSystem.from_uri(place if is_uri else str(Path(place).absolute()))
        if self._files.get_file_info(self._root).type == fs.FileType.File:
            raise ValueError(f"{place} is a file: shared work is written to a folder of parts. Give another name.")
        self._waiting: list[str] = []
        self._written = 0.0

    def begin(
        self, command: str, settings: Mapping[str, Any], rows: Iterable[str], remedy: str = "give another folder"
    ) -> None:
        """Begin a job, or continue an existing one.

        Args:
            command: "routes plan" or "generate".
            settings: the settings by option name. Values must be JSON.
            rows: a text that identifies each row.
            remedy: what else to do, for messages.

        Raises:
            ValueError: the folder has other contents, or a job with other settings or rows.
        """
        digest, count = xxhash.xxh3_128(), 0
        for row in rows:
            count += 1
            digest.update(row.encode() + b"\0")
        job: dict[str, Any] = {
            "command": command,
            "rows": count,
            "input": digest.hexdigest(),
            "settings": dict(settings),
        }
        names = self._names()  # first, because another shard may begin the job in between
        if (before := self._job()) is None:
            if names:
                raise ValueError(f"{self.place} is not empty and has no {_JOB}: {remedy}.")
            self._files.create_dir(self._root)
            self._write(_JOB, json.dumps(job, indent=2) + "\n")
            return
        if before["command"] != command:
            raise ValueError(f"{self.place} belongs to `weftformer {before['command']}`: {remedy}.")
        self._check_settings(before["settings"], job["settings"], remedy)
        if (before["rows"], before["input"]) != (count, job["input"]):
            raise ValueError(
                f"{self.place} belongs to another input ({before['rows']:,} rows, and this one has {count:,}): give "
                f"that input, or {remedy}."
            )

    def _check_settings(self, before: Mapping[str, Any], now: Mapping[str, Any], remedy: str) -> None:
        for name in dict.fromkeys([*before, *now]):
            values = before.get(name), now.get(name)
            if values[0] != values[1]:
                flags = [f"--{name} {_in_words(value)}" if value else f"no --{name}" for value in values]
                raise ValueError(
                    f"{self.place} was started with {flags[0]}, but this run has {flags[1]}: use the same settings, "
                    f"or {remedy}."
                )

    def states(self) -> dict[int, str]:
        """Return the states of the rows that are done, by index, counted from 0."""
        return {index: state for index, state, *_ in self._places()}

    def add(self, lines: Sequence[str]) -> None:
        """Add finished rows. They are written at once, or together with those of the next seconds."""
        self._waiting += lines
        if len(self._waiting) >= ROWS or time.monotonic() - self._written >= SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are waiting."""
        if self._waiting:
            # names sort by time, and differ from those of other processes
            self._write(f"part-{time.time_ns():020}-{uuid.uuid4().hex[:8]}.jsonl", "".join(self._waiting))
            self._waiting, self._written = [], time.monotonic()

    def rows(self, command: str, is_whole: bool = True) -> Iterator[dict[str, Any]]:
        """Return the finished rows in the order of the input, each once.

        Args:
            command: "routes plan" or "generate".
            is_whole: whether no row may be missing.

        Raises:
            ValueError: no such job is in the folder, a file is damaged, or rows are missing; the message names them.
        """
        job = self._job()
        if job is None or job["command"] != command:
            raise ValueError(f"{self.place} has no {_JOB} of `weftformer {command}`: give the folder of its parts.")
        places = dict[int, tuple[str, int, int]]()
        for index, _, *place in self._places():
            places.setdefault(index, tuple(place))  # type: ignore[arg-type]  # two runs of a shard may both have it
        missing = [number for number in range(1, job["rows"] + 1) if number - 1 not in places]
        if is_whole and missing:
            numbers = ", ".join(map(str, missing[:_MOST_NAMED])) + (", ..." if len(missing) > _MOST_NAMED else "")
            raise ValueError(
                f"{self.place} lacks {len(missing):,} of {job['rows']:,} rows, numbers {numbers}: repeat the command "
                "that started it to compute them."
            )
        return self._read(places)

    def _read(self, places: Mapping[int, tuple[str, int, int]]) -> Iterator[dict[str, Any]]:
        open_part = lru_cache(_OPEN)(lambda name: self._files.open_input_file(self._path(name)))
        for index in sorted(places):
            name, start, size = places[index]
            try:
                yield json.loads(open_part(name).read_at(size, start))
            except ValueError as error:
                raise self._damaged(name) from error

    def _places(self) -> Iterator[tuple[int, str, str, int, int]]:
        """Yield the index, state and part of each row, with its position there and its length."""
        job = self._job() or {"rows": 0}
        for name in self._names():
            if not name.startswith("part-"):
                continue
            start = 0
            with self._files.open_input_stream(self._path(name)) as file:
                for line in file.read().splitlines(keepends=True) or [b""]:
                    head, is_whole = _HEAD.match(line), line.endswith(b"}\n")
                    if not (head and is_whole and 1 <= int(head[1]) <= job["rows"] and head[2] in _STATES):
                        raise self._damaged(name)
                    yield int(head[1]) - 1, head[2].decode(), name, start, len(line)
                    start += len(line)

    def _damaged(self, name: str) -> ValueError:
        remedy = "delete it and repeat the command, which computes its rows again"
        if name == _JOB:
            remedy = "start again in another folder, or with --overwrite"
        return ValueError(f"{self.place}/{name} is damaged, cut off or of another job: {remedy}.")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _names(self) -> list[str]:
        selector = fs.FileSelector(self._root, allow_not_found=True)
        # hidden files are incomplete, perhaps of a process that was killed
        return sorted(info.base_name for info in self._files.get_file_info(selector) if info.base_name[0] != ".")

    def _job(self) -> Any:
        if self._files.get_file_info(self._path(_JOB)).type == fs.FileType.NotFound:
            return None
        with self._files.open_input_stream(self._path(_JOB)) as file:
            try:
                job = json.loads(file.read())
                if any(type(job[name]) is not kind for name, kind in _FIELDS.items()):
                    raise TypeError("a field has a wrong type")
                return job
            except (KeyError, TypeError, ValueError) as error:
                raise self._damaged(_JOB) from error

    def _write(self, name: str, text: str) -> None:
        """Write a file atomically: it has another name until it is closed."""
        temporary = self._path(f".{uuid.uuid4().hex}.{name}")
        with self._files.open_output_stream(temporary) as file:
            file.write(text.encode())
        self._files.move(temporary, self._path(name))


def _in_words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
