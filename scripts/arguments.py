"""What several commands ask of their arguments."""

import argparse
from typing import Any


def check_folders(arguments: argparse.Namespace, *names: str) -> None:
    """Refuse a file to write in a folder that is not there: else the mistake shows when the work is done.

    Args:
        names: arguments with a path, or None.

    Raises:
        ValueError: naming the argument.
    """
    for name in names:
        file = getattr(arguments, name)
        if file is not None and not file.parent.is_dir():
            raise ValueError(f"--{name.replace('_', '-')} {file}: there is no folder {file.parent}.")


def move_to(planner: Any, device: str | None) -> None:
    """Move a planner's model to a device, by default a GPU where there is one.

    Raises:
        ValueError: there is no such device.
    """
    import torch  # here: help waits for nothing

    try:
        planner.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, AssertionError) as error:  # what torch says of a device that is not there
        raise ValueError(f"--device {device}: {error}") from error
