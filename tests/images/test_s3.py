"""Photos in a bucket of a real S3 server (moto), which these tests install, start and stop.

s3fs and moto are installed into a folder and a virtual environment of their own: the project does not need them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from PIL import Image

from images.pictures import encode, noise
from tagfill.dataset import Dataset

pytestmark = pytest.mark.long

PROJECT = Path(__file__).parents[2]
CALLS_TO_FILL = "4"  # one for the bucket, one per photo
FILL = """
import sys, boto3
from pathlib import Path
keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
client = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1", **keys)
client.create_bucket(Bucket="bucket")
for path in sorted(Path(sys.argv[2]).iterdir()):
    client.upload_file(str(path), "bucket", f"photos/{path.name}")
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """A folder with s3fs, as the extra installs it beside the pinned packages."""
    folder = tmp_path_factory.mktemp("s3fs")
    pip(Path(sys.executable), "--target", folder, "--constraint", PROJECT / "constraints.txt", "s3fs")
    return folder


@pytest.fixture(scope="module")
def moto(tmp_path_factory) -> Path:
    """The Python of an environment that has the server."""
    folder = tmp_path_factory.mktemp("moto")
    venv.create(folder, with_pip=True)
    pip(folder / "bin" / "python", "moto[server,s3]==5.2.5")
    return folder / "bin" / "python"


def pip(python: Path, *arguments: object) -> None:
    subprocess.run([python, "-m", "pip", "install", "--quiet", *map(str, arguments)], check=True)


@contextmanager
def bucket(moto: Path, tmp_path: Path, **settings: str) -> Iterator[str]:
    """The address of a server with three photos in a bucket."""
    (tmp_path / "photos").mkdir()
    for number in range(3):
        (tmp_path / "photos" / f"{number}.png").write_bytes(encode(Image.fromarray(noise(4, 5, seed=number))))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [moto.parent / "moto_server", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "moto.log").open("wb") as log:
        server = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
    try:
        wait_for(url, server)
        subprocess.run([moto, "-c", FILL, url, tmp_path / "photos"], check=True)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=20)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert server.poll() is None
        with suppress(URLError, ConnectionError):
            urlopen(Request(f"{url}/moto-api/"), timeout=5).close()
            return
        time.sleep(0.1)
    raise AssertionError("the server does not answer")


def inspect(tmp_path: Path, packages: Path, endpoint: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`tagfill inspect --decode` of a dataset whose photos are in the bucket, with keys that nobody has given."""
    images = [{"image": f"{number}.png", "split": "train"} for number in range(3)]
    rows = [{"image": "0.png", "label": "cat", "present": True, "source": "ann"}]
    dataset = Dataset.from_records("bucket", root="s3://bucket/photos", classes=["cat"], images=images, rows=rows)
    dataset.save(tmp_path / "set")
    settings = {
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_ACCESS_KEY_ID": "unknown",
        "AWS_SECRET_ACCESS_KEY": "unknown",
        "AWS_DEFAULT_REGION": "us-east-1",
        "TAGFILL_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-m", "tagfill", "inspect", tmp_path / "set", "--decode", *options]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)


def test_photos_of_a_bucket(moto, packages, tmp_path):
    with bucket(moto, tmp_path) as endpoint:
        found = inspect(tmp_path, packages, endpoint, "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["problems"] == []
    cached = {path.read_bytes() for path in (tmp_path / "cache" / "images").rglob("*") if path.is_file()}
    assert cached == {path.read_bytes() for path in (tmp_path / "photos").iterdir()}


def test_a_bucket_that_refuses_gets_one_sentence(moto, packages, tmp_path):
    with bucket(moto, tmp_path, INITIAL_NO_AUTH_ACTION_COUNT=CALLS_TO_FILL) as endpoint:
        found = inspect(tmp_path, packages, endpoint)
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "s3://bucket/photos refuses access" in found.stderr
    assert "check AWS_PROFILE" in found.stderr
