"""Headstart: pretrain a Transformer on your own text, swap its head, and know what the transfer bought."""

import importlib
from typing import Any

__version__ = "0.1.0"

# The public names, each with the module that has it; imported on first use, so that `import headstart` is light.
_PUBLIC = {
    "HeadConfig": "headstart.model.presets",
    "ModelConfig": "headstart.model.presets",
    "PRESETS": "headstart.model.presets",
    "TextClassifier": "headstart.interop.sklearn",
    "TextEncoder": "headstart.interop.sklearn",
    "Tokenizer": "headstart.text.tokenizer",
    "build": "headstart.model.model",
    "export_huggingface": "headstart.interop.exporting",
    "export_onnx": "headstart.interop.onnx",
    "finetune": "headstart.training.finetune",
    "import_huggingface": "headstart.interop.importing",
    "load": "headstart.training.loading",
    "preset": "headstart.model.presets",
    "pretrain": "headstart.training.pretrain",
    "swap": "headstart.model.model",
    "train_translator": "headstart.training.translation",
    "translate": "headstart.training.translating",
    "write_report": "headstart.report.page",
}


_CALLS = {"study"}  # packages that can be called


def __getattr__(name: str) -> Any:
    if name in _CALLS:
        return importlib.import_module(f"headstart.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'headstart' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, *_CALLS, "__version__"])
