"""Exactness on a GPU: a run made twice, and one that is killed and started again, end in the same bytes.

    python benchmarks/exact_resume_gpu.py                      # causal, masked, classification; under a minute
    python benchmarks/exact_resume_gpu.py --compiled           # as a long training is, with a longer wait before it
    python benchmarks/exact_resume_gpu.py --device cpu --kinds causal

For each kind four small runs on the demo's reviews, with dropout and an average of the weights, each in a process of
its own: two alike, one killed by SIGKILL midway and started again, and one with another seed, which has to end
elsewhere. Compared is the sha256 of all weights in result.json. Exits with 1 where a kind is not exact.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

KINDS = ("causal", "masked", "classification")
RUNS = ("one", "again", "killed", "other seed")
STEPS, SAVE_EVERY, KILLED_AT = 40, 8, 21  # so the killed one goes on from step 16
SHAPE = {
    "width": 64, "depth": 2, "heads": 2, "ffn": 128, "context": 64, "dropout": 0.1, "attention_dropout": 0.1,
    "ffn_dropout": 0.1,
}  # fmt: skip


# ---- a child: one run -----------------------------------------------------------------------------------------


def exact_machine(device: str) -> Any:
    """The machine in the mode in which the same run gives the same bytes."""
    from headstart.machine import choose

    return choose(device, threads=1)  # type: ignore[arg-type]


def train(kind: str, out: str, data: str, device: str, seed: str, compiled: str) -> None:
    """Begin a run, or go on with it."""
    from headstart.config.training import LoopConfig
    from headstart.training import fit
    from headstart.training.fit import Console
    from headstart.training.tasks.finetune import finetune
    from headstart.training.tasks.pretrain import pretrain

    if compiled == "True":  # which short runs are not
        fit.should_compile = lambda objective, config, steps, machine: machine.device.type == "cuda"
    if kind == "masked":  # documents by their offsets, which dropout on attention's weights does not allow
        SHAPE["attention_dropout"] = 0.0
    loop = LoopConfig(
        seed=int(seed), schedule="cosine", save_every=SAVE_EVERY, evaluate_every=16, average="ema",
        average_decay=0.9,
    )  # fmt: skip
    given: dict[str, Any] = {
        "out": out, "model": SHAPE, "vocab": 1_000, "steps": STEPS, "loop": loop,
        "machine": exact_machine(device), "console": Console(log=print),
    }  # fmt: skip
    folder = Path(data)
    if kind == "classification":
        finetune(folder / "labelled.jsonl", length=64, batch=16, **given)
    else:
        pretrain(folder / "corpus.txt", objective=kind, length=64, batch_tokens=1024, **given)  # type: ignore[arg-type]


# ---- the parent -------------------------------------------------------------------------------------------------


def write_data(folder: Path) -> None:
    from headstart.demo.corpus import reviews

    labelled = reviews(0, "train", 200)
    rows = [json.dumps({"text": review.french, "label": review.label}) for review in labelled]
    (folder / "labelled.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    texts = [review.french for review in reviews(0, "unlabelled", 400)]
    (folder / "corpus.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")


def start(
    kind: str, name: str, folder: Path, device: str, compiled: bool, fault: str = ""
) -> subprocess.CompletedProcess[str]:
    seed = "1" if name == "other seed" else "0"
    out = folder / f"{kind}-{name.replace(' ', '-')}"
    command = [sys.executable, __file__, "--child", kind, str(out), str(folder), device, seed, str(compiled)]
    places = {"HEADSTART_CACHE": str(folder / "cache" / out.name), "HEADSTART_FAULT": fault}
    return subprocess.run(command, env={**os.environ, **places}, capture_output=True, text=True, check=False)


def digest_of(kind: str, name: str, folder: Path, device: str, compiled: bool) -> str:
    """The run to its end; the killed one dies on the way first. Says what went wrong in place of a digest."""
    if name == "killed":
        done = start(kind, name, folder, device, compiled, fault=f"step@{KILLED_AT}")
        if done.returncode != -signal.SIGKILL:
            return f"was not killed but ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    done = start(kind, name, folder, device, compiled)
    if name == "killed" and "resuming from step" not in done.stdout:
        return f"began anew: {done.stdout.strip()[-300:]}"
    if done.returncode:
        return f"ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    result = json.loads((folder / f"{kind}-{name.replace(' ', '-')}" / "result.json").read_text())
    return f"sha256:{result['weights_sha256']}"


def judged(digests: dict[str, str]) -> dict[str, Any]:
    """What the four runs of a kind say."""
    failures = {name: digest for name, digest in digests.items() if not digest.startswith("sha256:")}
    return {
        "same_twice": not failures and digests["one"] == digests["again"],
        "same_after_kill": not failures and digests["one"] == digests["killed"],
        "other_seed_differs": not failures and digests["one"] != digests["other seed"],
        "failures": failures,
        "digests": digests,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--at-once", type=int, default=6, help="processes side by side")
    parser.add_argument("--compiled", action="store_true", help="compile as a long training on a GPU does")
    parser.add_argument("--json", type=Path, help="a file for everything that was found")
    options = parser.parse_args()
    if options.compiled:  # which batches of many shapes never are
        options.kinds = [kind for kind in options.kinds if kind != "classification"]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(options.at_once) as pool:
        write_data(Path(place))
        names = sorted(RUNS, key="killed".__ne__)  # those that are killed take longest, and begin
        wanted = [(kind, name) for name in names for kind in options.kinds]
        digests = pool.map(lambda one: digest_of(one[0], one[1], Path(place), options.device, options.compiled), wanted)
        of_run = dict(zip(wanted, digests, strict=True))
    found = {kind: judged({name: of_run[kind, name] for name in RUNS}) for kind in options.kinds}
    for kind, said in found.items():
        words = [f"{key.replace('_', ' ')}: {'yes' if said[key] else 'NO'}" for key in said if key[0] in "so"]
        print(f"{kind:15} {', '.join(words)}   {said['digests']['one'][:19]}")
        for name, failure in said["failures"].items():
            print(f"{'':15} {name} {failure}")
    is_exact = all(said["same_twice"] and said["same_after_kill"] for said in found.values())
    has_control = all(said["other_seed_differs"] for said in found.values())
    print(f"{'exact' if is_exact and has_control else 'NOT exact'}, {time.monotonic() - started:.0f} s")
    if options.json is not None:
        options.json.write_text(json.dumps({"exact": is_exact, "kinds": found}, indent=1) + "\n")
    sys.exit(0 if is_exact and has_control else 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        train(*sys.argv[2:])
    else:
        main()
