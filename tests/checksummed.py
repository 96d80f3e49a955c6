"""Files that carry their own sha256, written here by hand: as the format promises, and as a forger could."""

import hashlib
import json


def signed(data):
    body = json.dumps(data)[:-1].encode()
    return body + f', "sha256": "{hashlib.sha256(body + b"}").hexdigest()}"}}\n'.encode()


def read(file):
    """The data of a file, without its checksum."""
    data = json.loads(file.read_bytes())
    assert len(data.pop("sha256")) == 64
    return data


def write(file, data):
    file.write_bytes(signed(data))


def change(file, **changes):
    """Other values, and the checksum that belongs to them."""
    write(file, read(file) | changes)


def sealed(body):
    """TOML with its seal."""
    return f"# sha256 = {hashlib.sha256(body.encode()).hexdigest()}\n\n{body}"


def change_config(run, edit):
    """Other settings in a run's config.toml, and the checksums that belong to them, that of its result too."""
    file, result = run / "config.toml", run / "result.json"
    body = file.read_text().partition("\n\n")[2]
    assert edit(body) != body
    file.write_text(sealed(edit(body)))
    if result.exists():
        change(result, config_sha256=hashlib.sha256(file.read_bytes()).hexdigest())
