"""Another machine on another day, as far as a program can see: what it prints of those, no page can promise."""

import datetime
import os
import platform
import sys
from typing import Any
from unittest import mock

import time_machine
import torch

ANSWERS: list[tuple[Any, str]] = [
    (os, "cpu_count"),
    (torch, "get_num_threads"),
    *((platform, name) for name in ("machine", "node", "platform", "processor", "python_version")),
]
ballast: list[bytes] = []


def move_elsewhere() -> None:
    """Let this process, for good, see another machine and another year, and find its objects at other addresses."""
    for owner, name in ANSWERS:
        setattr(owner, name, mock.Mock(return_value=other(getattr(owner, name)())))
    torch.__version__ = other(torch.__version__)
    sys.version = other(sys.version)
    ballast.extend(bytes(size) for size in range(0, 512, 8) for _ in range(300))
    time_machine.travel(datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=400.2)).start()


def other(answer: Any) -> Any:
    """Another answer of its kind."""
    return answer + 1 if isinstance(answer, int) else type(answer)(f"{answer}.1")
