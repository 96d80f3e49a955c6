"""The JSON interface: each route gives what the package gives, and refuses what it cannot serve with a fix."""

import concurrent.futures
import json
import shutil

import pytest
import serving
import small
import synthetic_study
import tiny_runs
import translators
from expected_errors import refused

from headstart.config.generation import GenerationConfig
from headstart.errors import IntegrityError
from headstart.inference.attention_maps import attention_of
from headstart.inference.attribution import attribution_of
from headstart.inference.generate import generate
from headstart.inference.perplexity import score_tokens
from headstart.inference.predict import predict
from headstart.inference.translate import translate
from headstart.report.page import report_page
from headstart.runs.load import SERVES
from headstart.serve import messages, service
from headstart.serve.messages import ATTENTION_TOKENS, MOST_CHARACTERS, MOST_TOKENS
from headstart.serve.models import CAN, Models
from headstart.study.record import StudyRecord, Timing

TEXT = "une histoire vraiment belle."
KINDS = ("classification", "multilabel", "regression", "pairs", "causal", "learned", "masked")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    directory = tmp_path_factory.mktemp("studies") / "books"
    directory.mkdir()
    synthetic_study.write(directory, synthetic_study.study(budgets=(50,), seeds=2))
    return directory


@pytest.fixture(scope="module")
def served(study):
    paths = [*map(tiny_runs.path_of, KINDS), translators.path_of(), study]
    with serving.serving(*paths) as found:
        yield found


def test_health_answers(served):
    assert served.get("/health")[::2] == (200, b'{"status":"ok"}')


def test_runs_are_listed_with_what_they_can_do(served):
    found = json.loads(served.get("/api/runs").body)
    runs = {run["name"]: run for run in found["runs"]}
    assert set(runs) == {*KINDS, "translator-joint"}
    assert found["studies"] == [{"name": "books"}]
    assert found["limits"] == {
        "text_characters": MOST_CHARACTERS, "max_tokens": MOST_TOKENS, "attention_tokens": ATTENTION_TOKENS,
    }  # fmt: skip
    assert runs["classification"]["labels"] == ["non", "oui"]
    assert runs["pairs"]["pairs"]
    assert runs["causal"]["can"] == ["generate", "score", "attention"]
    assert (runs["causal"]["start"], runs["causal"]["start_run"]) == ("scratch", None)
    model = tiny_runs.run_of("causal").model
    assert runs["causal"]["parameters"] == sum(p.numel() for p in model.parameters())


def test_every_objective_can_do_something():
    assert set(CAN) == set(SERVES)
    assert all("attention" in can for can in CAN.values())


def test_a_run_is_loaded_when_it_is_first_used():
    with serving.serving(tiny_runs.path_of("classification"), tiny_runs.path_of("causal")) as served:
        assert not any(run["loaded"] for run in json.loads(served.get("/api/runs").body)["runs"])
        assert served.post("/api/classify", text=TEXT)[0] == 200
        loaded = {run["name"]: run["loaded"] for run in json.loads(served.get("/api/runs").body)["runs"]}
        assert loaded == {"classification": True, "causal": False}


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression", "pairs"])
def test_classify_answers_as_predict_does(served, kind):
    pair = {"text_b": "un livre."} if kind == "pairs" else {}
    status, answer = served.post("/api/classify", run=kind, text=TEXT, **pair)
    assert status == 200
    text = (TEXT, "un livre.") if pair else TEXT
    (expected,) = predict(tiny_runs.run_of(kind), [text], tiny_runs.MACHINE)
    assert answer == {"run": kind, **expected.answer, "is_cut": False, "attribution": None}


def test_a_text_that_is_cut_says_so(served):
    assert served.post("/api/classify", run="classification", text=TEXT * 9)[1]["is_cut"]


@pytest.mark.parametrize("method", ["gradient", "leave-one-out"])
def test_attribution_is_told_with_its_method(served, method):
    answer = served.post("/api/classify", run="classification", text=TEXT, attribution=method)[1]
    expected = attribution_of(tiny_runs.run_of("classification"), TEXT, tiny_runs.MACHINE, method=method)
    assert answer["attribution"] == expected.as_json()
    assert answer["attribution"]["of"] == answer["label"]


@pytest.mark.parametrize("kind", ["causal", "learned"])
def test_generate_writes_what_the_command_writes(served, kind):
    asked = {"run": kind, "prompt": "le livre", "max_tokens": 12, "temperature": 1.1, "top_k": 40, "seed": 3}
    status, whole = served.post("/api/generate", **asked, stream=False)
    assert status == 200
    config = GenerationConfig(temperature=1.1, top_k=40, top_p=0.95, seed=3, max_tokens=12)
    (expected,) = generate(tiny_runs.run_of(kind), "le livre", tiny_runs.MACHINE, config)
    assert (whole["text"], whole["token_count"], whole["stop"]) == (
        expected.text, expected.token_count, expected.stop,
    )  # fmt: skip
    assert len(whole["tokens"]) == whole["token_count"]
    answer = served.ask("POST", "/api/generate", json.dumps(asked))
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    *tokens, last = map(json.loads, answer.body.splitlines())
    assert tokens == whole["tokens"]
    assert last == {key: whole[key] for key in ("stop", "token_count", "notes")}


def test_the_probability_of_a_greedy_token_is_the_best_of_the_alternatives(served):
    whole = served.post("/api/generate", run="causal", prompt="la fin", temperature=0, stream=False)[1]
    for token in whole["tokens"]:
        assert token["probability"] == token["alternatives"][0]["probability"]
        assert len(token["alternatives"]) == 5


def test_notes_of_the_writing_are_told(served):
    whole = served.post("/api/generate", run="causal", prompt=TEXT, max_tokens=40, stream=False)[1]
    assert any("trained on 16 tokens" in note for note in whole["notes"])


def test_score_tells_how_much_each_token_was_expected(served):
    status, answer = served.post("/api/score", run="causal", text=TEXT)
    assert status == 200
    assert answer == {
        "run": "causal",
        **score_tokens(tiny_runs.run_of("causal"), TEXT, tiny_runs.MACHINE).as_json(),
    }


def test_translate_answers_with_the_attention_over_the_source(served):
    status, answer = served.post("/api/translate", text=TEXT, beam=3)
    assert status == 200
    (expected,) = translate(translators.run_of(), [TEXT], tiny_runs.MACHINE)
    assert served.post("/api/translate", text=TEXT)[1]["text"] == expected.candidates[0].text
    assert len(answer["weights"]) == len(answer["target"]) == len(answer["alignment"])
    assert all(len(row) == len(answer["source"]) for row in answer["weights"])
    assert not any(answer["source"][pair["source"]]["is_special"] for pair in answer["alignment"])
    blank = served.post("/api/translate", text=" ")[1]
    assert (blank["text"], blank["target"], blank["weights"]) == ("", [], [])


@pytest.mark.parametrize("kind", ["classification", "causal", "masked", "translator-joint"])
def test_attention_is_that_of_the_run(served, kind):
    status, answer = served.post("/api/attention", run=kind, text=TEXT)
    assert status == 200
    run = translators.run_of() if kind.startswith("translator") else tiny_runs.run_of(kind)
    expected = attention_of(run, TEXT, tiny_runs.MACHINE, most_tokens=ATTENTION_TOKENS)
    assert answer == {"run": kind, **expected.as_json()}


def test_a_report_is_served_as_it_is_written_or_made_anew(served, study):
    path = "/api/studies/books/report"
    answer = served.get(path)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.body.decode() == report_page(StudyRecord.load(study), Timing.load(study))
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert not (study / "report.html").exists()
    (study / "report.html").write_text("as it was")
    assert served.get(path).body == b"as it was"
    assert served.get("/api/studies/nothing/report").status == 404


# ---- names --------------------------------------------------------------------------------------------------


def test_a_start_that_is_served_too_is_told_by_its_name(tmp_path):
    base, tuned = tmp_path / "base", tiny_runs.path_of("classification")
    shutil.copytree(tiny_runs.path_of("causal"), base)

    def start(*paths):
        about = Models.at(paths, tiny_runs.MACHINE).runs["classification"].about()
        return about["start"], about["start_run"]

    digest = tiny_runs.run_of("causal").digest[:12]
    assert start(tuned, base) == (digest, "base")
    assert start(tuned) == (digest, None)
    (base / "result.json").write_text("no JSON")
    with refused("corrupt", "result.json", by=IntegrityError):
        start(tuned, base)


def test_runs_of_one_name_are_told_apart(tmp_path):
    paths = [tmp_path / part / "tuned" for part in ("a", "b", "c")]
    for path in paths:
        shutil.copytree(tiny_runs.path_of("classification"), path)
    models = Models.at(paths, tiny_runs.MACHINE)
    assert list(models.runs) == ["tuned", "tuned-2", "tuned-3"]


def test_what_is_neither_a_run_nor_a_study_is_refused(tmp_path):
    with refused("not-a-run", "config.toml"):
        Models.at([tmp_path], tiny_runs.MACHINE)
    (tmp_path / "study.toml").touch()
    with refused("missing", tmp_path.name, "study.json"):
        Models.at([tmp_path], tiny_runs.MACHINE)
    with refused("missing"):
        Models.at([], tiny_runs.MACHINE)


@pytest.mark.parametrize(
    ("path", "asked", "status", "what"),
    [
        ("classify", {"text": "x"}, 400, "4 runs can classify"),
        ("classify", {"run": "nothing", "text": "x"}, 404, "no run of this name"),
        ("classify", {"run": "causal", "text": "x"}, 400, "it cannot classify"),
        ("classify", {"run": "pairs", "text": "x"}, 400, "pairs of texts"),
        ("classify", {"run": "classification", "text": "x", "text_b": "y"}, 400, "single texts"),
        (
            "attention",
            {"run": "causal", "text": "x", "target": "y"},
            400,
            "causal: is a causal run: it has no",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_fix(served, path, asked, status, what):
    found, answer = served.post(f"/api/{path}", **asked)
    assert found == status
    assert what in answer["error"]["what"]
    assert answer["error"]["fix"]


@pytest.mark.parametrize(
    ("path", "asked", "what", "fix"),
    [
        (
            "classify",
            {"text": "x" * (MOST_CHARACTERS + 1)},
            "text is longer than 20,000 characters",
            "give a shorter one",
        ),
        ("classify", {}, "text is missing", "give it"),
        ("classify", {"text": 5}, "text is not a string", "give a string"),
        (
            "classify",
            {"text": "x", "colour{0}": 1},
            "colour{0} is an unknown field",
            "GET /openapi.json describes",
        ),
        (
            "classify",
            {"text": "x", "attribution": "y"},
            "attribution is not one",
            "'leave-one-out' or 'gradient'",
        ),
        ("classify", {"text": "\ud800"}, "text is not valid Unicode", "surrogates"),
        ("classify", [], "the body is not an object", "send one JSON object"),
        ("generate", {"max_tokens": 10**9}, "max_tokens is too large", "give 512 at most"),
        ("generate", {"max_tokens": 0}, "max_tokens is too small", "give 1 or more"),
        ("generate", {"max_tokens": "5"}, "max_tokens is not an integer", "give an integer"),
        ("generate", {"seed": 2**63}, "seed is too large", "give less than 9,223,372,036,854,775,808"),
        ("generate", {"stream": 1}, "stream is not a boolean", "give true or false"),
        ("generate", {"temperature": -1.5}, "temperature is too small", "give 0 or more"),
        ("generate", {"temperature": "hot"}, "temperature is not a number", "give a number"),
        (
            "generate",
            {"temperature": float("nan")},
            "temperature is not a finite number",
            "give a finite number",
        ),
        ("generate", {"top_p": 0.0}, "top_p is too small", "give 1e-06 or more"),
    ],
)
def test_a_field_that_is_wrong_is_told_in_plain_words(served, path, asked, what, fix):
    answer = served.ask("POST", f"/api/{path}", json.dumps(asked))
    error = json.loads(answer.body)["error"]
    assert answer.status == 422
    assert error["what"].startswith(what)
    assert fix in error["fix"]


@pytest.mark.parametrize(("body", "what"), [(b"{'run'}", "the body is not JSON"), (b"", "the body is missing")])
def test_a_body_that_is_no_json_is_told_in_plain_words(served, body, what):
    answer = served.ask("POST", "/api/classify", body)
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["what"].startswith(what)) == (422, True)
    assert error["fix"] == "send one JSON object"


def test_a_run_is_what_its_directory_holds_when_it_is_first_used(tmp_path):
    for name in ("gone", "other", "longer"):
        shutil.copytree(tiny_runs.path_of("classification"), tmp_path / name)
    with serving.serving(*(tmp_path / name for name in ("gone", "other", "longer"))) as served:
        assert served.post("/api/classify", run="longer", text=TEXT)[0] == 200
        for name in ("gone", "other", "longer"):
            shutil.rmtree(tmp_path / name)
        assert served.post("/api/classify", run="longer", text=TEXT)[0] == 200, "it is in memory"
        status, answer = served.post("/api/classify", run="gone", text=TEXT)
        assert (status, answer["error"]["what"]) == (400, "gone: is not a run: it has no config.toml")
        shutil.copytree(tiny_runs.path_of("causal"), tmp_path / "other")
        status, answer = served.post("/api/classify", run="other", text=TEXT)
        assert (status, answer["error"]["what"]) == (400, "other is a causal run: it cannot classify")
        assert served.post("/api/score", run="other", text=TEXT)[0] == 200
        runs = {run["name"]: run for run in json.loads(served.get("/api/runs").body)["runs"]}
        assert runs["other"]["can"] == ["generate", "score", "attention"]


def test_a_broken_run_is_told_without_its_path(tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(tiny_runs.path_of("causal"), broken)
    (broken / "weights.safetensors").unlink()
    with serving.serving(broken) as served:
        status, answer = served.post("/api/generate")
        assert status == 400
        assert "cannot be read" in answer["error"]["what"]
        assert str(tmp_path) not in json.dumps(answer)
        assert served.post("/api/generate")[0] == 400, "and again"


def test_an_error_that_nobody_thought_of_is_told_without_a_traceback(served, monkeypatch, capfd):
    def broken(*arguments, **settings):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(service, "score_tokens", broken)
    answer = served.ask("POST", "/api/score", json.dumps({"run": "causal", "text": "x"}))
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body
    assert json.loads(answer.body)["error"]["fix"]


# ---- the page and the description ---------------------------------------------------------------------------


def test_only_the_pages_own_files_are_served(served):
    page = served.get("/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    assert served.get("/icon.svg").headers["Content-Type"] == "image/svg+xml"
    script = served.get("/page/api.js")
    assert script.headers["Content-Type"].startswith("text/javascript")
    for name in ("..%2fdesk.py", "%2e%2e/desk.py", "../desk.py", "index.html", "", "nothing.js", "api.js%00"):
        assert served.get(f"/page/{name}").status == 404, name
    assert served.get("/docs").status == served.get("/redoc").status == 404, "they would need a CDN"


def test_every_route_is_described_with_an_example(served):
    described = json.loads(served.get("/openapi.json").body)
    paths = {path for path in described["paths"] if path.startswith("/api/")}
    assert paths == {
        "/api/runs", "/api/classify", "/api/generate", "/api/score", "/api/translate", "/api/attention",
        "/api/studies/{name}/report", "/api/classify/batch", "/api/translate/batch",
    }  # fmt: skip
    for path in paths:
        if "post" in described["paths"][path]:
            name = path.removeprefix("/api/").title().replace("/", "") + "Request"
            assert described["components"]["schemas"][name]["examples"], name


@pytest.mark.parametrize(
    ("path", "asked", "described"),
    [
        (
            "classify",
            {"run": "classification", "text": TEXT, "attribution": "gradient"},
            messages.ClassifyAnswer,
        ),
        ("classify", {"run": "regression", "text": TEXT}, messages.ClassifyAnswer),
        ("classify", {"run": "multilabel", "text": TEXT}, messages.ClassifyAnswer),
        ("generate", {"run": "causal", "max_tokens": 3, "stream": False}, messages.GenerateAnswer),
        ("score", {"run": "causal", "text": TEXT}, messages.ScoreAnswer),
        ("translate", {"text": TEXT}, messages.TranslateAnswer),
        ("attention", {"run": "translator-joint", "text": TEXT}, messages.AttentionAnswer),
        ("attention", {"run": "nothing", "text": TEXT}, messages.ErrorAnswer),
    ],
)
def test_answers_are_as_described(served, path, asked, described):
    answer = served.post(f"/api/{path}", **asked)[1]
    assert described.model_validate(answer, strict=True).model_dump(exclude_unset=True) == answer


def test_the_list_of_runs_is_as_described(served):
    answer = json.loads(served.get("/api/runs").body)
    assert messages.RunsAnswer.model_validate(answer, strict=True).model_dump(exclude_unset=True) == answer


def test_requests_that_arrive_together_get_their_own_answers(served):
    texts = small.sentences(40, seed=12)
    expected = {
        text: found.answer["probabilities"]["oui"]
        for text, found in zip(
            texts, predict(tiny_runs.run_of("classification"), texts, tiny_runs.MACHINE), strict=True
        )
    }

    def ask(text):
        return served.post("/api/classify", run="classification", text=text)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for text, (status, answer) in zip(texts, pool.map(ask, texts), strict=True):
            assert status == 200
            assert answer["probabilities"]["oui"] == pytest.approx(expected[text], abs=1e-6)


# ---- several texts in one request ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_several_texts_are_answered_in_their_order_as_each_alone(served, kind):
    texts = [TEXT, "livre", TEXT * 9, "", "la fin"]
    status, found = served.post("/api/classify/batch", run=kind, texts=texts)
    assert (status, found["run"]) == (200, kind)
    alone = [served.post("/api/classify", run=kind, text=text)[1] for text in texts]
    for answer, one in zip(found["answers"], alone, strict=True):
        assert answer["is_cut"] == one["is_cut"]
        if kind == "regression":
            assert answer["value"] == pytest.approx(one["value"], abs=1e-5)
        else:
            assert answer["probabilities"] == pytest.approx(one["probabilities"], abs=1e-5)
    messages.ClassifyBatchAnswer.model_validate(found)


def test_several_pairs_are_of_as_many_texts(served):
    status, found = served.post("/api/classify/batch", run="pairs", texts=["a", "b"], texts_b=["c", "d"])
    assert (status, len(found["answers"])) == (200, 2)
    for wrong in ({"texts_b": ["c"]}, {}):
        status, found = served.post("/api/classify/batch", run="pairs", texts=["a", "b"], **wrong)
        assert status == 400
        assert "texts_b" in str(found["error"])


def test_several_texts_are_translated(served):
    texts = ["a good book", "", "the end"]
    status, found = served.post("/api/translate/batch", texts=texts, beam=2)
    assert status == 200
    alone = [served.post("/api/translate", text=text, beam=2)[1] for text in texts]
    assert [one["text"] for one in found["answers"]] == [one["text"] for one in alone]
    messages.TranslateBatchAnswer.model_validate(found)


def test_too_many_texts_are_refused(served):
    status, found = served.post("/api/classify/batch", run="classification", texts=["x"] * 65)
    assert status == 422
    assert "texts" in found["error"]["what"]
