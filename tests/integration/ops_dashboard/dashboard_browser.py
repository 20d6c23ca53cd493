"""A browser tab, as the dashboard's tests use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S = 30


class Tab:
    """One browser tab."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address = driver, address

    def open(self, path: str, selector: str) -> None:
        """Open a page and wait until something is there."""
        self.driver.get_log("browser")
        self.driver.get(self.address + path)
        self.wait_for(selector)

    def wait_for(self, selector: str, text: str = "") -> Any:
        def found(driver: Any) -> Any:
            shown = driver.find_elements("css selector", selector)
            return next((one for one in shown if text in one.text), None)

        return self._until(found)

    def _until(self, check: Any) -> Any:
        from selenium.webdriver.support.wait import WebDriverWait

        wait = WebDriverWait(self.driver, WAIT_S, 0.1, ignored_exceptions=_passing())
        return wait.until(check)

    def click(self, selector: str, text: str = "") -> None:
        """Press what is there; a page that is just being refreshed is tried again."""

        def pressed(driver: Any) -> bool:
            for one in driver.find_elements("css selector", selector):
                if text in one.text:
                    one.click()
                    return True
            return False

        self._until(pressed)

    def wait_until(self, check: Callable[[], Any]) -> None:
        """Wait until something outside the browser is so."""
        self._until(lambda _: check())

    def text(self) -> str:
        return str(self.driver.find_element("css selector", "body").text)

    def picture(self, file: Path) -> None:
        """Save the whole page."""
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        self.driver.set_window_size(1280, min(3000, max(1000, height + 150)))
        self.driver.save_screenshot(str(file))

    def faults(self) -> list[str]:
        """What the browser complained about, but for texts that were never on a page."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] == "SEVERE"
        ]


def _passing() -> list[type[Exception]]:
    """What a page that is being refreshed, or a dialog that is fading in, answers for a moment."""
    from selenium.common import exceptions

    return [
        exceptions.StaleElementReferenceException,
        exceptions.ElementNotInteractableException,
        exceptions.ElementClickInterceptedException,
    ]
