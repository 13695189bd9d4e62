"""The bill of materials has every locked package and pinned jar, with its digests, and refers to nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_bill_of_materials_is_that_of_the_locks():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "sbom"], capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    lock = (ROOT / "deploy" / "requirements.lock").read_text("utf-8")
    python = [item for item in document["components"] if item["purl"].startswith("pkg:pypi/")]
    assert {f"{item['name']}=={item['version']}" for item in python} == {
        line.split()[0] for line in lock.splitlines() if line[:1].isalnum() and "==" in line
    }
    assert sum(len(item["properties"]) for item in python) == lock.count("--hash=sha256:")
    assert all(item["licenses"][0]["license"]["name"] for item in python if item["name"] != "setuptools")
    jars = (ROOT / "upsert_platform" / "spark" / "jars.yaml").read_text("utf-8")
    digests = {item["hashes"][0]["content"] for item in document["components"] if "hashes" in item}
    assert digests == set(re.findall(r": ([0-9a-f]{64})$", jars, re.MULTILINE))
    refs = [item["bom-ref"] for item in document["components"]]
    assert len(refs) == len(set(refs))
    assert {ref for item in document["dependencies"] for ref in item["dependsOn"]} <= set(refs)
    needs = {item["ref"].split("/")[-1].split("@")[0]: item["dependsOn"] for item in document["dependencies"]}
    assert any("pkg:pypi/pyspark@" in ref for ref in needs["upsert-platform"])
    assert any("pkg:pypi/aiohttp@" in ref for ref in needs["alibabacloud-tea"])
    assert not [ref for ref in needs["upsert-platform"] if ref.startswith("pkg:pypi/aiohappyeyeballs@")]
