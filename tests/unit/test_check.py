"""The check command: each planted fault is found and named with its path."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.__main__ import main
from serve_app.check import check_file
from tests.checkpoints import Checkpoints
from tests.cluster import ROOT, default_config


@pytest.fixture
def config(checkpoints: Checkpoints) -> dict[str, Any]:
    content = copy.deepcopy(default_config())
    for application, source in zip(
        content["applications"][1:4], (checkpoints.bert(0), checkpoints.bert(1), checkpoints.roberta(3)), strict=True
    ):
        application["args"]["source"] = str(source)
        application["args"]["max_model_len"] = 256
    return content


def _write(content: Any, folder: Path) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_default_and_the_production_configuration_pass() -> None:
    for path in (ROOT / "serve_config.yaml", ROOT / "cluster" / "production.yaml"):
        report = check_file(path, gpu_memory_gib=80)
        assert [str(problem) for problem in report.problems] == []
        assert report.models


def _args(content: dict[str, Any], i: int) -> dict[str, Any]:
    args: dict[str, Any] = content["applications"][i]["args"]
    return args


def _route(content: dict[str, Any]) -> dict[str, Any]:
    models: dict[str, Any] = content["applications"][0]["deployments"][0]["user_config"]["models"]
    return models


def _flags(content: dict[str, Any]) -> dict[str, str]:
    flags: dict[str, str] = content["controller_options"]["runtime_env"]["env_vars"]
    return flags


def _cuda(content: dict[str, Any], i: int, gpus: float, memory: float, **engine: Any) -> dict[str, Any]:
    changes = {"device": "cuda", "gpu_memory_utilization": memory, "pooling_engine": {"num_gpus": gpus, **engine}}
    _args(content, i).update(changes)
    return _args(content, i)


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "unknown top level key": (lambda c: c.update(aplications=[]), "aplications: unknown"),
    "unknown argument": (lambda c: _args(c, 1).update(max_len=3), "applications[1].args.max_len: unknown key"),
    "missing argument": (lambda c: _args(c, 2).pop("dtype"), "applications[2].args.dtype: Field required"),
    "nested": (
        lambda c: _args(c, 2).update(engine={"kind": "tensorrt"}),
        "applications[2].args.engine.kind: Input should be 'vllm', 'torch' or 'fake'",
    ),
    "application name": (lambda c: c["applications"][1].update(name="x"), "applications[1].name: must be 'minilm-1'"),
    "route prefix": (lambda c: c["applications"][1].update(route_prefix="/x"), "applications[1].route_prefix"),
    "route to nothing": (
        lambda c: _route(c)["minilm"]["versions"]["1"].update(application="gone"),
        "user_config.models.minilm.versions.1.application: no application 'gone'",
    ),
    "wrong task in the table": (
        lambda c: _route(c)["ce-mini"]["versions"]["1"].update(task="embed"),
        "user_config.models.ce-mini.versions.1.task: the application's task is rerank",
    ),
    "wrong version in the table": (
        lambda c: _route(c).update({"ce-mini": {"versions": {"2": {"application": "ce-mini-1", "task": "rerank"}}}}),
        "user_config.models.ce-mini.versions.2.application: serves ce-mini@1",
    ),
    "a plugin that is not installed": (
        lambda c: _args(c, 1).update(io_processor_plugin="nowhere"),
        "minilm-1.args.io_processor_plugin: 'nowhere' (vllm.io_processor_plugins) is not installed",
    ),
    "no such source": (lambda c: _args(c, 1).update(source="/nowhere/model"), "minilm-1.args.source: '/nowhere/model'"),
    "no such package": (lambda c: _args(c, 1).update(source="package:nope/x"), "minilm-1.args.source: package 'nope'"),
    "labels of another task": (
        lambda c: _args(c, 2).update(source=_args(c, 3)["source"]),
        "ce-mini-1.args.source: a reranker has one label; this checkpoint has 3",
    ),
    "longer than the positions": (
        lambda c: _args(c, 3).update(max_model_len=513),
        "intent-mini-1.args.max_model_len: 513 is more than the checkpoint's 512 positions",
    ),
    "throughput without the proxy": (
        lambda c: _flags(c).pop("RAY_SERVE_ENABLE_HA_PROXY"),
        "env_vars: RAY_SERVE_THROUGHPUT_OPTIMIZED without",
    ),
    "4 MiB messages": (
        lambda c: _flags(c).pop("RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH"),
        "env_vars: RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH",
    ),
    "engines of a GPU together": (
        lambda c: _args(c, 1).update(device="cuda", gpu_memory_utilization=0.5, pooling_engine={"num_gpus": 0.5}),
        "minilm-1.args.gpu_memory_utilization: Ray can put 2 x minilm-1 (0.5 GPUs) on one GPU; they would take 1.00",
    ),
    "engines of two models on a GPU": (
        lambda c: (_cuda(c, 1, 0.6, 0.9), _cuda(c, 2, 0.4, 0.45)),
        "ce-mini-1.args.gpu_memory_utilization: Ray can put 1 x ce-mini-1 (0.4 GPUs) and 1 x minilm-1 (0.6 GPUs) on "
        "one GPU; they would take 1.35 of its memory, at most 0.90",
    ),
    "fewer GPUs than parts of the model": (
        lambda c: _cuda(c, 1, 1, 0.9).update(engine={"tensor_parallel_size": 2}),
        "applications[1].args: pooling_engine.num_gpus: engine.tensor_parallel_size 2 needs as many GPUs",
    ),
    "two applications of a name": (
        lambda c: c["applications"].append(copy.deepcopy(c["applications"][2])),
        "applications[8].name: 'ce-mini-1' is the name of applications[2] too",
    ),
    "a gateway without a route": (
        lambda c: c["applications"][0].update(route_prefix=None),
        "applications[0].route_prefix: null",
    ),
    "gRPC on the port of HTTP": (
        lambda c: _args(c, 0)["grpc"].update(port=8000),
        "applications[0].args.grpc.port: 8000 is a port of the HTTP proxy",
    ),
    "gRPC on the port of HAProxy's statistics": (
        lambda c: _args(c, 0)["grpc"].update(port=8404),
        "applications[0].args.grpc.port: 8404 is a port of the HTTP proxy",
    ),
    "a port that is none": (
        lambda c: c["http_options"].update(port="x"),
        "http_options.port: must be a whole number from 1 to 65535, and is 'x'",
    ),
    "a port that there cannot be": (lambda c: c["http_options"].update(port=70_000), "http_options.port: must be a"),
    "a size with a unit": (
        lambda c: _flags(c).update(RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH="64M"),
        "env_vars.RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH: must be a whole number",
    ),
    "options that are a word": (lambda c: c.update(http_options="x"), "http_options: must be a mapping"),
    "flags that are a list": (
        lambda c: c["controller_options"]["runtime_env"].update(env_vars=["a"]),
        "controller_options.runtime_env.env_vars: must be a mapping",
    ),
    "an application that is nothing": (lambda c: c["applications"].append(None), "applications[8]: must be a mapping"),
    "a deployment that is nothing": (
        lambda c: c["applications"][0]["deployments"].insert(0, None),
        "applications[0].deployments[0]: must be a mapping",
    ),
    "deployments that are a word": (
        lambda c: c["applications"][1].update(deployments="x"),
        "applications[1].deployments: must be a list",
    ),
    "no image loader": (
        lambda c: _args(c, 5).update(images={"loader": "gone"}),
        "clip-mini-1.args.images.loader: no application 'gone' of serve_app.app:images",
    ),
    "images in a checkpoint that has none": (
        lambda c: _args(c, 6).update(source=_args(c, 1)["source"]),
        "fusion-mini-1.args.source: task image_rank needs a checkpoint of type fusion_ranker; this is 'bert'",
    ),
    "a host cache smaller than a sequence": (
        lambda c: _args(c, 6).update(images={"host_cache_gib": 0.001}),
        "fusion-mini-1.args.images.host_cache_gib: a sequence's 128 pictures need",
    ),
    "no room for the features": (
        lambda c: _args(c, 6).update(images={"device_cache": 1_000_000}),
        "fusion-mini-1.args.source: needs",
    ),
    "image limits that contradict": (
        lambda c: _args(c, 4).update(max_image_pixels=10**9),
        "applications[4].args: max_pixels_in_flight: less than max_image_pixels",
    ),
    "no network": (lambda c: _args(c, 4).update(allow_networks=["10.0.0.0/99"]), "applications[4].args.allow_networks"),
    "more than the GPU has": (
        lambda c: _args(c, 1).update(device="cuda", gpu_memory_utilization=0.001, pooling_engine={"num_gpus": 1.0}),
        "minilm-1.args.gpu_memory_utilization: needs",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_with_its_path(
    fault: str, config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_file(_write(config, tmp_path), 80).problems == []
    plant, expected = FAULTS[fault]
    plant(config)
    path = _write(config, tmp_path)
    problems = [str(problem) for problem in check_file(path, 80).problems]
    assert any(expected in problem for problem in problems), problems
    assert main(["check", str(path), "--gpu-memory-gib", "80"]) == 1
    assert "error:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "engines",
    [
        [{"gpus": 0.5, "memory": 0.45}, {"gpus": 0.5, "memory": 0.45}],
        [{"gpus": 0.6, "memory": 0.9}, {"gpus": 0.6, "memory": 0.9}],  # never on one
        [{"gpus": 1, "memory": 0.9, "engines_per_gpu": 3}, {"gpus": 0.3, "memory": 0.3}],  # 0.3333 GPUs and 0.3 each
        [  # never on one node
            {"gpus": 0.6, "memory": 0.9, "resources": {"big": 0.001}},
            {"gpus": 0.4, "memory": 0.45, "resources": {"small": 0.001}},
        ],
    ],
)
def test_engines_that_fit_a_gpu_pass(engines: list[dict[str, Any]], config: dict[str, Any], tmp_path: Path) -> None:
    for i, engine in enumerate(engines, start=1):
        _cuda(config, i, **engine)
    assert check_file(_write(config, tmp_path), 80).problems == []


def test_models_with_several_engines_per_gpu_share_it_with_others(config: dict[str, Any], tmp_path: Path) -> None:
    _cuda(config, 1, 1, 0.9, engines_per_gpu=3)  # a third of a GPU and 0.30 of its memory each
    _cuda(config, 2, 0.6, 0.7)
    (problem,) = check_file(_write(config, tmp_path), 80).problems
    assert "1 x ce-mini-1 (0.6 GPUs) and 1 x minilm-1 (0.3333 GPUs) on one GPU" in problem.message
    assert "1.00 of its memory" in problem.message


def test_heads_that_kill_the_cpu_engine_are_refused(
    config: dict[str, Any], checkpoints: Checkpoints, tmp_path: Path
) -> None:
    import json
    import shutil

    folder = tmp_path / "heads"
    shutil.copytree(checkpoints.bert(1), folder)
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, "num_attention_heads": 4}))
    _args(config, 2)["source"] = str(folder)
    problems = [str(problem) for problem in check_file(_write(config, tmp_path)).problems]
    assert any("attention heads of size 16 do not run on CPU" in problem for problem in problems)


def test_reservations_that_one_machine_cannot_meet_are_noted(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.cpu_count", lambda: 2)
    report = check_file(_write(config, tmp_path))
    assert not any("CPUs" in note for note in report.notes)  # the default starts on a laptop, and can be redeployed
    _args(config, 4)["replicas"] = {"num_replicas": 3, "num_cpus": 1}
    report = check_file(_write(config, tmp_path))
    assert report.problems == []  # a cluster may have them
    assert any("reserve 3." in note and "has 2" in note for note in report.notes), report.notes
    _args(config, 4)["replicas"] = {"autoscaling": {"max_replicas": 5}, "num_cpus": 1}
    report = check_file(_write(config, tmp_path))
    assert any("reserve 5." in note for note in report.notes), report.notes  # as many as there can be


def test_custom_resources_are_noted(config: dict[str, Any], tmp_path: Path) -> None:
    assert not any("custom resources" in note for note in check_file(_write(config, tmp_path)).notes)
    _args(config, 1)["pooling_engine"] = {"resources": {"gpu_node": 0.001}}
    _args(config, 4)["replicas"] = {"resources": {"cpu_node": 0.001}}
    notes = check_file(_write(config, tmp_path)).notes
    assert any("custom resources cpu_node, gpu_node: without a node" in note for note in notes), notes


@pytest.mark.parametrize("text", ["", "- a", "a: [", "applications: 3"])
def test_a_file_that_is_no_configuration(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert check_file(path).problems
    assert check_file(tmp_path / "missing.yaml").problems


def test_merged_options_and_the_plan_are_printed(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config["applications"][0]["args"]["api_keys"] = ["secret-key"]
    assert main(["check", str(_write(config, tmp_path))]) == 0
    out = capsys.readouterr().out
    assert "max_tokens_in_flight: 1000000" in out
    assert "Memory of one engine" in out
    assert "secret-key" not in out


def test_a_checkpoint_without_a_tokenizer_is_refused(
    config: dict[str, Any], checkpoints: Checkpoints, tmp_path: Path
) -> None:
    import shutil

    from serve_app.tokenization import TextTokenizer

    folder = tmp_path / "bare"
    shutil.copytree(checkpoints.bert(1), folder, ignore=shutil.ignore_patterns("tokenizer*"))
    _args(config, 2)["source"] = str(folder)
    problems = [str(problem) for problem in check_file(_write(config, tmp_path)).problems]
    assert any("ce-mini-1.args.source: the checkpoint has no tokenizer" in problem for problem in problems)
    with pytest.raises(ValueError, match="no tokenizer"):
        TextTokenizer(folder)


def _problems(config: dict[str, Any], tmp_path: Path) -> list[str]:
    return [str(problem) for problem in check_file(_write(config, tmp_path)).problems]


def test_a_reranker_without_a_head_is_refused(config: dict[str, Any], checkpoints: Checkpoints, tmp_path: Path) -> None:
    _args(config, 2)["source"] = str(checkpoints.bert(0))
    folder = checkpoints.changed(checkpoints.bert(0), tmp_path / "one", id2label={"0": "LABEL_0"})
    _args(config, 2)["source"] = str(folder)
    (problem,) = _problems(config, tmp_path)
    assert problem.startswith("ce-mini-1.args.source: task rerank needs a classification head"), problem


def test_a_decoder_that_ranks_needs_a_template(
    config: dict[str, Any], checkpoints: Checkpoints, tmp_path: Path
) -> None:
    _args(config, 2)["source"] = str(checkpoints.qwen3(1))
    (problem,) = _problems(config, tmp_path)
    assert problem.startswith("ce-mini-1.args.template: the checkpoint's tokenizer puts nothing between"), problem
    assert "qwen3-reranker" in problem
    _args(config, 2)["template"] = "qwen3-reranker"
    assert _problems(config, tmp_path) == []


def test_modules_that_would_be_passed_over_are_refused(
    config: dict[str, Any], checkpoints: Checkpoints, tmp_path: Path
) -> None:
    plain = checkpoints.sentence_transformers(checkpoints.bert(0), "MEAN", normalize=True)
    folder = checkpoints.changed(plain, tmp_path / "modules")
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean_sqrt_len_tokens"}')
    _args(config, 1)["source"] = str(folder)
    (problem,) = _problems(config, tmp_path)
    assert problem.startswith("minilm-1.args.source: the checkpoint pools by 'mean_sqrt_len_tokens'"), problem


def test_a_part_of_a_gib_is_refused_on_a_cpu(config: dict[str, Any], tmp_path: Path) -> None:
    _args(config, 2)["engine"] = {"kv_cache_gib": 1.9}
    (problem,) = [problem for problem in _problems(config, tmp_path) if "kv_cache_gib" in problem]
    assert "engine.kv_cache_gib: 1.9; on a CPU vLLM takes whole GiB only" in problem
    _args(config, 2)["engine"] = {"kv_cache_gib": 2}
    assert _problems(config, tmp_path) == []
