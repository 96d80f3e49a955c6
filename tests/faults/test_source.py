"""What the source may not hold: ways to run what is in a file, and places of one machine."""

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = sorted((ROOT / "headstart").rglob("*.py"))

# Each way to run code that came in a file, or by name.
DANGERS = re.compile(
    r"pickle|torch\.load\b|joblib\.load|\bdill\b|marshal\.|shelve\.|allow_pickle|yaml\.(?:unsafe_|full_)?load\("
    r"|\beval\(|\bexec\(|\bcompile\(|__import__|trust_remote_code|os\.system|os\.popen|shell=True"
    r"|load_module|weights_only"
)
# What is harmless, and why. Each must be in use: an allowance that nobody needs is taken away again.
ALLOWED = {
    r"\.eval\(\)": "a module of torch goes into evaluation mode",
    r"ast\.literal_eval\(": "reads constants of our own source",
    r"\bre\.compile\(": "a regular expression",
    r"torch\.compile\(|part\.compile\(": "kernels made of our own code",
    r'"\.pickle"|_PICKLES|pickled weights|weights and pickles|a pickle, which can run': "what is refused, by name",
}


def code_lines(path):
    """Each line without its comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return lines


def dangers_in(line):
    for allowed in ALLOWED:
        line = re.sub(allowed, "", line)
    return DANGERS.findall(line)


def test_nothing_in_the_source_can_run_what_is_in_a_file():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(code_lines(path), 1)
        if dangers_in(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "torch.load(path)", "torch.load(path, weights_only=True)", "joblib.load(path)",
        "np.load(path, allow_pickle=True)", "yaml.load(text)", "yaml.unsafe_load(text)", "eval(text)",
        "builtins.exec(text)", "AutoModel.from_pretrained(name, trust_remote_code=True)", "os.system(command)",
        "import pickle  # for model.eval()", "model.eval(); eval(text)", "code = compile(text, name, mode)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(line):
    assert dangers_in(line)


@pytest.mark.parametrize("allowed", ALLOWED)
def test_every_allowance_is_needed(allowed):
    assert any(re.search(allowed, line) for path in SOURCES for line in code_lines(path))


def test_what_loads_tensors_is_safetensors_alone():
    loaders = re.compile(r"\b(?:load_file|safe_open)\b")
    importing = re.compile(r"from (\S+) import .*\b(?:load_file|safe_open)\b")
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if loaders.search(text):
            assert set(importing.findall(text)) <= {
                "safetensors.torch",
                "safetensors",
                "safetensors.numpy",
            }, path


# ---- places -----------------------------------------------------------------------------------------------

MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|home|root|Users)/|\bC:\\\\Users\\\\")


def shipped_files():
    roots = [ROOT / name for name in ("headstart", "docs", "benchmarks", ".ci", "README.md", "pyproject.toml")]
    for root in roots:
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.is_file() and path.suffix not in {".pyc", ".png", ".gz"}:
                yield path


def test_no_path_of_one_machine_is_shipped():
    found = []
    for path in shipped_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []
    assert MACHINE_PATH.search("cd /work/main")
    assert MACHINE_PATH.search('open("/home/me/x")')
    assert not MACHINE_PATH.search("docs/work/main")
