"""A server on loopback whose requests are counted, delayed, refused, or answered into the void."""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.serving import WSGIRequestHandler, make_server


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: str
    range: str
    """The header `Range`; empty without one."""


class Disturbance:
    """A WSGI application around another one. Safe to use from several threads."""

    def __init__(self, application: WSGIApplication):
        self._application = application
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._active = 0
        self.clear()

    def clear(self) -> None:
        """Count from zero, and disturb nothing."""
        with self._lock:
            self.asked: list[Asked] = []
            self.most_active = 0
            """Largest number of requests at the same time."""
            self.latency = 0.0
            """Seconds that every request takes longer."""
            self.refuse: Callable[[Asked, int], int | None] = lambda asked, number: None
            """The status with which a request is refused, by the request and its number; None: it is not."""
            self.lose: Callable[[Asked, int], bool] = lambda asked, number: False
            """Whether the answer to a request is lost after the work was done."""

    def settle(self) -> None:
        """Return when no request is being worked on: those of a process that was killed go on without it."""
        with self._idle:
            self._idle.wait_for(lambda: self._active == 0)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = Asked(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            environ.get("QUERY_STRING", ""),
            environ.get("HTTP_RANGE", ""),
        )
        with self._lock:
            self.asked.append(asked)
            number = len(self.asked)
            self._active += 1
            self.most_active = max(self.most_active, self._active)
        try:
            time.sleep(self.latency)
            status = self.refuse(asked, number)
            if status is not None:
                start_response(f"{status} Refused", [("Content-Length", "0")])
                return [b""]
            answer = list(self._application(environ, start_response))
            if self.lose(asked, number):
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                raise ConnectionAbortedError("the answer is lost")
            return answer
        finally:
            with self._lock:
                self._active -= 1
                self._idle.notify_all()


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def served(application: WSGIApplication) -> Iterator[str]:
    """Within this context, the application answers at the URL that is given."""
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, name="emulator", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
