"""The page in a real browser: what it shows is what the replayer says, step by step, and all of it can be reached."""

from __future__ import annotations

from typing import Any

from nanovllm.trace.timeline import Timeline
from tests.viz.web.conftest import OpenPage
from tests.viz.web.driving import current_step, expect_step, press, snapshot, wait_until_drawn
from tests.viz.web.states import Tables, replayed
from tests.viz.web.traces import as_trace, tight_run
from viz.web.recording import record


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
