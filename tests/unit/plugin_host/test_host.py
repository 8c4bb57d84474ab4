"""A plugin that knows only vLLM's interface, through our pipeline: its order, its outputs, and nothing left of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

from serve_app.engine.fake_engine import FakeEngine, fake_values
from serve_app.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    EngineDead,
    InternalError,
    InvalidRequest,
    PoolserveError,
)
from serve_app.messages import Context, DataRequest, DataResult, Truncation
from serve_app.pipeline import Pipeline
from serve_app.plugin_host import host as host_module
from serve_app.plugin_host.host import PluginHost, plugin_host
from serve_app.plugin_host.registration import PluginError
from serve_app.tasks.model import TextModel
from tests.checkpoints import Checkpoints
from tests.unit.models import text_model

TEXTS = ["the lazy dog", "waterproof boots"]


class Served:
    """The pipeline of a model with the echo plugin, on a fake engine."""

    def __init__(self, model: TextModel, host: PluginHost, executor: ThreadPoolExecutor) -> None:
        self.model = model
        self.engine = FakeEngine(model.settings, width=3)
        self.pipeline = Pipeline(model, self.engine, executor, plugin=host)
        self.prototype = host._plugin

    async def ask(self, data: Any, *, within_s: float = 30.0, name: str = "r", **request: Any) -> Any:
        """The answer to `data`."""
        context = Context(name, time.time() + within_s)
        result = await self.pipeline.run(context, DataRequest(data, 100, 10, **request))
        assert isinstance(result, DataResult)
        return orjson.loads(result.json)

    def held(self) -> list[int]:
        """What the constructed plugin's tables hold."""
        plugin = self.prototype
        return [len(plugin.cache), len(plugin.store.notes), len(type(plugin).everyone), len(plugin.queue)]


@pytest.fixture(scope="module")
def model(checkpoints: Checkpoints, echo_installed: Path) -> TextModel:
    return text_model(checkpoints.bert(3), "classify", io_processor_plugin="echo")


@pytest.fixture(scope="module")
def host(model: TextModel) -> PluginHost:
    made = plugin_host(model)
    assert made is not None
    return made


@pytest.fixture
def served(model: TextModel, host: PluginHost) -> Iterator[Served]:
    with ThreadPoolExecutor(1) as executor:
        yield Served(model, host, executor)


def living_notes() -> int:
    """Requests of which the plugin's notes are still somewhere in memory."""
    from echo_plugin.processor import Note

    gc.collect()
    return sum(type(item) is Note for item in gc.get_objects())


@pytest.mark.parametrize("prompts", ["text", "ids", "dicts"])
async def test_texts_ids_and_dicts_reach_the_engine_as_the_models_sequences(served: Served, prompts: str) -> None:
    data = {"texts": TEXTS, "task": "classify", "prompts": prompts}
    answer = await served.ask(data, name="r7")
    tokenizer = served.model.tokenizer
    special = tokenizer.single
    for i, (text, item) in enumerate(zip(TEXTS, answer["answers"], strict=True)):
        ids = [*special.before, *tokenizer.encode([text])[0], *special.after]
        assert item["tokens"] == ids
        assert item["text"] == text
        assert item["request_id"] == f"r7-{i}"
        assert item["shape"] == [3]
        assert item["values"] == pytest.approx(fake_values(_array(ids), 3).tolist())
    assert answer["request_id"] == "r7"
    assert answer["held"] == [0, 0, 0, 0]


def _array(ids: list[int]) -> Any:
    import numpy as np

    return np.array(ids, dtype=np.int32)


async def test_the_pooling_params_reach_the_engine(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []
    run = served.engine.run

    async def watched(batch: Any, loaded: Any = None) -> Any:
        batches.append(batch)
        return await run(batch, loaded)

    monkeypatch.setattr(served.engine, "run", watched)
    extra = {"compressed_token_type_ids": 3}
    await served.ask({"texts": TEXTS, "task": "token_classify", "use_activation": False, "extra": extra})
    assert batches[0].task == "token_classify"
    assert batches[0].params == {"task": "token_classify", "use_activation": False, "extra_kwargs": extra}
    await served.ask({"texts": TEXTS})
    assert batches[1].params == {"task": "plugin"}


async def test_values_of_tokens_keep_their_shape(served: Served) -> None:
    answer = await served.ask({"texts": TEXTS, "task": "token_classify"})
    for item in answer["answers"]:
        assert item["shape"] == [len(item["tokens"]), 3]
        assert item["values"][1] == pytest.approx(fake_values(_array(item["tokens"][1:2]), 3).tolist())


async def test_the_first_prompt_alone_may_come_without_a_list(served: Served) -> None:
    assert len((await served.ask({"texts": TEXTS[:1]}))["answers"]) == 1


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"texts": 3}, InvalidRequest, "data: texts: must be a list of strings"),
        ({"nope": []}, InvalidRequest, "data: texts: must be a list of strings"),
        ({"texts": []}, InvalidRequest, "data: the plugin made no prompts of it"),
        ({"texts": ["word " * 500]}, ContextLengthExceeded, "prompt 0 has .* tokens; there is room for 64"),
        ({"texts": ["a"], "prompts": "fail"}, InternalError, "the model's IO processor plugin failed; it was logged"),
        ({"texts": ["a"], "prompts": "picture"}, InternalError, "plugin failed"),
        ({"texts": ["a"], "task": "no_such_task"}, InternalError, "plugin failed"),
        ({"texts": ["a"], "fail_after": True}, InternalError, "plugin failed"),
    ],
)
async def test_errors_are_told_apart_and_say_nothing_of_our_insides(
    served: Served, caplog: pytest.LogCaptureFixture, data: Any, error: type[PoolserveError], message: str
) -> None:
    with caplog.at_level(logging.CRITICAL), pytest.raises(error, match=message) as caught:
        await served.ask(data)
    assert type(caught.value) is error
    assert "secret" not in str(caught.value)


async def test_a_long_text_is_cut_only_if_asked(served: Served) -> None:
    truncation = Truncation(enabled=True, max_input_tokens=10)
    answer = await served.ask({"texts": ["fox " * 500, "fox"], "prompts": "text"}, truncation=truncation)
    first, second = (item["tokens"] for item in answer["answers"])
    assert len(first) == 10
    assert first[-1] == second[-1] == served.model.tokenizer.single.after[-1]


# --- nothing is left --------------------------------------------------------------------------------------------------


def test_the_plugin_leaks_where_one_instance_serves_all(host: PluginHost) -> None:
    """What the next tests would find if requests reached the constructed plugin, as they do in vLLM."""
    from echo_plugin.processor import EchoProcessor

    plugin = EchoProcessor(host._plugin.vllm_config, _Renderer())
    before = living_notes()
    for i in range(20):
        plugin.pre_process(plugin.parse_data({"texts": ["a"]}), request_id=f"gone-{i}")  # and no post_process
    assert living_notes() - before == 20
    assert len(plugin.cache) == len(plugin.store.notes) == len(plugin.queue) == len(type(plugin).everyone) == 20
    type(plugin).everyone.clear()


class _Renderer:
    def get_tokenizer(self) -> None:
        return None


async def test_200_aborted_requests_leave_nothing(served: Served) -> None:
    served.engine.delay_s = 30.0
    before = living_notes()
    tasks = [asyncio.ensure_future(served.ask({"texts": TEXTS}, name=f"a{i}")) for i in range(200)]
    while served.engine.load().sequences < 2 * 200:
        await asyncio.sleep(0.01)
    assert living_notes() - before == 200  # under way, each with its own
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    del task, tasks, outcomes  # a cancelled task holds the frames that it was cancelled in
    await asyncio.sleep(0.05)
    assert living_notes() == before
    assert served.held() == [0, 0, 0, 0]
    assert served.engine.load().unfinished == 0
    served.engine.delay_s = 0.0
    assert (await served.ask({"texts": TEXTS}))["held"] == [0, 0, 0, 0]


async def test_requests_aborted_at_any_moment_leave_nothing(served: Served) -> None:
    before = living_notes()
    served.engine.delay_s = 0.005
    for i in range(60):
        task = asyncio.ensure_future(served.ask({"texts": TEXTS}, name=f"m{i}"))
        await asyncio.sleep(i * 0.0005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del task
    served.engine.delay_s = 0.0
    await served.ask({"texts": TEXTS})  # behind them on the plugin's thread
    await asyncio.sleep(0.05)
    assert living_notes() == before
    assert served.held() == [0, 0, 0, 0]


async def test_failures_and_deadlines_leave_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "logger", logging.Logger("nobody"))  # pytest keeps records and their tracebacks
    before = living_notes()
    for data in ({"texts": ["a"], "prompts": "fail"}, {"texts": ["a"], "fail_after": True}):
        for _ in range(10):
            with pytest.raises(InternalError):
                await served.ask(data)
    for _ in range(10):
        with pytest.raises(ContextLengthExceeded):
            await served.ask({"texts": ["word " * 500]})
    served.engine.delay_s = 30.0
    for _ in range(5):
        with pytest.raises(DeadlineExceeded):
            await served.ask({"texts": TEXTS}, within_s=0.05)
    served.engine.dead = True
    for _ in range(10):
        with pytest.raises(EngineDead):
            await served.ask({"texts": TEXTS})
    served.engine.dead, served.engine.delay_s = False, 0.0
    await served.ask({"texts": TEXTS})  # the last error stays until the plugin's thread has something else to do
    assert living_notes() == before
    assert served.held() == [0, 0, 0, 0]


async def test_two_requests_of_one_id_get_their_own_answers(served: Served) -> None:
    served.engine.delay_s = 0.05
    first, second = await asyncio.gather(
        served.ask({"texts": ["one"]}, name="same"), served.ask({"texts": ["two"]}, name="same")
    )
    assert [answer["answers"][0]["text"] for answer in (first, second)] == ["one", "two"]


async def test_a_plugin_that_hangs_is_504_at_the_deadline(
    served: Served, host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    go_on = threading.Event()
    monkeypatch.setattr(type(host._plugin), "parse_data", lambda self, data: go_on.wait(10))
    with pytest.raises(DeadlineExceeded):
        await served.ask({"texts": TEXTS}, within_s=0.2)
    go_on.set()


# --- the start --------------------------------------------------------------------------------------------------------


def test_the_plugin_gets_vllms_own_config_and_renderer(model: TextModel, host: PluginHost) -> None:
    from vllm.config import VllmConfig

    config = host._plugin.vllm_config
    assert isinstance(config, VllmConfig)
    assert config.model_config.max_model_len == model.settings.max_model_len
    assert config.model_config.io_processor_plugin == "echo"
    assert str(config.model_config.dtype) == "torch.float32"
    assert host._plugin.tokenizer.encode("fox") == [
        *model.tokenizer.single.before,
        *model.tokenizer.encode(["fox"])[0],
        *model.tokenizer.single.after,
    ]


@pytest.mark.parametrize("name", ["echo_broken", "nowhere"])
def test_a_plugin_that_cannot_be_had_stops_the_start(checkpoints: Checkpoints, echo_installed: Path, name: str) -> None:
    with pytest.raises(PluginError, match=f"io_processor_plugin: '{name}'"):
        plugin_host(text_model(checkpoints.bert(3), "classify", io_processor_plugin=name))


def test_a_plugin_whose_constructor_fails_stops_the_start(
    model: TextModel, host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, config: Any, renderer: Any) -> None:
        raise KeyError("a setting")

    monkeypatch.setattr(type(host._plugin), "__init__", fail)
    with pytest.raises(PluginError, match="'echo' failed to start: KeyError: 'a setting'"):
        plugin_host(model)


def test_a_checkpoint_can_name_its_plugin_and_most_name_none(checkpoints: Checkpoints, echo_installed: Path) -> None:
    assert plugin_host(text_model(checkpoints.bert(3), "classify")) is None
    named = {"enforce_eager": True, "hf_overrides": {"io_processor_plugin": "nowhere"}}
    with pytest.raises(PluginError, match="'nowhere'"):
        plugin_host(text_model(checkpoints.bert(3), "classify", engine=named))
