"""What the browser tests need of a machine: a browser, and a font with Chinese characters.

It imports nothing but Python's own, so that `nox -s tests` knows what is missing before it installs anything large.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

FETCHED = Path(__file__).parents[2] / ".nox/browsers"
BROWSERS = (
    "chromium-headless-shell",  # Debian's; without windows it takes a third less of the processor
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)


def browser() -> str | None:
    """Where a browser is that tests can drive: an installed one, or the one that was fetched."""
    fetched = sorted(map(str, FETCHED.glob("*/*/chrome-headless-shell*")))
    return next(filter(None, map(shutil.which, (*BROWSERS, *fetched))), None)


def can_show_chinese() -> bool:
    """Whether a font has Chinese characters; macOS and Windows bring one."""
    if sys.platform != "linux":
        return True
    fonts = shutil.which("fc-list")
    return bool(fonts and subprocess.run([fonts, ":lang=zh-cn"], capture_output=True, check=False).stdout)


def missing() -> dict[str, str]:
    """What this machine lacks, and the packages of Debian that bring it."""
    lacks = {}
    if not browser():
        lacks["a browser (Chromium, Chrome or Edge)"] = "chromium-headless-shell"
    if not can_show_chinese():
        lacks["a font with Chinese characters"] = "fontconfig fonts-noto-cjk"
    return lacks


def fetch():
    """Fetch the browser of Playwright, and keep it if it runs: a bare Linux may lack its libraries."""
    print("There is no browser here: looking for Playwright's.", flush=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
    install = (sys.executable, "-m", "pip", "install", "playwright", "-c", "constraints.txt", "--retries", "1")
    subprocess.run(install, **quiet)
    environment = {**os.environ, "PLAYWRIGHT_BROWSERS_PATH": str(FETCHED)}
    subprocess.run((sys.executable, "-m", "playwright", "install", "chromium-headless-shell"), env=environment, **quiet)
    fetched = browser()
    if fetched and subprocess.run((fetched, "--version"), **quiet).returncode:
        shutil.rmtree(FETCHED)


def install(packages):
    """Install packages of Debian, as root."""
    print(f"apt-get installs {packages}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ("update", f"install -y --no-install-recommends {packages}"):
        subprocess.run(["apt-get", *command.split()], env=environment, stdout=subprocess.DEVNULL, check=False)


def main():
    """Bring what is missing, or say what to install."""
    if not browser():
        fetch()
    lacks = missing()
    if lacks and shutil.which("apt-get") and os.geteuid() == 0:
        install(" ".join(lacks.values()))
        lacks = missing()
    if lacks:
        debian = f"on Debian: apt-get install {' '.join(lacks.values())}"
        sys.exit(f"The tests need {' and '.join(lacks)}, which this machine lacks; please install it ({debian}).")


if __name__ == "__main__":
    main()
