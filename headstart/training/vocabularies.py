"""The tokenizers of a translation run: one for both sides, or one for each."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.errors import IntegrityError
from headstart.text.aside import written_aside
from headstart.text.tokenizer import Tokenizer

SOURCE_FILE, TARGET_FILE = "tokenizer.source.json", "tokenizer.target.json"


@dataclass(frozen=True)
class Vocabularies:
    """What a source is read with, and what a target is written with."""

    source: Tokenizer
    target: Tokenizer

    @property
    def is_joint(self) -> bool:
        return self.source.fingerprint == self.target.fingerprint

    @property
    def fingerprint(self) -> str:
        """That of the one tokenizer, or of both."""
        both = f"{self.source.fingerprint}+{self.target.fingerprint}"
        return self.source.fingerprint if self.is_joint else both

    @property
    def spec(self) -> dict[str, Any]:
        """Their content."""
        return {"source": self.source.spec, "target": self.target.spec}

    def save(self, directory: str | Path) -> None:
        """Write `tokenizer.json`, or a file for each side."""
        if self.is_joint:
            self.source.save(directory)
            return
        for name, tokenizer in ((SOURCE_FILE, self.source), (TARGET_FILE, self.target)):
            with written_aside(Path(directory) / name) as file:
                file.write(json.dumps(tokenizer.spec, ensure_ascii=False, indent=1).encode() + b"\n")


def read_separate(directory: Path, source_fingerprint: str, target_fingerprint: str) -> Vocabularies:
    """The two tokenizers of a run; refused where one is not the one that the run was trained with."""
    found = []
    for name, trained in ((SOURCE_FILE, source_fingerprint), (TARGET_FILE, target_fingerprint)):
        tokenizer = Tokenizer.load(directory / name)
        if tokenizer.fingerprint != trained:
            raise IntegrityError(
                f"{name} ({tokenizer.size:,} tokens, {tokenizer.fingerprint[:12]}…) is not the one that the run "
                f"was trained with ({trained[:12]}…)",
                where=str(directory),
                fix=f"bring the run's own {name} back",
            )
        found.append(tokenizer)
    return Vocabularies(*found)
