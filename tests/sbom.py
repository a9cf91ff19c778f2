"""The last step of `make sbom`: of all installed packages those that run, and the jars, in one CycloneDX document.

`python -m tests.sbom PACKAGES REQUIREMENTS TARGET`: PACKAGES is what `cyclonedx-py environment` has written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from spark_jobs.spark import jars
from spark_jobs.spark.jvm import ivy_folder

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def joined(packages: Mapping[str, Any], requirements: str, ivy_cache: Path) -> dict[str, Any]:
    """The document with the packages of the requirements, and a component for each pinned jar."""
    wanted = {_plain(name) for name in _PINNED.findall(requirements)}
    running = [one for one in packages.get("components", ()) if _plain(one["name"]) in wanted]
    described = _described(ivy_cache)
    files = [_jar(name, digest, described.get(name)) for name, digest in sorted(_running_jars())]
    known = {one["bom-ref"] for one in (*running, *files)}
    depends = [
        one | {"dependsOn": [ref for ref in one.get("dependsOn", ()) if ref in known]}
        for one in packages.get("dependencies", ())
        if one["ref"] in known
    ]
    return {**packages, "components": [*running, *files], "dependencies": depends}


def _running_jars() -> list[tuple[str, str]]:
    """Name and SHA-256 of the pinned jars, without those that only tests use."""
    list_of_running = jars.LIST.read_text().partition("# Only tests use these.")[0]
    return [(name, digest) for name, digest in jars.pinned().items() if f"{digest}  {name}\n" in list_of_running]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _described(ivy_cache: Path) -> dict[str, ElementTree.Element]:
    """What Maven says of each module, by the name of its jar, from the files that Ivy keeps."""
    found = {}
    for file in ivy_cache.glob("*/*/ivy-*.xml"):
        info = ElementTree.parse(file).getroot().find("info")
        if info is not None:
            found[f"{info.get('module')}-{info.get('revision')}.jar"] = info
    return found


def _jar(name: str, digest: str, info: ElementTree.Element | None) -> dict[str, Any]:
    component: dict[str, Any] = {"type": "library", "bom-ref": f"jar:{name}", "name": name.removesuffix(".jar")}
    component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    if info is None:  # this machine has not fetched it
        return component
    group, module, version = (info.get(part, "") for part in ("organisation", "module", "revision"))
    licences = [
        {"license": {key: value for key, value in (("name", one.get("name")), ("url", one.get("url"))) if value}}
        for one in info.findall("license")
        if one.get("name")
    ]
    component |= {"group": group, "name": module, "version": version, "purl": f"pkg:maven/{group}/{module}@{version}"}
    return component | ({"licenses": licences} if licences else {})


def main(packages: str, requirements: str, target: str) -> None:
    """Write the document."""
    content = json.loads(Path(packages).read_text())
    document = joined(content, Path(requirements).read_text(), ivy_folder() / "cache")
    Path(target).write_text(json.dumps(document, indent=2) + "\n")
    print(f"{target}: {len(document['components'])} components")


if __name__ == "__main__":
    main(*sys.argv[1:])
