"""One page that replays a run in any browser: computed by Python, drawn by a little JavaScript."""

from viz.web.page import page, page_data, write_page

__all__ = ["page", "page_data", "write_page"]
