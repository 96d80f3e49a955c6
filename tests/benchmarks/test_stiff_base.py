"""The script that shows how far a base's weights can still be moved."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_bases_are_made_measured_and_fine_tuned():
    command = [sys.executable, BENCHMARKS / "stiff_base.py", "--pretrain", "adamw", "muon:0.02:0.1"]
    found = subprocess.run(
        [*command, "--steps", "4", "--labels", "16", "--threads", "1"], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    rows = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    assert [row["base"] for row in rows] == ["adamw", "muon:0.02:0.1"]
    assert rows[1]["size"] > rows[0]["size"]  # four steps of Muon are already longer
    assert all(len(row["accuracy"]) == 8 for row in rows)
    assert all(0 <= accuracy <= 1 for row in rows for accuracy in row["accuracy"].values())
