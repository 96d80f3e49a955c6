"""A tokenizer as `transformers` reads it: the same ids, with the frame around them."""

import pytest
import small

from headstart.interop.tokenizer_files import tokenizer_obstacle, write_tokenizer
from headstart.tokenizers.templates import template_of

transformers = pytest.importorskip("transformers")
TEXTS = ["le livre est très long.", "", "x 中 🙂"]


@pytest.mark.parametrize("name", ["causal", "masked"])
@pytest.mark.parametrize("segments", [False, True])
def test_transformers_gives_the_ids_of_the_frame(tmp_path, name, segments):
    tokenizer = small.tokenizer()
    frame = template_of(tokenizer, name)
    assert tokenizer_obstacle(tokenizer) is None
    write_tokenizer(tokenizer, frame, 64, segments, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        found = theirs(text)
        assert found["input_ids"] == list(frame.one(tokenizer.encode(text), 64).tokens)
        assert ("token_type_ids" in found) == segments
    assert theirs.model_max_length == 64
    assert theirs.pad_token_id == tokenizer.roles["pad"]
