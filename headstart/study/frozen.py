"""The arm `frozen`: a logistic regression on what a base makes of each text.

The base reads every labelled text once; then a trial takes seconds, and has the best head instead of one on its way
there. That head on that base is a run as any other.
"""

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from headstart.config.model import HeadConfig, Pooling, usual_pooling
from headstart.config.run import DataConfig
from headstart.data.labelled import LabelledSet
from headstart.inference.predict import embed
from headstart.machine import Machine
from headstart.runs.checkpoint import weights_digest, write_tensors
from headstart.runs.directory import RunDirectory
from headstart.runs.linear import LEAST_PROBABILITY, Arrays
from headstart.runs.load import LoadedRun, load
from headstart.storage.atomic import atomic_directory

RUN, VECTORS = "run", "vectors.npz"
"""The names of the run in its trial's directory, and of the vectors in the base's."""


class FrozenBase(NamedTuple):
    """The run of a pretraining, and how it reads labelled texts."""

    path: Path
    length: int
    pooling: Pooling | None

    def vectors(self, sets: Mapping[str, LabelledSet], machine: Machine) -> dict[str, np.ndarray]:
        """Of each set (texts, width), scaled so that those of train are of mean square 1; and that `size`."""
        run = self._run(machine)
        found = {}
        for name, labelled in sets.items():
            pairs = labelled.texts_b
            texts = labelled.texts if pairs is None else list(zip(labelled.texts, pairs, strict=True))
            found[name] = np.stack([one.vectors for one in embed(run, texts, machine, self._pooling(run))])
        size = max(1e-12, float(np.sqrt(np.mean(found["train"].astype(np.float64) ** 2))))
        return {**{name: table / np.float32(size) for name, table in found.items()}, "size": np.array(size)}

    def write_run(self, regression: Arrays, size: float, labels: Sequence[str], out: Path, *, pairs: bool) -> None:
        """The base with the regression as its head: a finished run."""
        run = self._run()
        config = dataclasses.replace(
            run.config, objective="classification", label_names=list(labels), freeze="base", start=run.digest,
            pairs=pairs, data=DataConfig(), model=dataclasses.replace(run.config.model, pooler=False),
            head=HeadConfig(kind="classification", classes=len(labels), pooling=self._pooling(run)),
        )  # fmt: skip
        layer = _as_layer(regression, len(labels), run.config.model.width)
        weights = {name: p.detach() for name, p in run.model.named_parameters() if name.startswith("base.")}
        weights["head.classifier.weight"] = torch.tensor(layer[0] / size, dtype=torch.float32)
        weights["head.classifier.bias"] = torch.tensor(layer[1], dtype=torch.float32)
        result: dict[str, Any] = {
            "objective": config.objective, "step": 0, "steps": 0, "weights_sha256": weights_digest(weights),
            "parameters": sum(tensor.numel() for tensor in weights.values()), "skipped": 0, "stopped_early": False,
            "best_step": None, "valid": None,
        }  # fmt: skip
        with atomic_directory(out, 4 * result["parameters"]) as temporary:
            written = RunDirectory(temporary)
            write_tensors(written.weights_file, weights)
            run.tokenizer.save(temporary)
            written.write_config(config)
            written.write_result(result, config)
            load(temporary)
            shutil.rmtree(out, ignore_errors=True)  # of a process that was killed before it had told of it

    def _run(self, machine: Machine | None = None) -> LoadedRun:
        run = load(self.path, machine.device if machine else "cpu")
        return dataclasses.replace(run, config=dataclasses.replace(run.config, length=self.length))

    def _pooling(self, run: LoadedRun) -> Pooling:
        model = dataclasses.replace(run.config.model, pooler=False)
        return self.pooling or usual_pooling(model) or HeadConfig().pooling_for(model)


def _as_layer(regression: Arrays, classes: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight (classes, width) and bias of the linear layer that has the regression's probabilities."""
    coefficients, intercepts = regression["coefficients"].T, regression["intercepts"]
    if len(intercepts) == 1 < len(regression["classes"]):  # of two classes, the second against the first
        coefficients, intercepts = (np.concatenate([np.zeros_like(a), a]) for a in (coefficients, intercepts))
    weight, bias = np.zeros((classes, width)), np.full(classes, np.log(LEAST_PROBABILITY))
    if coefficients.shape[1]:  # there are none where one class has all rows
        weight[regression["classes"]] = coefficients
    bias[regression["classes"]] = intercepts
    return weight, bias
