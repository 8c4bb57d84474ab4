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


def _moves(text: str) -> list[str]:
    """A version that comes, gets the traffic, and takes the old one's place: the text after each edit."""
    texts = [set_versions(text, "ce", {"2": {"application": "ce-2", "task": "rerank", "weight": 0}}, "1")]
    texts.append(set_versions(texts[-1], "ce", {"1": {"weight": 0}, "2": {"weight": 1}}, "1"))
    texts.append(set_versions(texts[-1], "ce", {"1": None}, None))
    return texts


ONE_LINE = 'ce: {versions: {"1": {application: ce-1, task: rerank}}} # the reranker'
SECOND = '"2": {application: ce-2, task: rerank, weight: %s}'


def _braces(block: str) -> str:
    assert ONE_LINE in CONFIG
    return CONFIG.replace(ONE_LINE, block)


def test_braces_over_several_lines_keep_their_comments_and_their_lines() -> None:
    block = """ce: { # stable
              # why this
              sticky: {header: X-User}, # ours
              versions: {
                # the first
                "1": {application: ce-1, task: rerank, weight: 1}, # main
                # that is all
              } # by number
            }
            # end"""
    came, moved, gone = (text.replace(CONFIG.split(ONE_LINE)[0], "") for text in _moves(_braces(block)))
    one = '"1": {application: ce-1, task: rerank, weight: %s}'
    with_second = block.replace(one % 1, f"{one % 1}, {SECOND % 0}").replace("} # by", '}, latest: "1" # by')
    assert came.startswith(with_second)
    expected = with_second.replace(one % 1, one % 0).replace(SECOND % 0, SECOND % 1)
    assert moved.startswith(expected)
    assert gone.startswith(expected.replace(f"{one % 0}, ", "").replace(', latest: "1"', ""))


def test_braces_wrapped_by_length_stay_wrapped() -> None:
    block = """ce: {sticky: {header: X-User},
              versions: {"1": {application: ce-1, task: rerank,
                               weight: 1}}}"""
    came, moved, gone = _moves(_braces(block))
    assert block.replace("1}}}", f'1}}, {SECOND % 0}}}, latest: "1"}}') in came
    assert block.replace("1}}}", f'0}}, {SECOND % 1}}}, latest: "1"}}') in moved
    assert f"ce: {{sticky: {{header: X-User}},\n              versions: {{{SECOND % 1}}}}}\n" in gone


def test_a_field_in_braces_goes_with_its_lines_and_no_comment_of_another() -> None:
    block = """ce: {
              latest: "1", # for now
              # all of them
              versions: {
                "1": {application: ce-1, task: rerank, weight: 1}, # the first
                # on trial
                "2": {application: ce-2, task: rerank, weight: 0}, # the second
              },
            }"""
    edited = set_versions(_braces(block), "ce", {"2": None}, None)
    expected = block.replace('              latest: "1", # for now\n', "")
    assert expected.replace(f"                {SECOND % 0}, # the second\n", "") in edited


def test_a_comment_that_an_edit_would_lose_is_a_reason_to_refuse() -> None:
    block = """ce: {versions: {"1": {application: ce-1, task: rerank}, # the first
              "2": {application: ce-2, task: rerank, weight: 0}}}"""
    with pytest.raises(ConfigError, match=r"block of 'ce' .*a comment beside '1' would be lost; give '1' lines"):
        set_versions(_braces(block), "ce", {"1": None, "2": {"weight": 1}}, None)


def test_an_alias_of_another_block_stays_an_alias() -> None:
    other = 'other: {versions: {"1": {application: other-1, task: embed}}} # not ours'
    anchored = other.replace("{versions", "{sticky: &who {header: X-User}, versions", 1)
    for block in (
        'ce: {sticky: *who, versions: {"1": {application: ce-1, task: rerank}}}',
        'ce:\n              versions: {"1": {application: ce-1, task: rerank}}\n              sticky: *who # theirs',
        'ce:\n              versions:\n                "1": {application: ce-1, task: rerank}\n'
        "              sticky: *who",
    ):
        text = _braces(block).replace(other, anchored)
        assert routing(text).models["ce"].sticky is not None
        for edited in _moves(text):
            assert "sticky: *who" in edited
            assert anchored in edited
            assert routing(edited).models["ce"].sticky == routing(text).models["ce"].sticky
        assert list(routing(edited).models["ce"].versions) == ["2"]
        plan.begin(text, Kind.RED_BLACK, "ce", None, "2", Options(), 0.0)


def test_what_other_places_share_with_the_block_is_never_changed_or_lost() -> None:
    other = 'other: {versions: {"1": {application: other-1, task: embed}}} # not ours'
    line = "{application: ce-1, task: rerank, weight: 1}"
    for block, elsewhere in (
        (f'ce: &r {{versions: {{"1": {line}}}}}\n            third: *r', other),
        (f'ce: {{versions: {{"1": &v {line}}}}}\n            third: {{versions: {{"1": *v}}}}', other),
        ("ce: *r", f'other: &r {{versions: {{"1": {line}}}}}'),
        ("ce: {versions: *v}", f'other: {{versions: &v {{"1": {line}}}}}'),
        ('ce: {versions: {"1": *v}}', f'other: {{versions: {{"1": &v {line}}}}}'),
        ("ce: {<<: *r}", f'other: &r {{versions: {{"1": {line}}}}}'),
    ):
        text = _braces(block).replace(other, elsewhere)
        assert routing(text).models["ce"].versions["1"].weight == 1
        with pytest.raises(ConfigError, match="block of 'ce' in the routing table cannot be edited as it is written"):
            plan.begin(text, Kind.RED_BLACK, "ce", None, "2", Options(), 0.0)


def test_an_application_that_ends_with_an_alias_goes_whole() -> None:
    text = CONFIG.replace("args: {name: other", "args: &x {name: other").replace("engine: {kind: fake}", "engine: *x")
    assert content(remove_application(text, "ce-1"))["applications"] == [
        app for app in content(text)["applications"] if app["name"] != "ce-1"
    ]


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


@pytest.mark.parametrize(
    "text", ["{", "[]", "applications: 5", "", "applications: [x]", "applications: [{deployments: [x]}]"]
)
def test_what_is_no_configuration_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match=r"YAML|applications"):
        content(text)
