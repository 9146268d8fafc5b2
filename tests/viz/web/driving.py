"""Drives a page in a browser: what it shows, and keys to press."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.viz.web.states import State

if TYPE_CHECKING:
    from playwright.sync_api import Page


def snapshot(page: Page, run_index: int = 0) -> State:
    state: State = page.evaluate(f"window.replay.snapshot({run_index})")
    return state


def current_step(page: Page) -> int:
    step: int = page.evaluate("window.replay.session.run.frames.step[window.replay.session.frame]")
    return step


def expect_step(page: Page, step: int) -> None:
    """Wait until the page shows this step."""
    from playwright.sync_api import expect

    expect(page.locator(".step-input")).to_have_value(str(step))


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
    wait_until_drawn(page)


def wait_until_drawn(page: Page) -> None:
    """The page draws once before the next frame of the screen."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => done()))")
