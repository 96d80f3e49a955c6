"""The configurations that the plan is held against; those that are held out had no part in any constant."""

from typing import Any

# preset, vocabulary, head, texts in a step, tokens in each (and in its translation); then what differs.
Case = tuple[str, int, str, int, tuple[int, int], dict[str, Any]]
CPU: list[Case] = [
    ("tiny", 8_000, "lm", 80, (256, 0), {}),
    ("tiny", 32_000, "lm", 96, (128, 0), {}),
    ("tiny", 16_000, "lm", 32, (256, 0), {"width": 256, "depth": 4, "ffn": 1024}),
    ("tiny", 8_000, "classification", 96, (256, 0), {}),
    ("lab", 20_000, "lm", 32, (256, 0), {}),
    ("lab", 20_000, "lm", 16, (512, 0), {"reading": "whole"}),
    ("lab", 8_000, "classification", 64, (256, 0), {"pooling": "mean"}),
    ("modern-small", 16_000, "lm", 4, (256, 0), {}),
    ("modern-small", 16_000, "masked", 4, (256, 0), {}),
    ("modern-small", 8_000, "lm", 8, (256, 0), {"accumulate": 4}),
    ("modern-small", 8_000, "lm", 4, (256, 0), {"optimizer": "muon"}),
    ("modern-small", 8_000, "lm", 2, (512, 0), {"depth": 8, "width": 384, "heads": 6, "ffn": 1024}),
    ("modern-base", 16_000, "lm", 2, (128, 0), {}),
    ("gpt2", 20_000, "lm", 1, (256, 0), {"depth": 6}),
    ("gpt2", 8_000, "lm", 2, (512, 0), {"depth": 3}),
    ("gpt2", 8_000, "lm", 4, (256, 0), {"depth": 4, "dropout": 0.0, "attention_dropout": 0.0}),
    ("bert-base", 30_522, "masked-nsp", 4, (128, 0), {"depth": 8}),
    ("bert-base", 30_522, "classification", 8, (128, 0), {"freeze": "base"}),
    ("bert-base", 10_000, "classification", 8, (128, 0), {"depth": 6}),
    ("transformer-tiny", 16_000, "translation", 48, (40, 40), {}),
    ("transformer-tiny", 8_000, "translation", 32, (60, 50), {"dropout": 0.0, "attention_dropout": 0.0}),
    ("transformer-base", 20_000, "translation", 8, (30, 30), {}),
]
CUDA: list[Case] = [
    ("tiny", 8_000, "lm", 1024, (256, 0), {}),
    ("tiny", 50_000, "lm", 256, (256, 0), {}),
    ("lab", 50_001, "lm", 256, (128, 0), {}),
    ("lab", 50_001, "lm", 64, (512, 0), {"reading": "whole"}),
    ("lab", 8_000, "classification", 256, (256, 0), {"pooling": "mean"}),
    ("modern-small", 16_000, "lm", 64, (512, 0), {}),
    ("modern-small", 16_000, "masked", 64, (512, 0), {}),
    ("modern-small", 16_000, "lm", 64, (512, 0), {"accumulate": 4}),
    ("modern-small", 16_000, "lm", 32, (512, 0), {"optimizer": "muon"}),
    ("modern-base", 32_000, "lm", 32, (512, 0), {}),
    ("modern-base", 32_000, "lm", 16, (1024, 0), {"kv_heads": 4}),
    ("gpt2", 50_257, "lm", 16, (512, 0), {}),
    ("gpt2", 50_257, "lm", 8, (1024, 0), {"reading": "whole"}),
    ("bert-base", 30_522, "masked-nsp", 64, (128, 0), {}),
    ("bert-base", 30_522, "masked", 32, (512, 0), {"reading": "whole"}),
    ("bert-base", 30_522, "classification", 64, (256, 0), {}),
    ("bert-base", 30_522, "classification", 256, (256, 0), {"freeze": "base"}),
    ("transformer-tiny", 16_000, "translation", 512, (40, 40), {}),
    ("transformer-base", 37_000, "translation", 512, (32, 32), {}),
    ("transformer-base", 37_000, "translation", 256, (32, 32), {"precision": "fp32"}),
]

HELD_OUT_CPU: list[Case] = [
    ("tiny", 8_000, "lm", 112, (256, 0), {}),
    ("tiny", 12_000, "masked", 64, (256, 0), {"depth": 3}),
    ("lab", 10_000, "masked", 48, (256, 0), {}),
    ("gpt2", 12_000, "lm", 8, (256, 0), {"depth": 2, "width": 512, "heads": 8, "ffn": 2048}),
    ("bert-base", 20_000, "classification", 16, (128, 0), {"depth": 4}),
    ("modern-small", 24_000, "lm", 8, (256, 0), {"depth": 4}),
    ("transformer-tiny", 12_000, "translation", 64, (50, 50), {}),
]
HELD_OUT_CUDA: list[Case] = [
    ("tiny", 16_000, "lm", 512, (256, 0), {"depth": 4, "width": 256, "ffn": 1024}),
    ("lab", 20_000, "masked", 128, (256, 0), {}),
    ("gpt2", 32_000, "lm", 32, (256, 0), {"depth": 6, "dropout": 0.0, "attention_dropout": 0.0}),
    ("bert-base", 20_000, "classification", 64, (128, 0), {"depth": 6}),
    ("modern-base", 16_000, "masked", 16, (512, 0), {"depth": 6}),
    ("modern-small", 8_000, "lm", 64, (256, 0), {"accumulate": 2}),
    ("transformer-tiny", 12_000, "translation", 256, (64, 64), {}),
]


def cases(device: str, *, held_out: bool) -> list[Case]:
    """The grid of a device."""
    if device == "cpu":
        return HELD_OUT_CPU if held_out else CPU
    return HELD_OUT_CUDA if held_out else CUDA


def name_of(case: Case) -> str:
    """What stands in the table."""
    name, vocab, kind, batch, lengths, rest = case
    options = "".join(f" {key}={value}" for key, value in rest.items())
    return f"{name} {kind} {batch}x{lengths[0]} V={vocab}{options}"


def case_named(name: str, device: str) -> Case | None:
    """The configuration that an earlier table calls so, perhaps cut short."""
    every = [*cases(device, held_out=False), *cases(device, held_out=True)]
    return next((case for case in every if name and name_of(case).startswith(name.strip())), None)


def workload(case: Case, device: str, precision: str) -> Any:
    from headstart.config.model import HeadConfig
    from headstart.config.presets import preset
    from headstart.planning.workload import Lengths, Workload, reading_of
    from headstart.training.calibration.rehearsal import DOCUMENT

    name, vocab, kind, batch, lengths, rest = case
    options = dict(rest)
    own = {key: options.pop(key) for key in ("accumulate", "optimizer", "freeze") if key in options}
    reading = options.pop("reading", reading_of(kind))  # type: ignore[arg-type]
    head = HeadConfig(kind=kind, pooling=options.pop("pooling", None))  # type: ignore[arg-type]
    precision = options.pop("precision", precision)
    if kind.startswith("masked"):
        options["direction"] = "bidirectional"
        options["segments"] = 2 if kind == "masked-nsp" else 0
    config = preset(name, vocab=vocab, context=max(512, *lengths), **options)
    return Workload(
        config=config, head=head, batch=batch, lengths=Lengths(*lengths), device=device, precision=precision,
        reading=reading, document=DOCUMENT if reading == "packed" else 0, **own,
    )  # fmt: skip
