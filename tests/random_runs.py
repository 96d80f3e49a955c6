"""Runs with random weights of any shape, without a training: as a run on disk is all that many uses need."""

import dataclasses

import small
import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.run import DataConfig, RunConfig
from headstart.config.training import LoopConfig, Masking, OptimizerConfig
from headstart.model.model import build
from headstart.runs.checkpoint import weights_digest, write_tensors
from headstart.runs.directory import RunDirectory
from headstart.runs.load import load

SHAPE = {"width": 16, "depth": 2, "heads": 2, "ffn": 24, "context": 40}


def write(path, preset_name, objective="causal", *, classes=3, pooling=None, tokenizer=None, spread=0.3, **overrides):
    """A finished run of a preset in small, every tensor away from its special values."""
    tokenizer = tokenizer or small.tokenizer()
    config = preset(preset_name, vocab=tokenizer.size, tokenizer=tokenizer.fingerprint, **{**SHAPE, **overrides})
    kind = "lm" if objective == "causal" else objective
    kind = "none" if objective == "base" else kind
    labelled = objective in ("classification", "multilabel", "regression")
    head = HeadConfig(
        kind=kind, classes=(1 if objective == "regression" else classes) if labelled else 2, pooling=pooling
    )
    model = build(config, head)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    run = RunDirectory(path)
    run.path.mkdir(parents=True)
    write_tensors(run.weights_file, weights)
    tokenizer.save(path)
    run_config = RunConfig(
        objective=objective, frame="causal" if config.direction == "causal" else "masked", length=32, batch=4,
        label_names=[f"label {n}" for n in range(classes)] if labelled and objective != "regression" else [],
        data=DataConfig(), model=config, head=head, optimizer=OptimizerConfig(), loop=LoopConfig(steps=0),
        masking=Masking(),
    )  # fmt: skip
    run.write_config(run_config)
    run.write_result(
        {"objective": objective, "step": 0, "steps": 0, "weights_sha256": weights_digest(weights), "parameters": 1,
         "skipped": 0, "stopped_early": False, "best_step": -1, "valid": None},
        run_config,
    )  # fmt: skip
    return load(path)


def with_weights(run, **tensors):
    """The same run with some tensors set, in memory."""
    parameters = dict(run.model.named_parameters())
    with torch.no_grad():
        for name, value in tensors.items():
            parameters[name.replace("__", ".")].copy_(value)
    return dataclasses.replace(run)
