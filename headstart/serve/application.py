"""The web application: its routes, and what it says when something is wrong."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from headstart import __version__
from headstart.errors import HeadstartError
from headstart.serve import messages
from headstart.serve.desk import Desk
from headstart.serve.gate import Access, Gate, Limits
from headstart.serve.models import Models
from headstart.serve.refusals import Refused, as_json, not_valid, refusal_of
from headstart.serve.streaming import Lines

PAGE = Path(__file__).parent / "page"
_PAGE_FILE = re.compile(r"[a-z0-9_-]+\.(js|css|svg)")
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
# A report is a page for itself: it needs its own style and nothing else.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox"
)


def create_application(
    models: Models,
    access: Access | None = None,
    limits: Limits | None = None,
    *,
    is_batching: bool = True,
) -> Gate:
    """The application for these runs, behind its gate."""
    limits = limits or Limits()
    desk = Desk(models, limits, is_batching=is_batching)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await desk.close()

    application = FastAPI(
        title="Headstart", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan,
        description="What a run says, writes and looks at.",
    )  # fmt: skip
    application.state.desk = desk
    application.include_router(router)
    application.add_exception_handler(RequestValidationError, _not_valid)
    application.add_exception_handler(HTTPException, _not_served)
    for kind in (Refused, HeadstartError, MemoryError, torch.OutOfMemoryError, Exception):
        application.add_exception_handler(kind, _failed)
    return Gate(application, access or Access(), limits)


# ---- routes -------------------------------------------------------------------------------------------------

router = APIRouter(
    responses={
        status: {"model": messages.ErrorAnswer, "description": text}
        for status, text in {
            400: "Cannot be served, and why", 401: "The token is missing", 403: "Foreign Host or Origin",
            404: "No such run", 408: "Too slow", 413: "Too large", 415: "Not JSON", 422: "Not valid", 503: "Busy",
        }.items()
    }
)  # fmt: skip


async def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


AtDesk = Annotated[Desk, Depends(_desk)]


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


@router.get("/health", summary="Whether the server answers")
async def health() -> messages.Health:
    return messages.Health()


@router.get(
    "/api/runs", summary="What is served, and what each run can do", response_model=messages.RunsAnswer
)
async def runs(desk: AtDesk) -> Response:
    return _json(
        as_json({
            "version": __version__,
            "runs": [run.about() for run in desk.models.runs.values()],
            "studies": [{"name": name} for name in desk.models.studies],
            "limits": messages.LimitsAbout().model_dump(),
        })
    )  # fmt: skip


@router.post(
    "/api/classify", summary="What a fine-tuned run says about a text", response_model=messages.ClassifyAnswer
)
async def classify(asked: messages.ClassifyRequest, desk: AtDesk) -> Response:
    return _json(await desk.classify(asked))


@router.post(
    "/api/generate",
    summary="A causal run goes on with a text",
    response_model=messages.GenerateAnswer,
    responses={
        200: {
            "description": "With `stream`, a line for each token and a last one; otherwise one object.",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        }
    },
)
async def generate(asked: messages.GenerateRequest, desk: AtDesk) -> Response:
    writing = await desk.write(asked)
    if asked.stream:
        return Lines(writing.encoded(), writing.stream.close)
    try:
        return _json(await writing.whole())
    finally:
        writing.stream.close()


@router.post(
    "/api/score",
    summary="How much a causal run expected each token of a text",
    response_model=messages.ScoreAnswer,
)
async def score(asked: messages.ScoreRequest, desk: AtDesk) -> Response:
    return _json(await desk.score(asked))


@router.post(
    "/api/translate", summary="A text in the other language", response_model=messages.TranslateAnswer
)
async def translate(asked: messages.TranslateRequest, desk: AtDesk) -> Response:
    return _json(await desk.translate(asked))


@router.post("/api/attention", summary="Where a run looks in a text", response_model=messages.AttentionAnswer)
async def attention(asked: messages.AttentionRequest, desk: AtDesk) -> Response:
    return _json(await desk.attention(asked))


@router.get("/api/studies/{name}/report", summary="A study's report", response_class=Response)
async def report(name: str, desk: AtDesk) -> Response:
    return Response(
        await desk.report(name), media_type="text/html", headers={"Content-Security-Policy": _REPORT_POLICY}
    )


# ---- the page -----------------------------------------------------------------------------------------------


@router.get("/", include_in_schema=False)
async def page() -> Response:
    return _file(PAGE / "index.html")


@router.get("/icon.svg", include_in_schema=False)
async def icon() -> Response:
    return _file(PAGE / "icon.svg")


@router.get("/page/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    if not _PAGE_FILE.fullmatch(name):
        raise HTTPException(404)
    return _file(PAGE / name)


def _file(path: Path) -> Response:
    if not path.is_file():
        raise HTTPException(404)
    return Response(path.read_bytes(), media_type=_KINDS[path.suffix], headers={"Cache-Control": "no-cache"})


# ---- what is wrong ------------------------------------------------------------------------------------------


def _answer(refused: Refused) -> Response:
    return Response(refused.body, refused.status, refused.headers, "application/json")


async def _not_valid(request: Request, error: Any) -> Response:
    """The first thing that is wrong, and where."""
    return _answer(not_valid(error.errors()[0]))


async def _not_served(request: Request, error: Any) -> Response:
    whats = {404: "there is nothing here", 405: "this address is not asked in this way"}
    what = whats.get(error.status_code, str(error.detail))
    fix = "send one JSON object" if error.status_code == 400 else "GET /openapi.json lists what may be asked"
    return _answer(Refused(error.status_code, what, fix, dict(error.headers or {})))


async def _failed(request: Request, error: Exception) -> Response:
    return _answer(
        refusal_of(error) or Refused(500, "something went wrong here", "look at the server's output")
    )
