"""What a record says of a run: the device, the versions and the day."""

import platform
import subprocess

import torch

from tools.cells.record import today


def facts(device: str) -> dict[str, str]:
    """What a record says of a run on a device, here and today."""
    return {
        "date": today(),
        "device": device_name(device),
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
    }


def device_name(device):
    """What a device calls itself; a GPU of NVIDIA with the version of its driver, which torch does not know."""
    if not device.startswith("cuda"):
        return f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}" if device == "cpu" else device
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("\n")[0]
    return f"{torch.cuda.get_device_name(device)}, driver {driver}"
