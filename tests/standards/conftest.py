from tests.browser.conftest import built, once, server

__all__ = ["built", "once", "server"]
