"""The page in a real browser: what it shows is what the replayer says, and everything works by keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from nanovllm.trace.events import Held
from nanovllm.trace.timeline import Timeline
from tests.viz.web.conftest import OpenPage
from tests.viz.web.states import State, Tables, replayed
from tests.viz.web.traces import as_trace, request, run, tight_config, tight_run
from viz.web import page_data
from viz.web.recording import record
from viz.web.scripts import bundle

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


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


def steps_with(events: list[Any], kind: str) -> list[int]:
    """The steps in which a page has a sentence of this kind."""
    tables = Tables(record(as_trace(events)))
    words = tables.recorded["words"]
    codes = [i for i, (_, code) in enumerate(words["templates"]) if words["kinds"][code]["name"] == kind]
    columns = zip(tables.column("sentence.frame"), tables.column("sentence.template"), strict=True)
    steps = tables.column("frame.step")
    return sorted({steps[frame] for frame, template in columns if template in codes})


# ---- state -----------------------------------------------------------------------------------------------------------


def test_the_state_is_that_of_the_replayer_at_every_step(open_page: OpenPage) -> None:
    events = tight_run()
    timeline, page = Timeline(events), open_page(as_trace(events))
    for step in timeline.steps:
        page.evaluate(f"window.replay.goToStep({step})")
        assert snapshot(page) == replayed(timeline.at(step))


def test_a_step_on_and_back_leads_to_the_same_state(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()), hash="#step=7")
    before = snapshot(page)
    press(page, ".")
    assert snapshot(page)["step"] == 8
    assert snapshot(page) != before
    press(page, ",")
    assert snapshot(page) == before
    press(page, "End", "Home", ">", ",", ",", ",")
    assert snapshot(page) == before


def test_the_words_of_a_step_are_on_the_page(open_page: OpenPage) -> None:
    events = tight_run()
    tables, page = Tables(record(as_trace(events))), open_page(as_trace(events))
    step = steps_with(events, "preempted")[0]
    page.evaluate(f"window.replay.goToStep({step})")
    shown = page.locator(".words > li > span:last-child").all_inner_texts()
    assert [text.replace("–", "-") for text in shown] == tables.sentences(step)
    assert any("is preempted for" in text for text in shown)
    assert "is preempted for" in page.locator("[role=status]").filter(has_text="Step ").first.inner_text()


# ---- getting about ---------------------------------------------------------------------------------------------------


def test_jumps_go_to_every_event_of_a_kind(open_page: OpenPage) -> None:
    events = tight_run()
    page = open_page(as_trace(events))
    for kind in ("preempted", "held", "hit", "chunk", "evicted", "finished"):
        page.evaluate(f"window.replay.session.jumpKind = '{kind}'")
        press(page, "Home")
        visited = [step for step in [current_step(page)] if step in steps_with(events, kind)]
        while True:
            before = current_step(page)
            press(page, "]")
            if current_step(page) == before:
                break
            visited.append(current_step(page))
        assert visited == steps_with(events, kind)
        press(page, "[")
        assert current_step(page) == visited[-2]


def test_the_address_names_the_step(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()), hash="#step=11")
    assert current_step(page) == 11
    press(page, ".")
    page.wait_for_url("**#step=12")
    page.evaluate("location.hash = '#step=5'")
    expect_step(page, 5)


def test_playing_goes_on_to_the_end_and_stops(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()))
    page.select_option("select", "100")
    page.evaluate("document.activeElement.blur()")
    press(page, "Space")
    expect_step(page, Timeline(tight_run()).steps[-1])
    page.get_by_role("button", name="Play (Space)").wait_for()


def test_zoom_pan_and_fit_change_the_view_only(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()), hash="#step=7")

    def view() -> list[float]:
        bounds: list[float] = page.evaluate("[window.replay.session.axis.start, window.replay.session.axis.end]")
        return bounds

    whole = view()
    press(page, "w", "w")
    zoomed = view()
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    assert zoomed[0] <= 7 <= zoomed[1]
    press(page, "d")
    assert view()[0] > zoomed[0]
    press(page, "a", "f")
    assert view() == whole
    page.hover("canvas.overview")
    page.mouse.wheel(0, -400)
    wait_until_drawn(page)
    assert view()[1] - view()[0] < whole[1] - whole[0]
    assert current_step(page) == 7


def test_the_axis_may_be_time(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()), hash="#step=7")
    press(page, "t")
    assert page.evaluate("window.replay.session.axis.mode") == "time"
    press(page, ".")
    assert current_step(page) == 8


# ---- details ---------------------------------------------------------------------------------------------------------


def test_a_click_on_a_lane_goes_there_and_shows_the_request(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()))
    box = page.locator("canvas.lanes").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 22 + 20 * 2.5)
    wait_until_drawn(page)
    assert page.locator(".inspector h2").inner_text() == "r2"
    assert abs(current_step(page) - len(Timeline(tight_run()).steps) // 2) <= 2
    press(page, "Escape")
    assert page.locator(".inspector").is_hidden()


def test_a_block_shows_every_holder_over_time(open_page: OpenPage) -> None:
    events = tight_run()
    tables, page = Tables(record(as_trace(events))), open_page(as_trace(events), hash="#step=6")
    page.locator("canvas.blocks").click(position={"x": 20, "y": 20})
    wait_until_drawn(page)
    holders = [
        row
        for block, row in zip(tables.column("holding.block"), tables.column("holding.row"), strict=True)
        if block == 0
    ]
    shown = page.locator(".holders .link.request").all_inner_texts()
    assert shown == [tables.recorded["ids"][row] for row in holders]
    assert len(set(shown)) > 1


def test_hovering_a_block_tells_its_owner_and_references(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()), hash="#step=1")
    page.locator("canvas.blocks").hover(position={"x": 20, "y": 20})
    text = page.locator(".tooltip").inner_text()
    assert text.startswith("Block 0: in use")
    assert "held by r0" in text
    assert "1 reference" in text


def test_a_search_leaves_the_lanes_that_match(open_page: OpenPage) -> None:
    page = open_page(as_trace(tight_run()))
    press(page, "/")
    page.keyboard.type("r11")
    page.get_by_text("1 found").wait_for()
    press(page, "Enter")
    assert page.locator(".inspector h2").inner_text() == "r11"
    assert page.evaluate("window.replay.snapshot().waiting.concat(window.replay.snapshot().running)").count("r11") == 1


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
