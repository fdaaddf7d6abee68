"""Makes sure that there is a browser for the tests: on Debian, root installs Chromium.

Everybody else gets one line that says how. The tests that need a browser are skipped then, or fail on CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome")
HINT = "No browser for the tests of pages. On Debian: apt-get install chromium."


def main() -> None:
    """Install Chromium if there is no browser, and this user can."""
    if any(map(shutil.which, NAMES)):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(HINT)
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        if subprocess.run(["apt-get", "-qq", *words], env=environment).returncode:
            print(f"apt-get {words[0]} failed. {HINT}")
            return


if __name__ == "__main__":
    main()
