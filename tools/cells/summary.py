"""What a run on a device says of itself: the name of the device, and the summary of its job on GitHub."""

import datetime
import platform
import shutil
import subprocess

import torch

SLOWEST = 5


def device_name(device):
    """What a device calls itself; a GPU of NVIDIA with the version of its driver."""
    if device.startswith("cuda"):
        return f"{torch.cuda.get_device_name(device)}, driver {driver()}"
    return f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}" if device == "cpu" else device


def facts(device):
    """What a record says of a run on a device, here and today."""
    return {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "device": device_name(device),
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
    }


def driver():
    """The version of NVIDIA's driver, which torch does not know."""
    program = shutil.which("nvidia-smi")
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout if program else ""
    return said.partition("\n")[0] or "unknown"


def job_summary(stats, device):
    """A page of Markdown: where it ran, how many cells and other tests, which failed or did not run, the slowest.

    `stats` are the reports of pytest by outcome, as its terminal reporter keeps them.
    """
    passed, skipped = stats.get("passed", []), stats.get("skipped", [])
    failed = [*stats.get("failed", []), *stats.get("error", [])]
    facts = {"device": device_name(device), "torch": torch.__version__}
    for what, of_kind in (("cells", is_cell), ("other tests", lambda report: not is_cell(report))):
        counts = [sum(map(of_kind, reports)) for reports in ([*passed, *failed], failed, skipped)]
        facts |= dict(zip((f"{what} run", f"{what} failed", f"{what} not run"), counts))
    timed = [report for report in (*passed, *failed) if hasattr(report, "duration")]  # an unreadable file has none
    slowest = sorted(timed, key=lambda report: -report.duration)[:SLOWEST]
    return "\n".join(
        [
            f"## --device {device}",
            "",
            *table("", "", facts.items()),
            *table("failed", "", [(report.nodeid, "") for report in failed]),
            *table("not run", "why", [(report.nodeid, report.longrepr[2]) for report in skipped]),
            *table("slowest", "seconds", [(report.nodeid, f"{report.duration:.2f}") for report in slowest]),
            "",
        ]
    )


def is_cell(report):
    path, _, name = report.nodeid.partition("::")
    return path.endswith(".md") and name not in ("", "notebook")


def table(first, second, rows):
    """The lines of a table in Markdown; none without rows."""
    rows = ["| {} | {} |".format(*(str(part).replace("|", r"\|") for part in row)) for row in rows]
    return [f"| {first} | {second} |", "|---|---|", *rows, ""] if rows else []
