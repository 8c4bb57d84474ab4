"""Keeps a table of requests: filled in pre_process, cleaned in post_process, as vLLM's documentation suggests."""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from vllm import PoolingParams
from vllm.plugins.io_processors.interface import IOProcessor

WORDS = ("one", "two")


class Note:
    """What is kept of a request; a class of its own, so that a test can count the living ones."""

    def __init__(self, request, texts):
        self.request = request
        self.texts = texts
        self.ballast = bytearray(100_000)


class Store:
    """A table behind an object, with a lock that cannot be copied."""

    def __init__(self):
        self.lock = threading.Lock()
        self.notes = OrderedDict()

    def put(self, key, note):
        with self.lock:
            self.notes[key] = note

    def take(self, key):
        with self.lock:
            return self.notes.pop(key)


@dataclass
class EchoRequest:
    texts: list
    task: str | None = None
    use_activation: bool | None = None
    extra: dict | None = None
    prompts: str = "text"
    fail_after: bool = False


class EchoProcessor(IOProcessor):
    everyone = {}  # noqa: RUF012  # a table of the class, as careless code has it

    def __init__(self, vllm_config, renderer):
        super().__init__(vllm_config, renderer)
        self.tokenizer = renderer.get_tokenizer()
        self.labels = {0: "first"}
        self.cache = {}
        self.store = Store()
        self.queue = []
        self.remember = self.cache_it
        self.pre_processed = 0

    def cache_it(self, key, note):
        self.cache[key] = note

    def parse_data(self, data):
        if not isinstance(data, dict) or not isinstance(data.get("texts"), list):
            raise ValueError("texts: must be a list of strings")
        return EchoRequest(**data)

    def pre_process(self, prompt, request_id=None, **kwargs):
        self.pre_processed += 1
        note = Note(prompt, list(prompt.texts))
        self.remember(request_id, note)
        self.store.put(request_id, note)
        self.everyone[request_id] = note
        self.queue.append(prompt)
        if prompt.prompts == "fail":
            raise RuntimeError("secret: the plugin's own fault at /some/path")
        if prompt.prompts == "ids":
            return [{"prompt_token_ids": self.tokenizer.encode(text)} for text in prompt.texts]
        if prompt.prompts == "dicts":
            return [{"prompt": text} for text in prompt.texts]
        if prompt.prompts == "picture":
            return [{"prompt_token_ids": [1], "multi_modal_data": {"image": "x"}}]
        return prompt.texts[0] if len(prompt.texts) == 1 else list(prompt.texts)

    def merge_pooling_params(self, params=None):
        request = self.queue.pop(0)
        params = params or PoolingParams()
        params.task = request.task
        params.use_activation = request.use_activation
        params.extra_kwargs = request.extra
        return params

    def post_process(self, model_output, request_id=None, **kwargs):
        note = self.cache.pop(request_id)
        self.store.take(request_id)
        del self.everyone[request_id]
        if note.request.fail_after:
            raise ValueError("post_process failed")
        return {
            "request_id": request_id,
            "answers": [
                {
                    "text": text,
                    "request_id": output.request_id,
                    "tokens": output.prompt_token_ids,
                    "shape": list(output.outputs.data.shape),
                    "values": output.outputs.data.tolist(),
                }
                for text, output in zip(note.texts, model_output, strict=True)
            ],
            "held": [len(self.cache), len(self.store.notes), len(self.everyone), len(self.queue)],
        }
