"""Packages of compiled code: which are loaded, and which inputs reach the code."""

import json
import os
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import weftformer
from weftformer.modeling.decoding import compiled
from weftformer.modeling.decoding.compiled import Package, compiled_folder, load_package

CONFIG, CPU = weftformer.WeftConfig(), torch.device("cpu")


def test_code_for_a_gpu_is_code_for_its_kind(monkeypatch):
    """Each kind of GPU has code of its own, and each GPU of a kind loads the same."""
    loaded, cards = [], {0: ("H100", (9, 0)), 1: ("H100", (9, 0)), 2: ("H200", (9, 0)), 3: ("H100", (10, 0))}
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: cards[device.index][0])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: cards[device.index][1])
    monkeypatch.setattr(
        torch._inductor, "aoti_load_package", lambda file, device_index: loaded.append(device_index) or Code([])
    )
    assert load_package({}, CONFIG, torch.device("cuda", 0), write_code)
    devices = [CPU, *(torch.device("cuda", number) for number in cards)]
    assert [bool(load_package({}, CONFIG, device, None)) for device in devices] == [False, True, True, False, False]
    assert loaded == [0, 0, 1]
    assert load_package({}, CONFIG, CPU, write_code) and loaded[-1] == -1


class Sum(nn.Module):
    def forward(self, ids_BM, mask_BM, values_B2):
        return (ids_BM * mask_BM).sum(dim=1) + values_B2.sum(dim=1)


INPUTS = torch.ones(3, 5).long(), torch.ones(3, 5).long(), torch.zeros(3, 2)


@pytest.fixture(scope="session")
def described() -> list:
    any_length = torch.export.Dim.DYNAMIC
    shapes = ({0: any_length, 1: any_length}, {0: any_length, 1: any_length}, {0: any_length})
    program = torch.export.export(Sum(), INPUTS, dynamic_shapes=shapes, strict=False)
    return compiled.described_inputs(program)


class Code:
    """Stands for compiled code, and records the inputs that it is called with."""

    def __init__(self, inputs):
        self.inputs, self.calls = inputs, []

    def get_metadata(self):
        return {"inputs": json.dumps(self.inputs)}

    def __call__(self, *inputs):
        self.calls.append(inputs)
        return inputs


@pytest.fixture
def code(monkeypatch, described) -> Code:
    code = Code(described)
    monkeypatch.setattr(torch._inductor, "aoti_load_package", lambda file, device_index: code)
    return code


def write_code(file) -> None:
    file.write_bytes(b"code")


def test_inputs_are_contiguous_and_of_any_length(code):
    package = Package("file", CPU)
    assert package(*INPUTS)
    turned = torch.arange(14).view(7, 2).T, torch.ones(7, 2).long().T, torch.zeros(2, 2).T
    assert package(*turned)
    assert all(tensor.is_contiguous() for tensor in code.calls[1])
    assert all(map(torch.equal, code.calls[1], turned))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, INPUTS[0].int()), (0, INPUTS[0].bool()), (0, INPUTS[0].float()), (0, INPUTS[0][0]), (0, INPUTS[0].to("meta")),
        (0, INPUTS[0][:, :4]), (1, INPUTS[1][:2]), (2, torch.zeros(3, 3)), (2, torch.zeros(3, 2).double()),
        (2, torch.zeros(4, 2)), (1, None), (2, nn.Buffer(torch.zeros(3, 2)).as_subclass(type("Own", (torch.Tensor,), {}))),
    ],
)  # fmt: skip
def test_other_inputs_do_not_reach_the_code(code, place, value):
    inputs = [*INPUTS]
    inputs[place] = value
    assert Package("file", CPU)(*inputs) is None
    assert Package("file", CPU)(*(tensor[:, :1] for tensor in INPUTS)) is None  # a length of 1 has code of its own
    assert not code.calls


def test_code_runs_in_one_thread_at_a_time(code, monkeypatch):
    running, most = [], []

    def slow(self, *inputs):
        running.append(1)
        threading.Event().wait(0.01)
        most.append(len(running))
        running.pop()

    monkeypatch.setattr(Code, "__call__", slow)
    package = Package("file", CPU)
    threads = [threading.Thread(target=package, args=INPUTS) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4


def test_a_forked_process_that_lacks_the_threads_raises(code, monkeypatch):
    package = Package("file", CPU)
    package(*INPUTS)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert package(*INPUTS)  # one thread needs no others
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(RuntimeError, match="spawn"):
        package(*INPUTS)


def damage(change):
    """Return a change of the only package in the folder."""
    return lambda folder: change(next(folder.glob("*.pt2")))


DAMAGES = {
    "empty": damage(lambda file: file.write_bytes(b"")),
    "changed": damage(lambda file: file.write_bytes(b"CODE")),
    "of another key": damage(lambda file: file.rename(file.with_name("0" * 32 + file.name[32:]))),
    "writable by others": damage(lambda file: file.chmod(0o666)),
    "writable by the group": damage(lambda file: file.chmod(0o620)),
    "a link": damage(lambda file: file.symlink_to(file.rename(file.with_suffix(".real")))),
    "a pipe": damage(lambda file: (file.unlink(), os.mkfifo(file))),
    "a directory": damage(lambda file: (file.unlink(), file.mkdir())),
    "a folder of others": lambda folder: folder.chmod(0o777),
    "a linked folder": lambda folder: folder.symlink_to(folder.rename(folder.with_name(folder.name + "-real"))),
    "a folder of another user": lambda folder: None,
}  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="rights of files as on Linux")
@pytest.mark.parametrize("name", DAMAGES)
def test_only_whole_files_of_the_user_are_loaded(code, monkeypatch, name):
    assert load_package({}, CONFIG, CPU, write_code)
    assert load_package({}, CONFIG, CPU, None)
    assert load_package({"other": 1}, CONFIG, CPU, None) is None
    DAMAGES[name](compiled_folder())
    if name == "a folder of another user":
        facts = SimpleNamespace(st_mode=compiled_folder().lstat().st_mode, st_uid=7)
        monkeypatch.setattr(os, "geteuid", lambda: 8)
        monkeypatch.setattr(type(compiled_folder()), "lstat", lambda self: facts)
    assert load_package({}, CONFIG, CPU, None) is None
    if "folder" in name or name == "a directory":
        return
    assert load_package({}, CONFIG, CPU, write_code)  # compiled again
    assert load_package({}, CONFIG, CPU, None)


def write_sum(file) -> None:
    compiled.write_package(torch.export.export(Sum(), INPUTS), file, {})


# what fails in torch, how the package is written, and the line of the error
FAILURES = [
    ("aoti_load_package", RuntimeError("frame #1\nframe #2"), write_code, "cannot be compiled: frame #1$"),
    ("aoti_compile_and_package", OSError(28, "No space left on device"), write_sum, "No space left on device$"),
]


@pytest.mark.parametrize(("function", "error", "write", "line"), FAILURES)
def test_a_failure_of_torch_is_an_error_of_one_line(monkeypatch, function, error, write, line):
    def fail(*given, **settings):
        raise error

    monkeypatch.setattr(torch._inductor, function, fail)
    with pytest.raises(ValueError, match=line):
        load_package({}, CONFIG, CPU, write)
    assert load_package({}, CONFIG, CPU, None) is None
    assert write is write_code or not list(compiled_folder().glob("*.pt2"))


def test_the_folder_keeps_the_packages_used_last(code, monkeypatch):
    monkeypatch.setattr(compiled, "MAX_PACKAGES", 2)
    for number in (1, 2, 1, 3):
        time.sleep(0.02)  # file systems record times in steps
        assert load_package({"number": number}, CONFIG, CPU, write_code)
    assert [bool(load_package({"number": number}, CONFIG, CPU, None)) for number in (1, 2, 3)] == [True, False, True]
