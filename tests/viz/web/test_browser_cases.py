"""The page in a real browser: two runs at once, whoever reads it, whatever trace it gets, wherever it is mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from nanovllm.trace.events import Held
from nanovllm.trace.timeline import Timeline
from tests.viz.web.conftest import OpenPage
from tests.viz.web.driving import current_step, press, snapshot, wait_until_drawn
from tests.viz.web.states import replayed
from tests.viz.web.traces import as_trace, request, run, tight_config, tight_run
from viz.web import page_data
from viz.web.scripts import bundle

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# ---- two runs --------------------------------------------------------------------------------------------------------


def test_a_planted_difference_is_found(open_page: OpenPage) -> None:
    events = tight_run()
    index = [i for i, event in enumerate(events) if isinstance(event, Held)][4]
    planted = [*events]
    planted[index] = msgspec.structs.replace(events[index], reason="no_luck")
    step = next(event.step for event in reversed(events[:index]) if hasattr(event, "step"))
    page = open_page(as_trace(events), as_trace(planted, "other.jsonl"))
    press(page, "x")
    assert current_step(page) == step
    assert f"step {step}: A held request" in page.locator(".banner.differs").inner_text()
    told = page.locator(".words").all_inner_texts()
    assert told[0] != told[1]
    assert "no_luck" in told[1]
    assert snapshot(page, 0)["step"] == snapshot(page, 1)["step"] == step


def test_both_states_are_those_of_their_own_runs(open_page: OpenPage) -> None:
    runs = tight_run(), tight_run(watermark_blocks=3)
    page = open_page(as_trace(runs[0]), as_trace(runs[1], "other.jsonl"))
    press(page, "x", ".", ".")
    for index, events in enumerate(runs):
        assert snapshot(page, index) == replayed(Timeline(events).at(current_step(page)))
    assert page.locator("canvas.lanes").count() == 2
    assert "watermark_blocks is 0 in A, 3 in B" in page.locator(".banner.differs").inner_text()


def test_two_equal_runs_are_said_to_be_equal(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()), as_trace(tight_run(), "other.jsonl"))
    assert page.locator(".transport").get_by_text("Both runs made the same decisions.").is_visible()


# ---- for everybody ---------------------------------------------------------------------------------------------------


def test_names_stay_text(open_page: OpenPage) -> None:
    names = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "<!--", "\u2028&amp;", "{r}"]
    requests = [request(name, range(50 * i + 1, 50 * i + 7), 6) for i, name in enumerate(names)]
    trace = as_trace(run(tight_config(), requests), "<b>run.jsonl")
    page = open_page(trace, hash="#step=2")
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    assert page.locator("h1").inner_text() == "<b>run.jsonl"
    assert {row["id"] for row in snapshot(page)["requests"]} <= set(names)
    assert page.locator(".queue-row .link").first.text_content() == names[0]
    page.locator(".queue-row .link").first.click()
    wait_until_drawn(page)
    assert page.locator(".inspector h2").text_content() == names[0]
    assert page.locator("img, h1 b").count() == 0


def test_everything_is_reached_by_keyboard(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()), hash="#step=6")
    reached: set[str] = set()
    for _ in range(120):
        press(page, "Tab")
        described = page.evaluate(
            """() => {
              const root = document.querySelector('#replay').shadowRoot;
              const focused = root.activeElement;
              if (!focused) return null;
              const outline = getComputedStyle(focused).outlineStyle;
              const name = focused.getAttribute('aria-label') || focused.textContent || focused.placeholder;
              return [focused.tagName, name, outline];
            }"""
        )
        if described is None:
            break
        tag, name, outline = described
        assert name, f"a {tag} without a name"
        assert outline != "none", f"no visible focus on {name}"
        reached.add(name.split(".")[0])
    wanted = ["Find a request", "Play (Space)", "Next step (", "Step", "Next preemption", "Keys (?)", "Queues"]
    assert all(any(name.startswith(prefix) for name in reached) for prefix in wanted)
    assert any("request lanes" in name for name in reached)
    assert any("16 blocks" in name for name in reached)


def test_lanes_and_blocks_answer_to_arrow_keys(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()), hash="#step=6")
    page.locator("canvas.lanes").focus()
    press(page, "ArrowDown", "ArrowDown")
    assert page.locator(".inspector h2").inner_text() == "r1"
    page.locator("canvas.blocks").focus()
    press(page, "ArrowRight", "ArrowRight", "Enter")
    assert page.locator(".inspector h2").inner_text() == "Block 2"
    assert page.locator(".blocks-panel [role=status]").inner_text().startswith("Block 2: ")


def test_the_list_of_keys_opens_and_closes(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()))
    press(page, "?")
    assert page.locator(".help").is_visible()
    press(page, "Escape")
    assert page.locator(".help").is_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_is_that_of_the_system_and_may_be_turned(open_page: OpenPage, theme: str) -> None:
    page = open_page(as_trace(tight_run()), color_scheme=theme)
    assert page.get_attribute("#replay", "data-theme") == theme
    press(page, "l")
    assert page.get_attribute("#replay", "data-theme") != theme


def test_an_incomplete_trace_says_so(open_page: OpenPage) -> None:
    events = tight_run()[:90]
    page = open_page(as_trace(events))
    assert page.locator(".banner").inner_text().startswith("incomplete: run.jsonl: the trace ends within step")
    press(page, "End")
    assert snapshot(page) == replayed(Timeline(events).at(current_step(page)))


def test_a_trace_of_nothing_is_a_page_too(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()[:1]))
    press(page, ".", ",", "w", "f", "t", "Space", "]", "ArrowDown")
    assert snapshot(page)["requests"] == []


def test_it_can_be_taken_away(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()))
    page.evaluate("window.replay.destroy()")
    assert page.evaluate("document.querySelector('#replay').shadowRoot.childElementCount") == 0
    press(page, ".", "w")


def test_it_can_be_mounted_into_any_element_twice(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content("<style>button { display: none }</style><div id='a'></div><div id='b'></div>")
    page.add_script_tag(content=f"{bundle('app.js')}\nwindow.mountReplay = mount;", type="module")
    page.wait_for_function("() => window.mountReplay !== undefined")  # a module is run when the browser comes to it
    data = [page_data(as_trace(tight_run())), page_data(as_trace(tight_run(watermark_blocks=3)))]
    page.evaluate(
        """async (data) => {
          window.apps = [];
          for (const [i, id] of ["a", "b"].entries()) {
            window.apps.push(await window.mountReplay(document.getElementById(id), data[i]));
          }
        }""",
        data,
    )
    page.locator("#a").get_by_role("button", name="Next step (.)").click()
    press(page, ".", ".")
    assert page.evaluate("window.apps.map((app) => app.snapshot().step)") == [3, 0]
    page.close()


def test_a_narrow_window_shows_all_panels(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()), viewport={"width": 900, "height": 800})
    for panel in (".words-panel", ".counters-panel", ".queues-panel", ".blocks-panel"):
        box = page.locator(panel).bounding_box()
        assert box is not None
        assert box["width"] > 250
        assert box["x"] + box["width"] <= 901
