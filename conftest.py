pytest_plugins = ["tools.cells.plugin"]
