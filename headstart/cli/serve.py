"""`headstart serve`: the web page, and the JSON behind it."""

import json
import sys
from pathlib import Path

from headstart.cli.options import Common, CommonFlags
from headstart.errors import UserError, visible


def serve(
    *runs: Path,
    port: int = 8000,
    host: str = "127.0.0.1",
    token: str | None = None,
    common: CommonFlags = Common(),
) -> None:
    """A page in the browser to use runs and to look into them, until Ctrl-C.

    Classify, complete, translate, look at attention, compare runs, read a study's report: what the runs can do. A run
    is loaded when it is first used. Programs ask the same server for JSON: /openapi.json says how.

    It can be reached from this machine alone, unless --host names an address that others reach; those need --token.
    It computes in fp32 unless told otherwise: in bf16 an answer would depend on which requests arrive together.

    For example:

        headstart serve runs/tuned

        headstart serve runs/base runs/tuned runs/scratch studies/books --port 8080

        headstart serve runs/tuned --host 0.0.0.0 --token "$TOKEN"

    Parameters
    ----------
    runs
        Directories of runs and studies.
    port
        Where to listen; 0 takes any that is free.
    host
        The address to listen at; another than 127.0.0.1 needs --token.
    token
        What whoever asks has to know; in the variable HEADSTART_SERVE_TOKEN nobody else on the machine sees it.
    """
    try:
        from headstart.serve.application import create_application
        from headstart.serve.listening import access_for, address_of, listen
        from headstart.serve.listening import serve as listen_and_serve
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "headstart":
            raise
        raise UserError(
            f"the web page needs {error.name}, which is not installed", fix="pip install 'headstart[serve]'"
        ) from error
    from headstart.serve.models import Models
    from headstart.training.machine import choose

    access = access_for(host, token)
    precision = "fp32" if common.precision == "auto" else common.precision
    machine = choose(common.device, precision, common.threads)
    machine.prepare()
    models = Models.at(runs, machine)
    socket = listen(host, port)
    address, names = address_of(socket), [*models.runs, *models.studies]

    def tell() -> None:
        told = json.dumps({"address": address, "runs": [*models.runs], "studies": [*models.studies]})
        print(told if common.json else address, flush=True)
        if sys.stderr.isatty():
            print(visible(f"serves {', '.join(names)}; Ctrl-C ends it"), file=sys.stderr, flush=True)

    listen_and_serve(create_application(models, access), socket, tell)
