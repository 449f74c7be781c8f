"""An emulator of S3: moto's server, behind a counter that can disturb it."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
        import boto3

        name = f"bucket-{next(_NUMBERS)}"
        boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
            region_name=ENVIRONMENT["AWS_REGION"],
        ).create_bucket(Bucket=name)
        self.disturbance.clear()
        return f"s3://{name}"


@contextmanager
def emulator() -> Iterator[Emulator]:
    """Within this context, a server runs in a thread."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    disturbance = Disturbance(DomainDispatcherApplication(create_backend_app))
    with served(disturbance) as endpoint:
        yield Emulator(endpoint, disturbance)
