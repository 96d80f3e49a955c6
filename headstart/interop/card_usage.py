"""How an exported directory is used, as code for its model card; the code needs nothing of Headstart."""

from headstart.training.loading import LoadedRun

AUTO_CLASSES = {
    "causal": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "masked-nsp": "AutoModelForPreTraining",
    "classification": "AutoModelForSequenceClassification",
    "multilabel": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "translation": "AutoModelForSeq2SeqLM",
    "base": "AutoModel",
}


def huggingface_usage(run: LoadedRun) -> str:
    """Load and compute with transformers alone."""
    name, objective = AUTO_CLASSES[run.config.objective], run.config.objective
    texts = '("one text", "another")' if run.config.pairs else '"a text"'
    given = "*map(list, zip(*texts))" if run.config.pairs else "texts"
    opening = _LOAD.format(name=name, more="", target="")
    if objective == "translation" and not run.vocabularies.is_joint and "format" not in run.tokenizer.spec:
        opening = _LOAD.format(name=name, more=", PreTrainedTokenizerFast", target=_TARGET_TOKENIZER)
    elif objective == "translation":
        opening += "target_tokenizer = tokenizer\n"
    return opening + _COMPUTE[objective].format(texts=texts, given=given)


def onnx_usage(run: LoadedRun) -> str:
    """Compute with onnxruntime and the tokenizer's own library alone."""
    is_pieces = "format" in run.tokenizer.spec
    reading = _SENTENCEPIECE if is_pieces else _TOKENIZERS
    head = "import base64\nimport json\n" if is_pieces else "import json\n"
    head += "\nimport numpy as np\nimport onnxruntime\n"
    head += "import sentencepiece\n" if is_pieces else "import tokenizers\n"
    opening = _OPEN.format(source="source" if run.config.objective == "translation" else "text")
    if run.config.objective == "translation":
        decode = _DECODE_SENTENCEPIECE if is_pieces else _DECODE_TOKENIZERS
        return head + opening + reading + _FRAMED + _PADDED + _TRANSLATE.format(decode=decode)
    framed = _FRAMED_PAIRS if run.config.pairs else _FRAMED
    texts = '("one text", "another")' if run.config.pairs else '"a text"'
    answer = _ANSWERS.get(run.config.objective, _LOGITS)
    graph = 'graph = onnxruntime.InferenceSession("model.onnx")\n'
    decode = (
        "model.decode_pieces([pieces[token] for token in ids[1:]])" if is_pieces else "tokenizer.decode(ids)"
    )
    return head + opening + graph + reading + framed + _PADDED + answer.format(texts=texts, decode=decode)


# ---- with transformers --------------------------------------------------------------------------------------

_LOAD = """import torch
from transformers import {name}, AutoTokenizer{more}

tokenizer = AutoTokenizer.from_pretrained(".")
model = {name}.from_pretrained(".").eval()
{target}"""

_TARGET_TOKENIZER = 'target_tokenizer = PreTrainedTokenizerFast(tokenizer_file="tokenizer.target.json")\n'

_SENTENCES = """

@torch.no_grad()
def predict(texts):
    inputs = tokenizer({given}, padding=True, truncation=True, return_tensors="pt")
    logits = model(**inputs).logits
"""

_LABELLED = """    return [dict(zip(model.config.id2label.values(), row)) for row in {likely}.tolist()]


print(predict([{{texts}}]))
"""

_FILL = """

@torch.no_grad()
def fill(text):
    inputs = tokenizer(text, truncation=True, return_tensors="pt")
    hidden = inputs["input_ids"][0] == tokenizer.mask_token_id
    return [tokenizer.decode(token) for token in model(**inputs).{logits}[0, hidden].argmax(-1)]


print(fill(f"a {{{{tokenizer.mask_token}}}} text"))
"""

_COMPUTE = {
    "classification": _SENTENCES + _LABELLED.format(likely="logits.softmax(-1)"),
    "multilabel": _SENTENCES + _LABELLED.format(likely="logits.sigmoid()"),
    "regression": _SENTENCES
    + """    return logits[:, 0].tolist()


print(predict([{texts}]))
""",
    "masked": _FILL.format(logits="logits"),
    "masked-nsp": _FILL.format(logits="prediction_logits"),
    "base": """

@torch.no_grad()
def vectors(texts):
    inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    return model(**inputs).last_hidden_state, inputs["attention_mask"]


print(vectors([{texts}])[0].shape)
""",
    "causal": """

@torch.no_grad()
def generate(prompt, tokens=20):
    inputs = tokenizer(prompt, return_tensors="pt")
    found = model.generate(**inputs, do_sample=False, max_new_tokens=tokens)  # the likeliest; or draw them
    return tokenizer.decode(found[0], skip_special_tokens=True)


print(generate({texts}))
""",
    "translation": """

@torch.no_grad()
def translate(text):
    found = model.generate(**tokenizer(text, truncation=True, return_tensors="pt"))
    return target_tokenizer.decode(found[0], skip_special_tokens=True)


print(translate({texts}))
""",
}

# ---- with onnxruntime ---------------------------------------------------------------------------------------

_OPEN = """
with open("frame.json", encoding="utf-8") as file:
    frame = json.load(file)
reading = frame["{source}"]
"""

_TOKENIZERS = """

def opened(name):
    found = tokenizers.Tokenizer.from_file(name)
    found.encode_special_tokens = True  # a text that spells a special token is text
    found.no_truncation()
    found.no_padding()
    return found


tokenizer = opened(reading["tokenizer"])


def encode(text):
    return tokenizer.encode(text, add_special_tokens=False).ids
"""

_SENTENCEPIECE = """

def opened(name):
    with open(name, encoding="utf-8") as file:
        spec = json.load(file)
    model = sentencepiece.SentencePieceProcessor(model_proto=base64.b64decode(spec["model"]))
    return model, spec["pieces"]


model, pieces = opened(reading["tokenizer"])
identities = {piece: identity for identity, piece in enumerate(pieces)}


def encode(text):
    return [identities.get(piece, reading["unknown"]) for piece in model.encode(text, out_type=str)]
"""

_FRAMED = """

def framed(text):
    first, last = ([] if reading[end] is None else [reading[end]] for end in ("first", "last"))
    room = reading["length"] - len(first) - len(last)
    ids = [*first, *encode(text)[:room], *last]
    return ids, [0] * len(ids)
"""

_FRAMED_PAIRS = """

def framed(pair):
    (a, b), parting = map(encode, pair), [reading["last"]] * reading["between"]
    while len(a) + len(b) > reading["length"] - 2 - len(parting):  # the longer one is cut first
        (a if len(a) > len(b) else b).pop()
    before = [reading["first"], *a, *parting]
    return [*before, *b, reading["last"]], [0] * len(before) + [1] * (len(b) + 1)
"""

_PADDED = """

def batch(texts):
    rows = [framed(text) for text in texts]
    shape = len(rows), max(len(ids) for ids, _ in rows)
    tokens, present, segments = np.full(shape, reading["pad"]), np.zeros(shape, int), np.zeros(shape, int)
    for number, (ids, parts) in enumerate(rows):
        tokens[number, : len(ids)], present[number, : len(ids)], segments[number, : len(ids)] = ids, 1, parts
    found = {"input_ids": tokens, "attention_mask": present, "token_type_ids": segments}
    return {name: found[name].astype(np.int64) for name in frame["graphs"][0]["inputs"]}
"""

_LOGITS = """

logits = graph.run(["logits"], batch([{texts}]))[0]
"""

_ANSWERS = {
    "base": """

vectors = graph.run(["last_hidden_state"], batch([{texts}]))[0]
""",
    "classification": """

def predict(texts):
    (logits,) = graph.run(["logits"], batch(texts))
    likely = np.exp(logits - logits.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    return [dict(zip(frame["labels"], map(float, row))) for row in likely]


print(predict([{texts}]))
""",
    "multilabel": """

def predict(texts):
    (logits,) = graph.run(["logits"], batch(texts))
    return [dict(zip(frame["labels"], map(float, row))) for row in 1 / (1 + np.exp(-logits))]


print(predict([{texts}]))
""",
    "regression": """

def predict(texts):
    (values,) = graph.run(["logits"], batch(texts))
    return [float(value) for value in values[:, 0]]


print(predict([{texts}]))
""",
    "causal": """

def generate(prompt, tokens=20):
    ids = ([] if reading["first"] is None else [reading["first"]]) + encode(prompt)
    for _ in range(tokens):
        feed = {{"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}}
        if "token_type_ids" in frame["graphs"][0]["inputs"]:
            feed["token_type_ids"] = np.zeros((1, len(ids)), np.int64)
        (logits,) = graph.run(["logits"], feed)
        ids.append(int(logits[0, -1].argmax()))  # the likeliest; or draw one
        if ids[-1] == reading["last"]:
            break
    return {decode}


print(generate({texts}))
""",
}

_TRANSLATE = """

encoder, decoder = (onnxruntime.InferenceSession(name) for name in ("encoder.onnx", "decoder.onnx"))
writing = frame["target"]


def translate(text):
    source = batch([text])
    (memory,) = encoder.run(None, source)
    ids = [writing["first"]]
    while len(ids) < writing["length"]:
        feed = {{
            "input_ids": np.array([ids]),
            "encoder_hidden_states": memory,
            "encoder_attention_mask": source["attention_mask"],
        }}
        (logits,) = decoder.run(None, feed)
        ids.append(int(logits[0, -1].argmax()))  # the likeliest: greedy search
        if ids[-1] == writing["last"]:
            break
    return [identity for identity in ids[1:] if identity != writing["last"]]


{decode}
print(decoded(translate("a text")))
"""

_DECODE_TOKENIZERS = """def decoded(ids):
    return opened(writing["tokenizer"]).decode(ids)

"""

_DECODE_SENTENCEPIECE = """def decoded(ids):
    model, pieces = opened(writing["tokenizer"])
    return model.decode_pieces([pieces[identity] for identity in ids])

"""
