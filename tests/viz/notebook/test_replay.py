"""The replay in a notebook: in a real browser, with a stand-in for the notebook around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from nanovllm.errors import TraceError
from nanovllm.trace.jsonl import read_trace, write_trace
from tests.viz.figures import runs
from viz.notebook import Picture, replay

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from viz.notebook.widget import ReplayWidget

HOST = """<!doctype html><meta charset="utf-8"><title>host</title><div id="cell"></div><script type="module">
import widget from "./widget.mjs";
const values = {values}, listeners = {};
const model = {
  get: (name) => values[name],
  set(name, value) { values[name] = value; (listeners[`change:${name}`] ?? []).forEach((listener) => listener()); },
  save_changes() { window.saved = values.step; },
  on(event, listener) { (listeners[event] ??= []).push(listener); },
  off(event, listener) { listeners[event] = listeners[event].filter((other) => other !== listener); },
};
window.model = model;
window.close = await widget.render({ model, el: document.getElementById("cell") });
document.body.dataset.state = "ready";
</script>"""


@pytest.fixture
def widget() -> ReplayWidget:
    pytest.importorskip("anywidget", reason="needs anywidget")
    return replay(runs.preempted_from_the_tail(), "D is preempted", name="tight")


def test_front_ends_without_widgets_get_a_picture(widget: ReplayWidget) -> None:
    data, metadata = widget._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "image/png", "text/plain"}
    assert data["text/plain"] == "[picture: D is preempted]"
    assert metadata["image/png"]["alt"] == "D is preempted"


def test_without_anywidget_it_is_a_picture() -> None:
    with patch("viz.notebook.replay.find_spec", return_value=None):
        assert isinstance(replay(runs.preempted_from_the_tail(), "D is preempted"), Picture)


def test_a_file_is_shown_under_its_name(tmp_path: Path, widget: ReplayWidget) -> None:
    write_trace(runs.preempted_from_the_tail(), tmp_path / "file.jsonl")
    assert replay(read_trace(tmp_path / "file.jsonl"), "")._data["runs"][0]["name"] == "file.jsonl"
    assert widget._data["runs"][0]["name"] == "tight"


@pytest.mark.parametrize("events", [[], runs.preempted_from_the_tail()[1:]])
def test_what_is_no_trace_is_refused(events: list[object]) -> None:
    with pytest.raises(TraceError, match="run: is no trace"):
        replay(events, "")


def test_it_runs_in_a_page(browser: Browser, tmp_path: Path, widget: ReplayWidget) -> None:
    (tmp_path / "widget.mjs").write_text(widget._esm, encoding="utf-8")
    values = json.dumps({"_data": widget._data, "step": 1})
    (tmp_path / "host.html").write_text(HOST.replace("{values}", values), encoding="utf-8")
    page = browser.new_context().new_page()
    page.route("http://host/*", lambda route: route.fulfill(path=tmp_path / Path(route.request.url).name))
    page.goto("http://host/host.html")
    page.wait_for_selector("body[data-state=ready]")
    cell = page.locator("#cell")
    assert cell.get_by_text("is preempted for").first.is_visible()
    page.evaluate("model.set('step', 0)")
    assert cell.get_by_text("arrives").first.is_visible()
    cell.get_by_role("button", name="Next step").first.click()
    page.wait_for_function("window.saved === 1")
    page.evaluate("close()")
    assert page.evaluate("document.getElementById('cell').shadowRoot.childElementCount") == 0
    page.context.close()
