"""`headstart generate` and `headstart translate`: a run writes text."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.cli import consoles, options
from headstart.cli.consoles import log, log_truncated, open_run, printed
from headstart.cli.options import Common, CommonFlags, Switch, conflict
from headstart.config.generation import BEAM_OF_FIVE, SAMPLED, GenerationConfig

if TYPE_CHECKING:
    from headstart.inference.generate import Continuation
    from headstart.inference.translate import Translated, Translator

CONTEXT_ENDS = "stopped: the learned positions end here"


def generate(
    run: Path,
    prompt: str = "",
    *,
    greedy: Switch = False,
    generation: options.GenerateFlags = options.GENERATE,
    common: CommonFlags = Common(),
) -> None:
    """Continue a text, token by token, until the run ends it.

    The text appears as it is generated. The same seed gives the same text. The prompt and the new tokens share the
    context: with learned positions generation stops where they end, and a prompt that leaves too little room loses
    its oldest tokens, which is reported; other positions go on beyond the trained length.

    For example:

        headstart generate runs/base "Bonjour les"
        headstart generate runs/base "Il était une fois" --temperature 1.1 --top-k 40 --count 5 --seed 3
        headstart generate runs/base "La fin de ce roman" --greedy --max-tokens 40 --json
        headstart generate runs/base "La fin de ce roman" --beam 5 --count 3 --no-repeat 3 --max-tokens 40

    Args:
        run: A causal run's directory.
        prompt: How the text begins (default: empty); - for standard input.
        greedy: Always take the most probable token, as --temperature 0 does.
    """
    from headstart.inference.generate import generate as continuations_of
    from headstart.inference.generate import stream_tokens

    config = _generation_config(generation.given(), greedy, common.seed)
    loaded, machine = open_run(run, "generate", common)
    prompt = consoles.argument_text(prompt)
    if config.count > 1 or config.beam is not None or common.json:
        _print(prompt, continuations_of(loaded, prompt, machine, config, log), common)
        return
    stop = None
    print(printed(prompt), end="", flush=True)
    for step in stream_tokens(loaded, prompt, machine, config, log=log):
        print(printed(step.text), end="", flush=True)
        stop = step.stop
    print()
    if stop == "context":
        log(CONTEXT_ENDS)


def _generation_config(given: dict[str, Any], greedy: bool, seed: int) -> GenerationConfig:
    """Sampling, greedy search and a beam exclude each other: refuse flags that would be ignored."""
    if greedy and "beam" in given:
        raise conflict("--greedy with --beam", "give one of them")
    if not greedy and "beam" not in given:
        return dataclasses.replace(SAMPLED, seed=seed, **given)
    for name in ("temperature", "top_k", "top_p"):
        if name in given:
            what = f"--{name.replace('_', '-')} with {'--greedy' if greedy else '--beam'}"
            raise conflict(what, "give one of them: nothing is sampled")
    return GenerationConfig(seed=seed, **given)


def _print(prompt: str, continuations: "list[Continuation]", common: Common) -> None:
    if common.json:
        texts = [
            {"text": one.text, "tokens": one.token_count, "stop": one.stop}
            | ({} if one.score is None else {"score": one.score})
            for one in continuations
        ]
        print(json.dumps({"prompt": prompt, "continuations": texts}))
        return
    for number, one in enumerate(continuations, 1):
        print(f"[{number}]", file=sys.stderr, flush=True)
        print(printed(prompt + one.text), flush=True)
    if any(one.stop == "context" for one in continuations):
        log(CONTEXT_ENDS)


def translate(
    run: Path,
    file: str = "-",
    *,
    n_best: int = 1,
    prefix: str = "",
    alignment_layer: int | None = None,
    reading: options.EncodingFlags = options.ENCODING,
    generation: options.TranslateFlags = options.TRANSLATE,
    common: CommonFlags = Common(),
) -> None:
    """Translate each line of a file, in order; a blank line stays a blank line.

    Lines of standard input are translated as they come. With --temperature translations are sampled, otherwise a beam
    search finds them.

    A line that is longer than the run reads is cut, and the number of those is reported at the end. Text that the
    run's tokenizer has no piece for (a byte-level one has pieces for every script) is read as its unknown token, and
    reported too.

    With --json a JSON line for each: text, score, tokens, and for each token the source token that it attends to most
    (alignment: source, target and weight, by the mean over the heads of one layer). With --n-best there are several
    lines for each: its number, the score and the text, with tabs between them and none inside.

    For example:

        headstart translate runs/english-french letter.txt --beam 5
        echo "A beautiful novel." | headstart translate runs/english-french
        headstart translate runs/english-french letter.txt --n-best 3 --json

    Args:
        run: A translation run's directory.
        file: A text a line; .txt or .txt.gz, - for standard input.
        n_best: Translations of each line, best first.
        prefix: How every translation begins.
        alignment_layer: The decoder layer of the alignments, counted from 1 (default: the last but one).
    """
    from headstart.config.reading import Reading
    from headstart.inference.translate import Translator, lines_of

    config = _translation_config(generation.given(), n_best, common.seed)
    translator = dataclasses.replace(Translator.of(*open_run(run, "translate", common)), prefix=prefix)
    consoles.log_standard_input(file)
    cut_count = unknown_count = 0
    with consoles.spinner(f"reading {file}", is_printing=True):
        lines = lines_of(file, Reading(**reading.given()))
        for number, translated in enumerate(translator.translate(lines, config), 1):
            if common.json:
                print(json.dumps(_as_json(translator, translated, alignment_layer)), flush=True)
            elif n_best > 1:
                for one in translated.candidates:
                    text = printed(one.text.replace("\t", " "))
                    print(f"{number}\t{one.score:.4f}\t{text}", flush=True)
            else:
                print(printed(translated.candidates[0].text), flush=True)
            cut_count += translated.is_cut
            unknown_count += translated.has_unknown
    log_truncated(cut_count, translator.length)
    if unknown_count:
        have = "text has" if unknown_count == 1 else "texts have"
        log(f"{unknown_count:,} {have} characters that the run's tokenizer has no piece for: read as unknown")


def _translation_config(given: dict[str, Any], n_best: int, seed: int) -> GenerationConfig:
    """A beam search, or with a temperature sampling: refuse flags that would be ignored."""
    most = int(given.get("beam", 1 if given.get("temperature") else 5))
    if most >= 1 and not 1 <= n_best <= most:
        raise conflict(f"--n-best {n_best} with a beam of {most}", f"give 1 to {most}, or a wider --beam")
    if given.get("temperature"):
        if given.get("beam", 1) > 1:
            raise conflict(f"--temperature with --beam {given['beam']}", "give one of them")
        return GenerationConfig(**{"top_p": 1.0, "count": n_best, "seed": seed, **given})
    for name in ("top_k", "top_p"):
        if name in given:
            raise conflict(f"--{name.replace('_', '-')} without --temperature", "give --temperature too")
    return dataclasses.replace(BEAM_OF_FIVE, count=n_best, seed=seed, **given)


def _as_json(translator: "Translator", translated: "Translated", layer: int | None) -> dict[str, Any]:
    """The best translation, and all of them where there are several."""
    vocabularies, answers = translator.vocabularies, []
    for one in translated.candidates:
        pairs = translator.alignment(translated.source_ids, one.ids, layer) if one.ids else []
        answers.append({
            "text": one.text, "score": one.score, "tokens": vocabularies.target.pieces_of(one.ids),
            "alignment": [[pair.source, pair.target, round(pair.weight, 4)] for pair in pairs],
        })  # fmt: skip
    others = {"n_best": answers} if len(answers) > 1 else {}
    return {**answers[0], "source_tokens": vocabularies.source.pieces_of(translated.source_ids), **others}
