"""The base of a pretraining to which nobody gave a shape: what this text and this time are worth.

The laws are those that a study takes (planning/base.py). A run that has begun keeps the shape and steps that it has.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from headstart.config.defaults import PRETRAIN_TIME
from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.training import PretrainSettings, seconds_in
from headstart.data.token_store import TokenStore
from headstart.planning.base import PRESET, SHAPELESS, SIZES, Size, base_recipe, largest, most_passes, step_operations
from headstart.planning.workload import DeviceKind, Lengths, Workload
from headstart.training.calibration.calibrate import stretches
from headstart.training.fit import Session
from headstart.training.tasks.arguments import Call


def with_default_base(
    call: Call[PretrainSettings], vocab: int, stores: Sequence[TokenStore], session: Session
) -> Call[PretrainSettings]:
    """Shape, optimizer and steps, where neither a preset, nor a field of the model, nor a start is given."""
    given = call.settings
    if given.preset or given.start != "scratch" or call.model.keys() - SHAPELESS:
        return call
    choice = _Choice(call, vocab, stores, session)
    found: dict[str, Any] = session.machine.ranks.first(choice.size_and_steps)
    size = SIZES[found["size"]]
    settings = choice.settings_on(size)
    if found["steps"]:
        settings = dataclasses.replace(settings, steps=found["steps"])
    model = {**choice.recipe(size).model, **call.model}
    shape = f"{model['depth']} layers of width {model['width']}"
    session.console.log(f"no --preset: {shape}, trained by {settings.optimizer}, for this text and time")
    return call._replace(settings=dataclasses.replace(settings, preset=PRESET), model=model)


class _Choice:
    """The shape and the steps of one pretraining."""

    def __init__(
        self, call: Call[PretrainSettings], vocab: int, stores: Sequence[TokenStore], session: Session
    ) -> None:
        self.call, self.given, self.vocab, self.session = call, call.settings, vocab, session
        self.kind: DeviceKind = "cuda" if session.machine.device.type == "cuda" else "cpu"
        self.tokens = sum(map(len, stores))
        self.document = self.tokens / max(1, sum(store.document_count for store in stores))
        self._seconds: dict[Size, float] = {}

    def recipe(self, size: Size) -> Any:
        return base_recipe(size, self.tokens, self.document)

    def settings_on(self, size: Size) -> PretrainSettings:
        """With what a base of this size is trained by, as far as it is not given."""
        own = self.given.given()
        return dataclasses.replace(
            self.given, **{name: value for name, value in self.recipe(size).pretrain.items() if name not in own}
        )

    def size_and_steps(self) -> dict[str, int]:
        """The number of the size, and the steps where no duration is given (else 0)."""
        is_open = not (self.given.steps or self.given.epochs or self.given.time)
        if self.session.run.config_file.exists():
            config = self.session.run.read_config()
            shape, batch = (config.model.width, config.model.depth), config.batch * config.length
            alike = [size for size in SIZES if (size.width, size.depth) == shape]
            if alike:
                size = next((one for one in alike if one.batch_tokens == batch), alike[0])
                return {"size": SIZES.index(size), "steps": config.loop.steps if is_open else 0}
        self.session.machine.prepare()
        size = largest(lambda size: self._steps(size) * step_operations(self._work(size)))
        return {"size": SIZES.index(size), "steps": max(1, round(self._steps(size))) if is_open else 0}

    def _steps(self, size: Size) -> float:
        """As given, or those of the given time; without any, of half an hour, and no more than the text is good for."""
        work = self._work(size)
        pass_steps = self.tokens / (work.batch * work.lengths.source)
        if self.given.steps or self.given.epochs:
            return self.given.steps or self.given.epochs * pass_steps
        in_time = seconds_in(self.given.time or PRETRAIN_TIME) / self._step_seconds(size)
        most = most_passes(self.given.objective, work.config.dropout) * pass_steps
        return in_time if self.given.time else min(in_time, most)

    def _step_seconds(self, size: Size) -> float:
        if size not in self._seconds:
            machine = self.session.machine
            work = self._work(size)
            own = dataclasses.replace(work, batch=max(1, work.batch // machine.ranks.world))
            self._seconds[size] = statistics.median(stretches(own, machine.alone))
        return self._seconds[size]

    def _work(self, size: Size) -> Workload:
        settings, objective = self.settings_on(size), self.given.objective
        fields: dict[str, Any] = {**self.recipe(size).model, **self.call.model, "vocab": self.vocab}
        if objective != "causal":
            fields["direction"] = "bidirectional"
        if objective == "masked-nsp":
            fields["segments"] = 2
        head: Any = "lm" if objective == "causal" else objective
        return Workload(
            config=preset(PRESET, **fields), head=HeadConfig(kind=head), device=self.kind,
            batch=max(1, settings.batch_tokens // settings.length), lengths=Lengths(settings.length),
            precision=self.session.machine.precision, reading="packed" if objective != "masked-nsp" else "padded",
            document=max(1, round(self.document)), optimizer=settings.optimizer, masked_share=settings.mask_prob,
        )  # fmt: skip
