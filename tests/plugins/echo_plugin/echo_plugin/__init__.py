"""Entry points, as vLLM's documentation describes them."""


def register():
    return "echo_plugin.processor.EchoProcessor"


def decline():
    return None


def no_class():
    return "echo_plugin.processor.WORDS"
