"""The browser of the replay page's tests."""

from tests.viz.web.conftest import browser

__all__ = ["browser"]
