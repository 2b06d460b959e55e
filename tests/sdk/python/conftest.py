"""Clients, a fresh container, blob and table for each test, and the known errors of the server under test."""

import json
import os
import uuid
from collections import Counter
from pathlib import Path

import boto3
import pytest
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from botocore.config import Config

from support import OPTIONS

DEVELOPMENT = "UseDevelopmentStorage=true"

# Only the gateway speaks S3.
collect_ignore = [] if os.environ.get("IFMATCH_SDK_S3") else ["test_s3.py"]


def title(item):
    """Returns the case's name in azurite.json: `test_lease_operation[renew-a broken]` is `lease operation: renew-a broken`."""
    name = item.originalname.removeprefix("test_").replace("_", " ")
    return f"{name}: {item.callspec.id}" if hasattr(item, "callspec") else name


def pytest_collection_modifyitems(items):
    known = known_errors()
    titles = Counter(map(title, items))
    if twice := [case for case, times in titles.items() if times > 1]:
        raise pytest.UsageError(f"two cases have the same name: {twice}")
    if unknown := known.keys() - titles.keys():
        raise pytest.UsageError(f"known errors of cases that do not exist: {sorted(unknown)}")
    for item in items:
        if reason := known.get(title(item)):
            # Strict: a listed case that passes is an error, which keeps the list accurate.
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    # Cases that wait run first, so that the others run in the meantime.
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)


def known_errors():
    """Returns the cases that the server under test fails, with reasons."""
    if not (path := os.environ.get("IFMATCH_SDK_KNOWN_ERRORS")):
        return {}
    known = json.loads(Path(path).read_text())
    return {case: error["reason"] for error in known for case in error.get("cases", []) + error.get("python", [])}


@pytest.fixture(scope="session")
def blobs():
    with BlobServiceClient.from_connection_string(os.environ.get("IFMATCH_SDK_BLOB", DEVELOPMENT), **OPTIONS) as service:
        yield service


@pytest.fixture(scope="session")
def tables():
    with TableServiceClient.from_connection_string(os.environ.get("IFMATCH_SDK_TABLE", DEVELOPMENT), **OPTIONS) as service:
        yield service


@pytest.fixture(scope="session")
def s3():
    account = dict(part.split("=", 1) for part in os.environ["IFMATCH_SDK_BLOB"].split(";") if part)
    config = Config(signature_version="s3v4", max_pool_connections=16, retries={"total_max_attempts": 1})
    return boto3.client(
        "s3",
        endpoint_url=os.environ["IFMATCH_SDK_S3"],
        aws_access_key_id=account["AccountName"],
        aws_secret_access_key=account["AccountKey"],
        region_name="us-east-1",
        config=config,
    )


@pytest.fixture
def container(blobs):
    return blobs.create_container(f"python-{uuid.uuid4()}")


@pytest.fixture
def blob(container):
    """An existing blob."""
    blob = container.get_blob_client("blob")
    blob.upload_blob(b"first")
    return blob


@pytest.fixture
def table(tables):
    return tables.create_table(f"python{uuid.uuid4().hex}")
