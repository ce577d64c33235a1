"""A private Chromium without a window, for tests that use pages as a person does. It ends with its caller."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from types import TracebackType

from private_server import UnavailableError, install_package, private_directory, spawn

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless=new", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio", "--hide-scrollbars"),
    *("--disable-dev-shm-usage", "--force-color-profile=srgb", "--remote-debugging-port=0", "about:blank"),
)
PATIENCE = 60.0  # seconds for its start


def find_browser() -> str | None:
    """The path of an installed Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install_browser() -> str:
    install_package("chromium", "Chromium", "the tests of the dashboard need it")
    browser = find_browser()
    if browser is None:
        raise UnavailableError("The package chromium is installed, but it contains no browser.")
    return browser


class PrivateBrowser:
    """Chromium with an empty profile: `with PrivateBrowser() as url`, for `chromium.connect_over_cdp(url)`."""

    def __enter__(self) -> str:
        self._browser = find_browser() or install_browser()
        self._directory = private_directory(None, memory=True)
        profile = self._directory.__enter__()
        sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()  # Chromium's sandbox does not run as root
        command = [self._browser, f"--user-data-dir={profile}", *sandbox, *FLAGS]
        with open(os.devnull, "wb") as nothing:
            self._process = spawn(
                command, env=os.environ, death_signal=signal.SIGKILL, output=nothing, own_session=True
            )
        return f"http://127.0.0.1:{self._port(profile)}"

    def _port(self, profile: Path) -> int:
        """Chromium writes its port into a file when it listens."""
        told, ends = profile / "DevToolsActivePort", time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            if told.exists() and (text := told.read_text().split()):
                return int(text[0])
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise UnavailableError(f"{self._browser} did not start.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._directory.__exit__(kind, error, trace)
