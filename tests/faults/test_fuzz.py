"""Random damage to what runs and studies write: the right answer, or a refusal whose remedy works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"


@pytest.mark.slow
def test_a_damaged_file_gives_the_right_answer_or_a_refusal_with_a_remedy_that_works():
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, FUZZ, "--seed", "26", "--cases", "100"], capture_output=True, text=True, env=environment
    )
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert not found, json.dumps(found, indent=1, ensure_ascii=False)
    assert ended.returncode == 0, ended.stderr
    assert "100 cases, 0 findings" in ended.stderr
