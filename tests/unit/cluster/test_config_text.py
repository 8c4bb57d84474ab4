"""Edits of a configuration's text: what is asked for changes, every other character stays."""

from __future__ import annotations

import re

import pytest
import yaml
from pydantic import ValidationError

from cluster.rollout import plan
from cluster.rollout.config_text import ConfigError, add_version, content, remove_application, routing, set_versions
from cluster.rollout.state import Kind, Options
from tests.cluster import ROOT
from tests.unit.cluster.conftest import CONFIG

BLOCK = """\
applications:
  - name: gateway
    import_path: serve_app.app:gateway
    deployments:
      - name: Gateway
        user_config:
          models:
            # ours
            ce:
              # by number
              versions:
                "1": # the first
                  application: ce-1
                  task: rerank
                  weight: 3 # three
              default: true # yes

            other: {versions: {"1": {application: x, task: embed}}} # untouched
"""


def test_a_table_in_blocks_keeps_its_comments() -> None:
    route = {"application": "ce-2", "task": "rerank", "weight": 1.5}
    edited = set_versions(BLOCK, "ce", {"2": route, "1": {"weight": 1.5}}, "1")
    expected = BLOCK.replace("weight: 3", "weight: 1.5")
    added = '                "2": {application: ce-2, task: rerank, weight: 1.5}\n'
    expected = expected.replace("# three\n", "# three\n" + added)
    expected = expected.replace("# yes\n", '# yes\n              latest: "1"\n')
    assert edited == expected
    assert set_versions(edited, "ce", {"2": route, "1": {"weight": 1.5}}, "1") == edited  # again: nothing to do
    back = set_versions(edited, "ce", {"2": None, "1": {"weight": 3}}, None)
    assert re.sub(" +#", " #", back) == re.sub(" +#", " #", BLOCK)  # a comment may keep its column


def test_a_table_that_would_be_refused_is_not_written() -> None:
    with pytest.raises(ValidationError, match="weight above 0"):
        set_versions(BLOCK, "ce", {"1": {"weight": 0}}, None)
    with pytest.raises(ConfigError, match="there are: ce, other"):
        set_versions(BLOCK, "nope", {}, None)


def test_an_application_goes_with_its_own_comment_and_no_other() -> None:
    edited = remove_application(CONFIG, "ce-1")
    assert "The reranker" not in edited
    assert "# The embedder." in edited
    assert "# The images." in edited
    assert [a["name"] for a in content(edited)["applications"]] == ["gateway", "other-1", "images"]
    assert remove_application(edited, "ce-1") == edited
    last = remove_application(CONFIG, "images")
    assert CONFIG.startswith(last.rstrip("\n"))


def test_a_copy_stands_behind_its_original() -> None:
    edited = add_version(CONFIG, "ce-1", "2", {"engine.fake.salt": 3, "revision": "abc"})
    names = [a["name"] for a in content(edited)["applications"]]
    assert names == ["gateway", "other-1", "ce-1", "ce-2", "images"]
    args = content(edited)["applications"][3]["args"]
    assert (args["version"], args["engine"]["fake"], args["revision"]) == ("2", {"salt": 3}, "abc")
    assert remove_application(edited, "ce-2") == CONFIG
    flow = add_version(CONFIG, "other-1", "2", {})
    assert content(flow)["applications"][2]["args"]["version"] == "2"
    with pytest.raises(ConfigError, match="no application 'nope'"):
        add_version(CONFIG, "nope", "2", {})
    with pytest.raises(ValidationError, match="frobnicate"):
        add_version(CONFIG, "ce-1", "2", {"frobnicate": 1})
    with pytest.raises(ConfigError, match="task holds no fields"):
        add_version(CONFIG, "ce-1", "2", {"task.x": 1})


def test_what_applications_share_is_copied_by_value() -> None:
    shared = CONFIG.replace(
        "engine: {kind: fake}", "engine: &shared {kind: fake}\n      io_processor: &p {num_cpus: 2}"
    )
    shared = shared.replace("args: {}", "args: {replicas: *p}")
    edited = add_version(shared, "ce-1", "2", {"io_processor.num_cpus": 3})
    new, old = (next(a["args"] for a in content(edited)["applications"] if a["name"] == n) for n in ("ce-2", "ce-1"))
    assert new == {**old, "version": "2", "io_processor": {"num_cpus": 3}}
    with pytest.raises(ConfigError, match="no YAML"):  # the images need its anchor
        plan.begin(shared, Kind.RED_BLACK, "ce", None, "2", Options(), 0.0)
    alias = CONFIG.replace("args: {name: other", "args: &x {name: other").replace("engine: {kind: fake}", "engine: *x")
    with pytest.raises(ValidationError, match="engine"):  # read as what it stands for
        add_version(alias, "ce-1", "2", {})


@pytest.mark.parametrize("name", ["serve_config.yaml", "cluster/production.yaml"])
def test_every_model_of_the_shipped_files_can_be_copied_and_taken_out(name: str) -> None:
    text = (ROOT / name).read_text()
    models = routing(text).models
    assert models
    for model, route in models.items():
        source = route.versions["1"].application
        added = add_version(text, source, "2", {})
        plain, copied = content(text)["applications"], content(added)["applications"]
        (new,) = [a for a in copied if a not in plain]
        (old,) = [a for a in plain if a["name"] == source]
        assert new == {**old, "name": f"{model}-2", "args": {**old["args"], "version": "2"}}
        assert remove_application(added, f"{model}-2") == text
        target = {"application": f"{model}-2", "task": route.versions["1"].task.value, "weight": 0}
        routed = set_versions(added, model, {"2": target}, None)
        assert len(set(routed.splitlines()) - set(added.splitlines())) == 1
        without = remove_application(text, source)
        assert [a for a in plain if a["name"] != source] == yaml.safe_load(without)["applications"]


@pytest.mark.parametrize("text", ["{", "[]", "applications: 5", ""])
def test_what_is_no_configuration_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match=r"YAML|applications"):
        content(text)
