"""Ranks that are killed or asked to stop: all end at one step, and the same command goes on to the same bytes."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import local_ranks
import pytest
from commands import Workspace, exit_code_of, run_files, steps_logged, wait_until

from headstart.runs import checkpoint

SHARDED = {"DDP": ("--shard", "never"), "FSDP2": ("--shard", "always")}
CLIPPED = ("--clip", 0.5, "--accumulate", 2)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A workspace with runs of two ranks that nobody disturbed."""
    workspace = Workspace(tmp_path_factory.mktemp("ranks")).fill()
    for how, flags in SHARDED.items():
        codes = local_ranks.exit_codes(workspace, *CLIPPED, *flags, "--out", workspace.path / how)
        assert codes == [0, 0], local_ranks.log_of(workspace)
    return workspace


@pytest.mark.slow
@pytest.mark.parametrize("how", SHARDED)
def test_torchrun_starts_all_again_when_a_rank_is_killed_and_the_bytes_are_the_same(workspace, how):
    run = workspace.path / f"killed-{how}"
    job = local_ranks.torchrun(
        workspace, ["--nproc-per-node", 2, "--max-restarts", 2, "--master-port", local_ranks.free_port()],
        *CLIPPED, *SHARDED[how], "--out", run, log=f"torchrun-{how}", killed="1=step@4",
    )  # fmt: skip
    assert job.wait(120) == 0, (workspace.path / f"torchrun-{how}").read_text()
    log = (workspace.path / f"torchrun-{how}").read_text()
    assert "resuming from step" in log
    assert "locked" not in log
    assert_same(workspace, run, how)


def assert_same(workspace, run, how):
    """Also metrics, result and settings, and nothing that a killed one left aside."""
    assert run_files(run) == run_files(workspace.path / how)
    assert list(run.rglob(".*")) == []


@pytest.mark.slow
@pytest.mark.parametrize(("how", "number"), [("DDP", signal.SIGTERM), ("FSDP2", signal.SIGINT)])
def test_a_signal_to_one_rank_stops_both_at_one_step_and_saves_it(workspace, how, number):
    run = workspace.path / f"stopped-{how}"
    flags = (*CLIPPED, *SHARDED[how], "--save-every", 0, "--out", run)
    children = local_ranks.start_command(workspace, *flags)
    wait_until(lambda: steps_logged(run) >= 2, children[0])
    os.kill(children[1].pid, number)
    assert [exit_code_of(child) for child in children] == [128 + number] * 2
    found, _ = checkpoint.latest(run / "checkpoints")
    assert found.step == steps_logged(run) >= 2
    assert f"stopped at step {found.step} by {number.name}; it is saved" in local_ranks.log_of(workspace)
    assert local_ranks.log_of(workspace, 1) == ""
    assert local_ranks.exit_codes(workspace, *flags) == [0, 0]
    for name, raw in run_files(workspace.path / how).items():
        if name == "result.json":  # which has the checksum of that config.toml
            other, own = json.loads(raw), json.loads((run / name).read_bytes())
            assert {k: v for k, v in own.items() if "sha256" not in k} == {
                k: v for k, v in other.items() if "sha256" not in k
            }
        else:
            assert name == "config.toml" or (run / name).read_bytes() == raw, name


@pytest.mark.slow
def test_torchrun_passes_sigterm_on_and_both_ranks_have_saved_one_step(workspace):
    run = workspace.path / "terminated"
    flags = (*CLIPPED, "--save-every", 0, "--steps", 400, "--out", run)
    job = local_ranks.torchrun(workspace, ["--nproc-per-node", 2, "--master-port", local_ranks.free_port()], *flags)
    last = time.monotonic() + 60
    while steps_logged(run) < 7:
        assert job.poll() is None, (workspace.path / "torchrun").read_text()
        assert time.monotonic() < last, "it does not come"
        time.sleep(0.01)
    job.send_signal(signal.SIGTERM)
    assert job.wait(60) != 0
    found, passed_over = checkpoint.latest(run / "checkpoints")
    assert (found.step, passed_over) == (steps_logged(run), [])
    assert 7 <= found.step < 400
    assert (workspace.path / "torchrun").read_text().count(f"stopped at step {found.step} by SIGTERM") == 1


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc"), reason="only Linux has /proc")
def test_ranks_whose_torchrun_is_killed_save_and_end(workspace):
    run = workspace.path / "orphans"
    flags = (*CLIPPED, "--save-every", 0, "--steps", 100_000, "--out", run)
    job = local_ranks.torchrun(workspace, ["--nproc-per-node", 2, "--master-port", local_ranks.free_port()], *flags)
    try:
        wait_for(lambda: steps_logged(run) >= 3)
        ranks = children_of(job.pid)
        assert len(ranks) == 2
    finally:
        job.kill()
        job.wait()
    wait_for(lambda: not any(map(is_running, ranks)))
    found, passed_over = checkpoint.latest(run / "checkpoints")
    assert (found.step, passed_over) == (steps_logged(run), [])


def wait_for(true):
    last = time.monotonic() + 60
    while not true():
        assert time.monotonic() < last, "it does not come"
        time.sleep(0.05)


def children_of(pid):
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat")]
    return [int(stat.split()[0]) for stat in stats if stat.rpartition(")")[2].split()[1] == str(pid)]


def is_running(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_three_ranks_add_up_in_the_same_order_after_a_kill(workspace):
    """Two numbers have one sum, three have several: the order is part of the bytes."""
    peaceful, killed = workspace.path / "three", workspace.path / "three-killed"
    assert local_ranks.exit_codes(workspace, *CLIPPED, "--out", peaceful, world=3) == [0, 0, 0]
    codes = local_ranks.exit_codes(workspace, *CLIPPED, "--out", killed, world=3, faults={2: "step@3"})
    assert codes == [75, 75, -9]
    assert "the connection to the other ranks is lost" in local_ranks.log_of(workspace)
    assert local_ranks.exit_codes(workspace, *CLIPPED, "--out", killed, world=3) == [0, 0, 0]
    assert run_files(killed) == run_files(peaceful)


@pytest.mark.slow
def test_two_nodes_find_each_other_and_do_so_again_when_a_rank_is_killed(workspace):
    """Two agents of torchrun that know nothing but a port: as two nodes do."""
    run, port = workspace.path / "nodes", local_ranks.free_port()
    options = [
        "--nnodes", 2, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-id", "nodes",
        "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1", "--max-restarts", 3,
    ]  # fmt: skip
    flags = (*CLIPPED, *SHARDED["DDP"], "--out", run)
    nodes = [
        local_ranks.torchrun(workspace, options, *flags, log=f"node-{number}", killed="1=step@4") for number in range(2)
    ]
    try:
        codes = [node.wait(120) for node in nodes]
    except subprocess.TimeoutExpired:
        codes = []
    finally:
        for node in nodes:
            node.kill()
    logs = [(workspace.path / f"node-{number}").read_text() for number in range(2)]
    assert codes == [0, 0], "\n".join(logs)
    assert_same(workspace, run, "DDP")
    assert any("2 ranks, 1 of them here" in log for log in logs)
    assert any("resuming from step" in log for log in logs)
