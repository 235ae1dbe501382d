"""A TensorBoard of its own for a directory of logs, as its command runs it."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from tensorboard import default, program

from kseq_tensorboard.plugin import SequencesLoader


def serve(logdir: Any, **options: Any) -> str:
    """The address of a server that runs until the tests end."""
    server = program.TensorBoard([*default.get_static_plugins(), SequencesLoader])
    options = {"logdir": logdir, "port": 0, **options}
    server.configure(("tensorboard", *(f"--{k}={v}" for k, v in options.items())))
    return server.launch()


def ask(url: str, route: str, **parameters: Any) -> tuple[int, bytes]:
    """Status and body of the answer of one of the plugin's routes."""
    query = urllib.parse.urlencode(parameters)
    address = f"{url}data/plugin/kseq_sequences/{route}?{query}"
    try:
        with urllib.request.urlopen(address) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def series(url: str, wanted: int) -> dict[str, Any]:
    """What `/series` says, once TensorBoard has loaded so many of them."""
    for _ in range(200):
        _, body = ask(url, "series")
        found = json.loads(body)
        if (
            sum(len(tags) for runs in found.values() for tags in runs.values())
            >= wanted
        ):
            return found
        time.sleep(0.1)
    raise AssertionError(f"TensorBoard loaded only {found}")
