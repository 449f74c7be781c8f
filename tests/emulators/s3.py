"""An emulator of S3: moto's server, behind a counter that can disturb it."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.request import Request, urlopen

from tests.emulators.disturbing import Disturbance, served

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing-secret",
    "AWS_REGION": "us-east-1",
    # Nothing asks the metadata service of the machine that the tests run on.
    "AWS_EC2_METADATA_DISABLED": "true",
}
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Emulator:
    """A running server."""

    endpoint: str
    disturbance: Disturbance

    def bucket(self) -> str:
        """The URL of a new bucket."""
        name = f"bucket-{next(_NUMBERS)}"
        urlopen(Request(f"{self.endpoint}/{name}", method="PUT")).close()
        self.disturbance.clear()
        return f"s3://{name}"


@contextmanager
def emulator() -> Iterator[Emulator]:
    """Within this context, a server runs in a thread."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    disturbance = Disturbance(DomainDispatcherApplication(create_backend_app))
    with served(disturbance) as endpoint:
        yield Emulator(endpoint, disturbance)
