"""What each token did to a prediction: by leaving it out, or by the gradient at its embedding.

Both measure one number of the prediction: of a classification the log-odds of the predicted class, log p/(1 − p);
of several labels those of the most probable label; of a regression the value. A token with a positive influence
speaks for it. Leaving out is exact for one token at a time: the prediction is made again without it, the rest
closing up. Gradient × input is what a first-order step to an embedding of zeros would take away: one pass for all.

The bytes of one character count as one token, since half a character is nothing that could be left out.
"""

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from headstart.errors import UserError
from headstart.objectives.classification import Classification, predict
from headstart.text.frames import Framed
from headstart.text.token_texts import specials_around, text_of_stretch, whole_stretches
from headstart.training.batches import to_device
from headstart.training.loading import LoadedRun
from headstart.training.machine import Machine
from headstart.training.predicting import batched, framed, of_one_kind
from headstart.training.using import require

Method = Literal["leave-one-out", "gradient"]


class TokenInfluence(NamedTuple):
    """A token, or the tokens of one character, and what it did."""

    text: str
    influence: float
    is_special: bool
    """Whether it stands around the text: such a token is never left out, and has no influence by that method."""


@dataclass(frozen=True)
class Influence:
    """What the tokens of a text did to the run's answer."""

    method: Method
    of: str
    """The label that was predicted, or `value`."""

    unit: str
    """What the numbers are, in words."""

    tokens: list[TokenInfluence]
    is_cut: bool

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**dataclasses.asdict(self), "tokens": [token._asdict() for token in self.tokens]}


def influence_of(
    run: LoadedRun,
    text: str,
    machine: Machine,
    *,
    text_b: str | None = None,
    method: Method = "leave-one-out",
) -> Influence:
    """The influence of each token of a text (or of two, where the run reads pairs) on the run's answer to it."""
    if method not in ("leave-one-out", "gradient"):
        raise UserError(f"no method {method!r}", fix="give leave-one-out or gradient")
    require(run.config.objective, "predict", str(run.path))
    run.model.to(machine.device).eval()
    (given,) = of_one_kind(run, [text if text_b is None else (text, text_b)])
    (example,) = framed(run, [given])
    ids = [int(identity) for identity in example.tokens]
    stretches, special = whole_stretches(run.tokenizer, ids), specials_around(run.tokenizer)
    is_special = [ids[stretch.start] in special for stretch in stretches]
    if method == "gradient":
        answer, found = _by_gradient(run, example, stretches, machine)
    else:
        answer, found = _by_leaving_out(run, example, stretches, is_special, machine)
    if not np.isfinite(found).all():
        raise UserError("its answer is not a finite number", where=str(run.path), fix="train it again")
    texts = [text_of_stretch(run.tokenizer, ids, stretch) for stretch in stretches]
    tokens = [TokenInfluence(*one) for one in zip(texts, found.tolist(), is_special, strict=True)]
    of = run.config.labels[answer] if run.config.labels else "value"
    return Influence(method, of, _unit(run, method), tokens, example.is_truncated)


def _unit(run: LoadedRun, method: Method) -> str:
    number = "value" if run.config.objective == "regression" else "log-odds"
    how = "to first order, by gradient × input" if method == "gradient" else "lost when the token is left out"
    return f"{number}, {how}"


# ---- the number that is measured ----------------------------------------------------------------------------


def _number(run: LoadedRun, outputs: Tensor, answer: int) -> Tensor:
    """The log-odds of a class, or the value, of each text: (texts,)."""
    if run.config.objective != "classification":  # a label's own logit is its log-odds
        return outputs[:, answer]
    others = torch.cat([outputs[:, :answer], outputs[:, answer + 1 :]], dim=-1)
    return outputs[:, answer] - others.logsumexp(dim=-1)


# ---- the two methods ----------------------------------------------------------------------------------------


@torch.inference_mode()
def _by_leaving_out(
    run: LoadedRun, example: Framed, stretches: list[range], is_special: list[bool], machine: Machine
) -> tuple[int, np.ndarray]:
    """The answer's class, and how much of its number goes with each stretch."""
    places = [place for place, special in enumerate(is_special) if not special]
    without = [_left_out(example, stretches[place]) for place in places]
    objective = batched(run, [example, *without], run.config.head)
    outputs = torch.zeros(len(without) + 1, run.config.head.classes, dtype=torch.float64)
    for batch in objective.evaluation():
        outputs[torch.from_numpy(batch["rows"])] = _outputs(run, batch, machine).double().cpu()
    answer, influences = int(outputs[0].argmax()), np.zeros(len(stretches))
    numbers = _number(run, outputs, answer).numpy()
    influences[places] = numbers[0] - numbers[1:]
    return answer, influences


def _left_out(example: Framed, stretch: range) -> Framed:
    tokens, segments = (np.delete(part, list(stretch)) for part in (example.tokens, example.segments))
    return Framed(tokens, segments, example.is_truncated)


def _by_gradient(
    run: LoadedRun, example: Framed, stretches: list[range], machine: Machine
) -> tuple[int, np.ndarray]:
    """The answer's class, and the scalar product of gradient and embedding, summed over each stretch."""
    objective: Classification = batched(run, [example], run.config.head)
    (batch,) = objective.evaluation()
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        _leaf_of(run.model.base.embedding.tokens) as leaves,
    ):
        outputs = _outputs(run, batch, machine)
        answer = int(outputs[0].argmax())
        (leaf,) = leaves
        (gradient,) = torch.autograd.grad(_number(run, outputs, answer)[0], leaf)
    each = (gradient.double() * leaf.detach().double()).sum(dim=-1)[0].cpu().numpy()
    return answer, np.array([each[stretch.start : stretch.stop].sum() for stretch in stretches])


@contextmanager
def _leaf_of(table: nn.Module) -> Iterator[list[Tensor]]:
    """What the table gives in this thread, in a list, as something that a gradient can be taken at."""
    leaves: list[Tensor] = []
    thread = threading.get_ident()  # the same model may serve another thread meanwhile

    def catch(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        if threading.get_ident() != thread:
            return output
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    handle = table.register_forward_hook(catch)
    try:
        yield leaves
    finally:
        handle.remove()


def _outputs(run: LoadedRun, batch: dict[str, np.ndarray], machine: Machine) -> Tensor:
    with machine.autocast():
        return predict(run.model, to_device(batch, machine.device)).float()
