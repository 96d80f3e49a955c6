"""`headstart serve`: the web page, and the JSON behind it."""

import json
import sys
from pathlib import Path

from headstart.cli.options import Common, CommonFlags
from headstart.errors import UserError, visible


def serve(
    *runs: Path, port: int = 8000, host: str = "127.0.0.1", token: str | None = None, common: CommonFlags = Common()
) -> None:
    """Serve runs on a local web page, until Ctrl-C.

    The page classifies, completes, translates, shows attention, compares runs and shows a study's report, as the runs
    allow. A run is loaded when it is first used. Programs get JSON from the same server: see /openapi.json.

    Only this machine can reach it, unless --host names another address, which needs --token. It computes in fp32 by
    default: in bf16 an answer would depend on which requests arrive together.

    For example:

        headstart serve runs/tuned
        headstart serve runs/base runs/tuned runs/scratch studies/books --port 8080
        headstart serve runs/tuned --host 0.0.0.0 --token "$TOKEN"

    Args:
        runs: Directories of runs and studies.
        port: The port to listen on; 0 takes any free one.
        host: The address to listen on; any but 127.0.0.1 needs --token.
        token: The bearer token of every request; better in HEADSTART_SERVE_TOKEN, which other users of the
            machine do not see.
    """
    try:
        from headstart.serve.application import create_application
        from headstart.serve.listening import access_for, address_of, listen
        from headstart.serve.listening import serve as listen_and_serve
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "headstart":
            raise
        what = f"the web page needs {error.name}, which is not installed"
        raise UserError(what, fix="pip install 'headstart[serve]'", code="no-package") from error
    from headstart.machine import choose
    from headstart.serve.models import Models

    access = access_for(host, token)
    precision = "fp32" if common.precision == "auto" else common.precision
    machine = choose(common.device, precision, common.threads)
    machine.prepare()
    models = Models.at(runs, machine)
    socket = listen(host, port)
    address, names = address_of(socket), [*models.runs, *models.studies]

    def announce() -> None:
        served = json.dumps({"address": address, "runs": [*models.runs], "studies": [*models.studies]})
        print(served if common.json else address, flush=True)
        if sys.stderr.isatty():
            print(visible(f"serves {', '.join(names)}; Ctrl-C ends it"), file=sys.stderr, flush=True)

    listen_and_serve(create_application(models, access), socket, announce)
