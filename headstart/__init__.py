"""Headstart: pretrain a Transformer on your own text, swap its head, and know what the transfer bought."""

import importlib
from typing import Any

__version__ = "0.1.0"

# The public names, each with the module that has it; imported on first use, so that `import headstart` is light.
_PUBLIC = {
    "HeadConfig": "headstart.config.model",
    "ModelConfig": "headstart.config.model",
    "PRESETS": "headstart.config.presets",
    "Run": "headstart.inference.run",
    "TextClassifier": "headstart.interop.sklearn",
    "TextEncoder": "headstart.interop.sklearn",
    "Tokenizer": "headstart.tokenizers.tokenizer",
    "build": "headstart.model.model",
    "check_data": "headstart.data.check",
    "export_huggingface": "headstart.interop.huggingface",
    "export_onnx": "headstart.interop.onnx",
    "finetune": "headstart.training.tasks.finetune",
    "import_huggingface": "headstart.interop.huggingface",
    "load": "headstart.inference.run",
    "preset": "headstart.config.presets",
    "pretrain": "headstart.training.tasks.pretrain",
    "swap": "headstart.model.model",
    "train_translator": "headstart.training.tasks.finetune",
    "write_demo": "headstart.demo.corpus",
    "write_report": "headstart.report.page",
}


def __getattr__(name: str) -> Any:
    if name == "study":  # a package that can be called
        return importlib.import_module("headstart.study")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'headstart' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "study", "__version__"])
