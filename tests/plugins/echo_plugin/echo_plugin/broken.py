"""A plugin whose dependency is missing."""

import a_package_that_is_not_there  # noqa: F401


def register():
    return "echo_plugin.processor.EchoProcessor"
