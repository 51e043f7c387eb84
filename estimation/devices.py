"""Accelerators as their data sheets describe them. [`estimate`] divides work by their peaks.

Peaks are those of dense matrices. Where a sheet gives the peak with structured sparsity only, it is half of that.

Sources, all NVIDIA's: the data sheets of H100 (SXM), H200 (SXM), A100 (SXM4, 40 and 80 GB), V100 (SXM2, 32 GB), L40S, T4
and HGX B200 (180 GB), and for the GeForce RTX 4090 the white paper of the Ada architecture.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

GB = 10**9


@dataclass(frozen=True)
class Device:
    """
    An accelerator, or another device.

    Args:
        name (`str`): its name.
        memory (`float`): bytes of memory.
        fp32_flops (`float`): floating-point operations a second in fp32, as torch computes without TF32.
        bf16_flops (`float`, *optional*): those in bf16. None if it has no bf16.
        is_cpu (`bool`, *optional*, defaults to `False`): whether the memory is that of torch's kernels on a CPU.
    """

    name: str
    memory: float
    fp32_flops: float
    bf16_flops: float | None = None
    is_cpu: bool = False

    def peak(self, precision: str) -> float:
        """Return operations a second in `"bf16"` or `"fp32"`.

        Raises:
            ValueError: it has no bf16.
        """
        if precision == "fp32":
            return self.fp32_flops
        if self.bf16_flops is None:
            raise ValueError(f'{self.name} has no bf16: choose precision="fp32", or give its bf16_tflops.')
        return self.bf16_flops


def _device(name: str, memory: float, fp32: float, bf16: float | None) -> Device:
    """Return a device from gigabytes, and TFLOP/s in fp32 and bf16."""
    return Device(name, memory * GB, fp32 * 1e12, bf16 and bf16 * 1e12)


DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        _device("h100", 80, 67, 989.5),
        _device("h200", 141, 67, 989.5),
        _device("b200", 180, 80, 2250),
        _device("a100-80gb", 80, 19.5, 312),
        _device("a100-40gb", 40, 19.5, 312),
        _device("l40s", 48, 91.6, 362),
        _device("rtx-4090", 24, 82.6, 165.2),
        _device("v100-32gb", 32, 15.7, None),
        _device("t4", 16, 8.1, None),
    )
}

# What a user may give: its name, the field, and how many of the field's units it is.
_GIVEN = {
    "name": ("name", None),
    "memory_gb": ("memory", GB),
    "fp32_tflops": ("fp32_flops", 1e12),
    "bf16_tflops": ("bf16_flops", 1e12),
}
_NEEDED = ("memory_gb", "fp32_tflops")


def find_device(text: str) -> Device:
    """
    Return a device of the table, a changed one, or a new one.

    Args:
        text (`str`): a name (`"h100"`), a name and what is different (`"h100,memory_gb=94"`), or all of it
            (`"memory_gb=64,fp32_tflops=2"`). The name `cpu` in front (`"cpu,memory_gb=64,..."`) says that
            torch's kernels are those of a CPU, which keep other tensors. Keys: name, memory_gb, fp32_tflops, bf16_tflops.

    Returns:
        `Device`

    Raises:
        ValueError: there is no such device or key, a number is none, or a needed one is missing.
    """
    from ..configuration.fields import closest  # here: help waits for nothing

    words = [word.strip() for word in text.split(",") if word.strip()]
    base, is_cpu = None, False
    if words and "=" not in words[0]:
        name = words.pop(0).lower()
        is_cpu = name == "cpu"
        if not is_cpu and name not in DEVICES:
            raise ValueError(
                f"There is no device {name!r}: choose one of {', '.join(DEVICES)}, or describe it: "
                f"{','.join(f'{key}=...' for key in _NEEDED)}.{closest(name, DEVICES)}"
            )
        base = DEVICES.get(name)
    given: dict[str, Any] = {}
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or key not in _GIVEN:
            raise ValueError(f"A device has no key {key!r}: {text}. Keys: {', '.join(_GIVEN)}.{closest(key, _GIVEN)}")
        field, unit = _GIVEN[key]
        given[field] = value if unit is None else _number(key, value) * unit
    if base is not None:
        return replace(base, **given)
    missing = [key for key in _NEEDED if _GIVEN[key][0] not in given]
    if missing:
        raise ValueError(f"The device {text!r} needs {', '.join(missing)}: {_NEEDED[0]}=64 and so on.")
    defaults: dict[str, Any] = {"name": "cpu" if is_cpu else "device", "is_cpu": is_cpu}
    return Device(**defaults | given)


def _number(key: str, text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d*)?([eE][+-]?\d+)?", text) or float(text) <= 0:
        raise ValueError(f"{key}={text}: give a number above 0.")
    return float(text)
