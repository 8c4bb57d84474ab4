"""Copies Serve configurations into the Kubernetes manifests that carry them.

`--check` fails when one is out of date. `--crd FILE` compares the RayServices with your operator's own schema, unknown
fields included: `kubectl get crd rayservices.ray.io -o yaml > FILE`.
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator

CLUSTER = Path(__file__).parent.parent / "cluster"
BLOCKS = {
    ("kuberay/rayservice.yaml", "serveConfigV2"): "production.yaml",
    ("kuberay/models.yaml", "serve_config.yaml"): "production.yaml",
    ("kuberay/autoscaling.yaml", "serveConfigV2"): "autoscaling.yaml",
}
"""(manifest, key of its block scalar) → the configuration that the block holds."""


def filled(manifest: str, key: str, config: str) -> str:
    """The manifest's text with the block of `key` replaced by the configuration's.

    Raises:
        ValueError: the manifest has no such block, or several.
    """
    pattern = re.compile(rf"^( *){re.escape(key)}: \|\n(?:\1 +[^\n]*\n|\n)+", re.MULTILINE)
    found = pattern.findall(manifest)
    if len(found) != 1:
        raise ValueError(f"{len(found)} blocks '{key}: |'; there must be one")
    block = textwrap.indent(config.rstrip("\n") + "\n", found[0] + "  ")
    return pattern.sub(lambda match: f"{match[1]}{key}: |\n{block}", manifest)


def crd_problems(crd: dict[str, Any], resource: dict[str, Any]) -> list[str]:
    """Where a custom resource is not as its definition says, one line each; fields that it does not know included."""
    version = resource["apiVersion"].partition("/")[2]
    found = [v["schema"]["openAPIV3Schema"] for v in crd["spec"]["versions"] if v["name"] == version]
    if not found or crd["spec"]["names"]["kind"] != resource["kind"]:
        return [f"the definition is not of {resource['kind']} {version}"]
    schema = copy.deepcopy(found[0])
    _make_strict(schema)
    schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
    errors = Draft7Validator(schema).iter_errors(resource)
    return sorted(f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in errors)


def _make_strict(node: Any) -> None:
    """Kubernetes' schema dialect as plain JSON schema. Unknown fields, which a cluster drops silently, are errors."""
    if isinstance(node, dict):
        if node.get("x-kubernetes-int-or-string") is True:
            node.pop("type", None)
        if isinstance(node.get("properties"), dict) and not node.get("x-kubernetes-preserve-unknown-fields"):
            node.setdefault("additionalProperties", False)
        for inner in node.values():
            _make_strict(inner)
    elif isinstance(node, list):
        for inner in node:
            _make_strict(inner)


def ray_services() -> dict[str, dict[str, Any]]:
    """The RayServices of the manifests, by file."""
    found = {}
    for path in sorted((CLUSTER / "kuberay").glob("*.yaml")):
        for resource in yaml.safe_load_all(path.read_text()):
            if resource["kind"] == "RayService":
                found[path.name] = resource
    return found


def main(arguments: list[str] | None = None) -> int:
    """Writes the manifests, or says what is wrong with them; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a manifest is out of date")
    parser.add_argument("--crd", type=Path, metavar="FILE", help="the definition of RayService, to compare with")
    options = parser.parse_args(arguments)
    problems = []
    for (name, key), config in BLOCKS.items():
        path = CLUSTER / name
        wanted = filled(path.read_text(), key, (CLUSTER / config).read_text())
        if path.read_text() != wanted:
            if options.check:
                problems.append(f"cluster/{name} is out of date: python scripts/kuberay_manifests.py")
            else:
                path.write_text(wanted)
    if options.crd is not None:
        crd = yaml.safe_load(options.crd.read_text())
        for name, resource in ray_services().items():
            problems += [f"cluster/kuberay/{name}: {problem}" for problem in crd_problems(crd, resource)]
    print("\n".join(problems) or "ok", file=sys.stderr if problems else sys.stdout)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
