"""`headstart translate`: lines in, their translations out."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headstart.cli.evaluate import note, printed, working
from headstart.cli.options import Common, CommonFlags
from headstart.cli.predict import tell_cut, tell_standard_input
from headstart.cli.running import machine_of
from headstart.errors import UserError

if TYPE_CHECKING:
    from headstart.training.translating import Translated, Translator


def translate(
    run: Path,
    file: str = "-",
    *,
    beam: int | None = None,
    length_penalty: float = 1.0,
    n_best: int = 1,
    min_tokens: int = 0,
    max_tokens: int | None = None,
    no_repeat: int = 0,
    prefix: str = "",
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    alignment_layer: int | None = None,
    encoding: str = "utf-8",
    errors: Literal["strict", "replace", "ignore"] = "strict",
    common: CommonFlags = Common(),
) -> None:
    """Translate each line of a file, in their order; a blank line stays a blank line.

    Lines of standard input are translated as they come.

    A line that is longer than the run reads is cut, and how many were is told at the end. What the run's tokenizer has
    no piece for (a byte-level one has pieces for every script) is read as its unknown token, and told too.

    With --json a JSON line for each: text, score, tokens, and for each token the source token that it looked at most
    (alignment: source, target and weight, by the mean over the heads of one layer). With --n-best there are several
    lines for each: its number, the score and the text, with tabs between them and none inside.

    For example:

        headstart translate runs/english-french letter.txt --beam 5

        echo "A beautiful novel." | headstart translate runs/english-french

        headstart translate runs/english-french letter.txt --n-best 3 --json

    Parameters
    ----------
    run
        A translation run's directory.
    file
        A text a line; .txt or .txt.gz, - for standard input.
    beam
        Ways that the search keeps open; 1 is greedy (default: 5).
    length_penalty
        How the length counts: 0 favours short translations, 1 ranks by the mean over the tokens.
    n_best
        Translations of each line, best first.
    min_tokens
        Fewest tokens of a translation.
    max_tokens
        Most tokens of a translation (default: twice those of the line, and 16).
    no_repeat
        No stretch of so many tokens comes twice (0: any may).
    prefix
        How every translation begins.
    temperature
        Draw a translation instead of searching: flatter above 1, sharper below (0: search).
    top_k
        Only the k likeliest tokens can be drawn.
    top_p
        Only the likeliest tokens that reach this probability together can be drawn.
    alignment_layer
        The decoder's layer that alignments are read from, counted from 1 (default: the last but one).
    encoding
        How the file is encoded.
    errors
        What to do with bytes that are not text.
    """
    from headstart.decoding.beam import Beam
    from headstart.decoding.search import Sampling
    from headstart.text.files import Reading
    from headstart.training.translating import Search, Translator, lines_of
    from headstart.training.using import open_run

    is_drawn = temperature != 0
    if is_drawn and beam not in (None, 1):
        raise UserError(f"--temperature with --beam {beam}", fix="give one of them")
    if not is_drawn and (top_k is not None or top_p != 1.0):
        name = "--top-p" if top_k is None else "--top-k"
        raise UserError(
            f"{name} without --temperature", fix="give --temperature too: nothing is drawn without it"
        )
    search = Search(
        beam=Beam(beams=1 if is_drawn else 5 if beam is None else beam, length_penalty=length_penalty, n_best=n_best),
        min_tokens=min_tokens, max_tokens=max_tokens, no_repeat=no_repeat, prefix=prefix,
        sampling=Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=common.seed) if is_drawn else None,
    )  # fmt: skip
    machine = machine_of(common)
    machine.prepare()
    translator = Translator.of(open_run(run, "translate", machine), machine)
    tell_standard_input(file)
    cut_count = unknown_count = 0
    with working(f"reading {file}", is_printing=True):
        lines = lines_of(file, Reading(encoding, errors))
        for number, found in enumerate(translator.translate(lines, search), 1):
            if common.json:
                print(json.dumps(_as_json(translator, found, alignment_layer)), flush=True)
            elif n_best > 1:
                for one in found.candidates:
                    text = printed(one.text.replace("\t", " "))
                    print(f"{number}\t{one.score:.4f}\t{text}", flush=True)
            else:
                print(printed(found.candidates[0].text), flush=True)
            cut_count += found.is_cut
            unknown_count += found.has_unknown
    tell_cut(cut_count, translator.length)
    if unknown_count:
        hold = "text holds" if unknown_count == 1 else "texts hold"
        note(f"{unknown_count:,} {hold} what the run's tokenizer has no piece for, and is read as unknown")


def _as_json(translator: "Translator", found: "Translated", layer: int | None) -> dict[str, Any]:
    """The best translation, and all of them where several were asked for."""
    source = translator.words.source
    answers = []
    for one in found.candidates:
        pairs = translator.alignment(found.source_ids, one.ids, layer) if one.ids else []
        answers.append(
            {
                "text": one.text,
                "score": one.score,
                "tokens": translator.words.target.pieces_of(one.ids),
                "alignment": [[pair.source, pair.target, round(pair.weight, 4)] for pair in pairs],
            }
        )
    others = {"n_best": answers} if len(answers) > 1 else {}
    return {**answers[0], "source_tokens": source.pieces_of(found.source_ids), **others}
