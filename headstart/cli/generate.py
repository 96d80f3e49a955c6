"""`headstart generate`: a causal run goes on with a text."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.cli.evaluate import note, printed
from headstart.cli.options import Common, CommonFlags, Switch
from headstart.cli.running import machine_of
from headstart.errors import UserError

if TYPE_CHECKING:
    from headstart.training.generating import Continuation

AT_THE_END = "stopped: the learned positions end here"


def generate(
    run: Path,
    prompt: str = "",
    *,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    greedy: Switch = False,
    beam: int | None = None,
    length_penalty: float = 1.0,
    max_tokens: int = 200,
    min_tokens: int = 0,
    no_repeat: int = 0,
    count: int = 1,
    common: CommonFlags = Common(),
) -> None:
    """Go on with a text, token by token, until the run ends it.

    The text appears as it is written. The same seed gives the same text. A prompt and what is written share the
    context: with learned positions writing stops where they end, and of a prompt that leaves too little room the
    oldest tokens are dropped, which is told; other positions go on beyond the trained length.

    For example:

        headstart generate runs/base "Bonjour les"

        headstart generate runs/base "Il était une fois" --temperature 1.1 --top-k 40 --count 5 --seed 3

        headstart generate runs/base "La fin de ce roman" --greedy --max-tokens 40 --json

        headstart generate runs/base "La fin de ce roman" --beam 5 --count 3 --no-repeat 3 --max-tokens 40

    Parameters
    ----------
    run
        A causal run's directory.
    prompt
        How the text begins (default: from nothing); - for standard input.
    temperature
        Flatter above 1, sharper below; 0 takes the likeliest token, always (default: 0.8).
    top_k
        Only the k likeliest tokens can come.
    top_p
        Only the likeliest tokens that reach this probability together can come (1: all; default: 0.95).
    greedy
        The likeliest token, always.
    beam
        Search for the likeliest text instead, with so many ways kept open; --count gives the best of them.
    length_penalty
        How the length of a text counts in a beam: 0 favours short ones, 1 ranks by the mean over the tokens.
    max_tokens
        Most tokens to write.
    min_tokens
        Fewest tokens to write.
    no_repeat
        No stretch of so many tokens comes twice (0: any may).
    count
        How many texts.
    """
    from headstart.decoding.beam import Beam
    from headstart.training.generating import DEFAULT_SAMPLING, generate_best, writing
    from headstart.training.generating import generate as write
    from headstart.training.using import open_run

    _refuse_both(greedy, beam, {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p})
    if beam is not None and beam >= 1 and not 1 <= count <= beam:
        raise UserError(f"--count {count} with --beam {beam}", fix="give --count from 1 to the beam")
    drawing: dict[str, Any] = {"temperature": 0.0 if greedy else temperature, "top_k": top_k, "top_p": top_p}
    given = {name: value for name, value in drawing.items() if value is not None}
    sampling = dataclasses.replace(DEFAULT_SAMPLING, seed=common.seed, **given)
    machine = machine_of(common)
    machine.prepare()
    loaded = open_run(run, "generate", machine)
    prompt = given_text(prompt)
    rules = {"max_tokens": max_tokens, "min_tokens": min_tokens, "no_repeat": no_repeat}
    if beam is not None:
        width = Beam(beams=beam, length_penalty=length_penalty, n_best=count)
        found = generate_best(loaded, prompt, machine, beam=width, tell=note, **rules)
        _print(prompt, found, common)
        return
    if count == 1 and not common.json:
        stop = None
        pieces = writing(loaded, prompt, machine, sampling=sampling, tell=note, **rules)
        print(printed(prompt), end="", flush=True)
        for written in pieces:
            print(printed(written.text), end="", flush=True)
            stop = written.stop
        print()
        if stop == "context":
            note(AT_THE_END)
        return
    found = write(loaded, prompt, machine, count=count, sampling=sampling, tell=note, **rules)
    _print(prompt, found, common)


def _refuse_both(greedy: bool, beam: int | None, drawing: dict[str, float | None]) -> None:
    """The ways to choose a token are drawing, taking the likeliest and a beam: flags of one mean nothing to another."""
    if greedy and beam is not None:
        raise UserError("--greedy with --beam", fix="give one of them")
    if greedy or beam is not None:
        for name, value in drawing.items():
            if value is not None:
                other = "--greedy" if greedy else "--beam"
                raise UserError(f"{name} with {other}", fix="give one of them: nothing is drawn")


def given_text(given: str) -> str:
    """The text of the command line, or standard input without its last line break."""
    if given not in ("-", "/dev/stdin"):
        return given
    from headstart.text.files import STRICT_UTF8, text_blocks

    return "".join(text_blocks(given, STRICT_UTF8)).removesuffix("\n")


def _print(prompt: str, found: "list[Continuation]", common: Common) -> None:
    if common.json:
        texts = [
            {"text": one.text, "tokens": one.token_count, "stop": one.stop}
            | ({} if one.score is None else {"score": one.score})
            for one in found
        ]
        print(json.dumps({"prompt": prompt, "continuations": texts}))
        return
    for number, one in enumerate(found, 1):
        print(f"[{number}]", file=sys.stderr, flush=True)
        print(printed(prompt + one.text), flush=True)
    if any(one.stop == "context" for one in found):
        note(AT_THE_END)
