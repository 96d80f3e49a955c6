"""The web application: its routes, its page, and its error answers."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from headstart import __version__
from headstart.errors import HeadstartError
from headstart.serve import messages
from headstart.serve.errors import RequestError, error_for, invalid_field
from headstart.serve.models import Models
from headstart.serve.security import Access, Limits, SecurityMiddleware
from headstart.serve.service import Service

PAGE = Path(__file__).parent / "page"
_PAGE_FILE = re.compile(r"[a-z0-9_-]+\.(js|css|svg)")
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}


def create_application(
    models: Models, access: Access | None = None, limits: Limits | None = None, *, batching: bool = True
) -> SecurityMiddleware:
    """The application for these runs, inside its security middleware."""
    limits = limits or Limits()
    service = Service(models, limits, batching=batching)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    application = FastAPI(
        title="Headstart", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan,
        description="Predictions, generation, translation and attention of trained runs.", responses=_ERRORS,
    )  # fmt: skip
    application.state.service = service
    application.include_router(router)
    about = "The runs and studies, and what each can do"
    application.get("/api/runs", summary=about, response_model=messages.RunsAnswer)(service.runs)
    for name, (summary, answer, more) in _REQUESTS.items():
        route = application.post(f"/api/{name}", summary=summary, response_model=answer, responses=more)
        route(getattr(service, name.replace("/", "_")))
    application.get("/api/studies/{name}/report", summary="A study's report", response_class=Response)(service.report)
    application.add_exception_handler(RequestValidationError, _invalid)
    application.add_exception_handler(HTTPException, _http_error)
    for kind in (RequestError, HeadstartError, MemoryError, torch.OutOfMemoryError, Exception):
        application.add_exception_handler(kind, _failed)
    return SecurityMiddleware(application, access or Access(), limits)


# ---- routes -------------------------------------------------------------------------------------------------

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": messages.ErrorAnswer, "description": text}
    for status, text in {
        400: "The run cannot do this", 401: "The token is missing or wrong", 403: "Foreign Host or Origin",
        404: "No such run", 408: "Too slow", 413: "Too large", 415: "Not JSON", 422: "Not valid", 503: "Busy",
    }.items()
}  # fmt: skip
_LINES = {
    "description": "With `stream`, a line for each token and a last one; otherwise one object.",
    "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
}

# The methods of the service that answer a POST.
_REQUESTS: dict[str, tuple[str, type, dict[int | str, dict[str, Any]]]] = {
    "classify": ("Classify a text with a fine-tuned run", messages.ClassifyAnswer, {}),
    "classify/batch": ("Classify several texts", messages.ClassifyBatchAnswer, {}),
    "generate": ("Continue a text with a causal run", messages.GenerateAnswer, {200: _LINES}),
    "score": ("The probability of each token of a text under a causal run", messages.ScoreAnswer, {}),
    "translate": ("Translate a text", messages.TranslateAnswer, {}),
    "translate/batch": ("Translate several texts", messages.TranslateBatchAnswer, {}),
    "attention": ("The attention weights of a run over a text", messages.AttentionAnswer, {}),
}
router = APIRouter()


@router.get("/health", summary="Whether the server answers")
async def health() -> messages.Health:
    return messages.Health()


@router.get("/", include_in_schema=False)
@router.get("/icon.svg", include_in_schema=False)
async def page(request: Request) -> Response:
    return _file(PAGE / (request.url.path.strip("/") or "index.html"))


@router.get("/page/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    if not _PAGE_FILE.fullmatch(name):
        raise HTTPException(404)
    return _file(PAGE / name)


def _file(path: Path) -> Response:
    if not path.is_file():
        raise HTTPException(404)
    return Response(path.read_bytes(), media_type=_KINDS[path.suffix], headers={"Cache-Control": "no-cache"})


# ---- errors -------------------------------------------------------------------------------------------------


async def _invalid(request: Request, error: Any) -> Response:
    """The first field that is wrong, and why."""
    return invalid_field(error.errors()[0]).response


async def _http_error(request: Request, error: Any) -> Response:
    what = {404: "not found", 405: "method not allowed"}.get(error.status_code, str(error.detail))
    fix = "send one JSON object" if error.status_code == 400 else "GET /openapi.json lists the routes"
    return RequestError(error.status_code, what, fix, dict(error.headers or {})).response


async def _failed(request: Request, error: Exception) -> Response:
    return (error_for(error) or RequestError(500, "internal error", "look at the server's output")).response
