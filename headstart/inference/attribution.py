"""How much of a prediction each token accounts for: by leaving it out, or by gradient × input.

Both measure one number of the prediction: for classification the log-odds of the predicted class, log p/(1 − p); for
several labels those of the most probable label; for regression the value. A positive attribution supports it. Leaving
out predicts again without the token. Gradient × input is the first-order effect of replacing the embedding by zeros:
one pass for all tokens.

The bytes of one character count as one token.
"""

import dataclasses
import threading
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from headstart.cancellation import stop_if_cancelled
from headstart.errors import UserError
from headstart.inference.predict import BATCH_TOKENS, batched, framed, of_one_kind
from headstart.machine import Machine
from headstart.objectives.batches import to_device
from headstart.objectives.classification import predict
from headstart.runs.load import LoadedRun, require
from headstart.tokenizers.templates import Framed
from headstart.tokenizers.token_texts import specials_around, text_of_stretch, whole_stretches

Method = Literal["leave-one-out", "gradient"]


class TokenAttribution(NamedTuple):
    """A token, or the tokens of one character, and its attribution."""

    text: str
    attribution: float
    is_special: bool  # whether it belongs to the frame: such a token is never left out


@dataclass(frozen=True)
class Attribution:
    """The attributions of the tokens of a text: their parts in the run's prediction."""

    method: Method
    of: str  # the label that was predicted, or `value`
    unit: str  # a description of the numbers
    tokens: list[TokenAttribution]
    is_cut: bool

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**dataclasses.asdict(self), "tokens": [token._asdict() for token in self.tokens]}


def attribution_of(
    run: LoadedRun, text: str, machine: Machine, *, text_b: str | None = None, method: Method = "leave-one-out"
) -> Attribution:
    """The attribution of each token of a text (or of two, where the run reads pairs), in the run's prediction."""
    if method not in ("leave-one-out", "gradient"):
        raise UserError(f"no method {method!r}", fix="give leave-one-out or gradient", code="unknown-name")
    require(run.config.objective, "predict", str(run.path))
    run.model.to(machine.device).eval()
    (given,) = of_one_kind(run, [text if text_b is None else (text, text_b)])
    (example,) = framed(run, [given])
    ids = [int(identity) for identity in example.tokens]
    stretches, special = whole_stretches(run.tokenizer, ids), specials_around(run.tokenizer)
    is_special = [ids[stretch.start] in special for stretch in stretches]
    if method == "gradient":
        answer, attributions = _by_gradient(run, example, stretches, machine)
    else:
        answer, attributions = _by_leaving_out(run, example, stretches, is_special, machine)
    if not np.isfinite(attributions).all():
        raise UserError("its prediction is not finite", where=run.path, fix="train it again", code="not-finite")
    texts = [text_of_stretch(run.tokenizer, ids, stretch) for stretch in stretches]
    tokens = [TokenAttribution(*one) for one in zip(texts, attributions.tolist(), is_special, strict=True)]
    of = run.config.label_names[answer] if run.config.label_names else "value"
    number = "value" if run.config.objective == "regression" else "log-odds"
    how = "to first order, by gradient × input" if method == "gradient" else "lost when the token is left out"
    return Attribution(method, of, f"{number}, {how}", tokens, example.is_truncated)


def _number(run: LoadedRun, outputs: Tensor, answer: int) -> Tensor:
    """The log-odds of a class, or the value, of each text: (texts,)."""
    if run.config.objective != "classification":  # a label's own logit is its log-odds
        return outputs[:, answer]
    others = torch.cat([outputs[:, :answer], outputs[:, answer + 1 :]], dim=-1)
    return outputs[:, answer] - others.logsumexp(dim=-1)


@torch.inference_mode()
def _by_leaving_out(
    run: LoadedRun, example: Framed, stretches: list[range], is_special: list[bool], machine: Machine
) -> tuple[int, np.ndarray]:
    """The answer's class, and how much of its number goes with each stretch."""
    kept = np.flatnonzero(~np.array(is_special, bool)).tolist()
    examples = [example]
    for number in kept:
        left_out = list(stretches[number])
        tokens, segments = np.delete(example.tokens, left_out), np.delete(example.segments, left_out)
        examples.append(Framed(tokens, segments, example.is_truncated))
    outputs = torch.zeros(len(examples), run.config.head.classes, dtype=torch.float64)
    rows = max(1, BATCH_TOKENS[machine.device.type] // len(example.tokens))
    for batch in batched(run, examples, run.config.head, rows).evaluation():
        outputs[torch.from_numpy(batch["rows"])] = _outputs(run, batch, machine).double().cpu()
    answer, attributions = int(outputs[0].argmax()), np.zeros(len(stretches))
    numbers = _number(run, outputs, answer).numpy()
    attributions[kept] = numbers[0] - numbers[1:]
    return answer, attributions


def _by_gradient(run: LoadedRun, example: Framed, stretches: list[range], machine: Machine) -> tuple[int, np.ndarray]:
    """The answer's class, and the scalar product of gradient and embedding, summed over each stretch."""
    (batch,) = batched(run, [example], run.config.head).evaluation()
    leaves = list[Tensor]()  # the embedded tokens, as something that a gradient can be taken at
    thread = threading.get_ident()  # the same model may serve another thread meanwhile

    def catch(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        if threading.get_ident() != thread:
            return output
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    hook = run.model.base.embedding.tokens.register_forward_hook(catch)
    with torch.inference_mode(False), torch.enable_grad(), hook:
        outputs = _outputs(run, batch, machine)
        answer = int(outputs[0].argmax())
        (leaf,) = leaves
        (gradient,) = torch.autograd.grad(_number(run, outputs, answer)[0], leaf)
    each = (gradient.double() * leaf.detach().double()).sum(dim=-1)[0].cpu().numpy()
    return answer, np.array([each[stretch.start : stretch.stop].sum() for stretch in stretches])


def _outputs(run: LoadedRun, batch: dict[str, np.ndarray], machine: Machine) -> Tensor:
    stop_if_cancelled()
    with machine.autocast():
        return predict(run.model, to_device(batch, machine.device)).float()
