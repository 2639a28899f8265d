from tests.browser.conftest import built, server

__all__ = ["built", "server"]
