"""Texts that are longer than the run reads: cut, and the share of them is said before training."""

import commands
import small
from commands import Workspace


def test_the_share_of_training_texts_that_are_cut_is_said(tmp_path, monkeypatch, capsys):
    workspace = Workspace(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))
    texts = small.sentences(60, seed=4)
    valid = [f"{text}\t{'oui' if 'belle' in text else 'non'}" for text in small.sentences(20, seed=8)]
    (tmp_path / "valid.tsv").write_text("\n".join(["text\tlabel", *valid]))
    # Of eight tokens two are the begin and the end of the text.
    cut = sum(len(small.tokenizer().encode(text)) > 6 for text in texts)
    assert 0 < cut < 60
    more = ("--length", 8, "--steps", 1, "--valid", tmp_path / "valid.tsv")
    answer = commands.invoke(capsys, workspace.command(*more, verb="finetune"))
    assert answer.code == 0, answer.err
    assert f"{cut / 60:.1%} of the texts are longer than 8 tokens, and are cut" in answer.err
