"""The commands in docs/howto/move-data.md: rclone, azcopy and s5cmd copy to the gateway and back, with metadata and tags."""

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient, ContentSettings

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parents[1] / "docs/howto/move-data.md").read_text()
AZCOPY = TESTS / "javascript/node_modules/@azure-tools/azcopy-linux/dist/bin/azcopy_linux_amd64"
BLOBS = BlobServiceClient.from_connection_string(os.environ["IFMATCH_SDK_BLOB"])
S3 = os.environ["IFMATCH_SDK_S3"]
SITE = {"index.html": b"one\n", "css/main.css": b"two\n", "with blank.txt": b"three\n", "large.bin": os.urandom(9 << 20)}


def commands(section):
    """Returns the blocks of commands in a section of the page, as one script."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"<!-- run by tests/sdk/programs/test_move_data.py -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert blocks
    return "\n".join(blocks)


@pytest.fixture
def folder(tmp_path):
    for name, content in SITE.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


def fresh(*containers):
    """Returns a name for each container that no other run has."""
    return {name: f"{name}-{uuid.uuid4()}" for name in containers}


def run(folder, section, containers, **environment):
    """Runs the commands of a section with the gateway's addresses, and with other names of containers."""
    script = commands(section).replace("http://127.0.0.1:10003", S3)
    script = script.replace("http://127.0.0.1:10000/devstoreaccount1", BLOBS.url.rstrip("/"))
    for name, here in containers.items():
        script = re.sub(rf"(gateway:|cloud:|s3://|\$blobs/){name}\b(?!-)", rf"\g<1>{here}", script)
    programs = folder / "programs"
    programs.mkdir()
    AZCOPY.chmod(0o755)
    (programs / "azcopy").symlink_to(AZCOPY)
    # The folder of rclone and s5cmd, where python3 has the SDK.
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    places = {name: str(folder / "azcopy") for name in ("HOME", "AZCOPY_LOG_LOCATION", "AZCOPY_JOB_PLAN_LOCATION")}
    settings = {"PATH": path, "AZCOPY_DISABLE_SYSLOG": "true", "RCLONE_CONFIG": "", "RCLONE_RETRIES": "1"} | places
    done = subprocess.run(
        ["bash", "-eux", "-o", "pipefail", "-c", script], cwd=folder, env=os.environ | settings | environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stdout


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(container, metadata, tags, prefix=""):
    """Compares the blobs below a prefix with the files, and their types, metadata and tags with what was set."""
    client = BLOBS.get_container_client(container)
    assert sorted(blob.name for blob in client.list_blobs(prefix)) == sorted(prefix + name for name in SITE)
    for name, content in SITE.items():
        blob = client.get_blob_client(prefix + name)
        assert blob.download_blob().readall() == content, name
        properties = blob.get_blob_properties()
        assert properties.metadata.items() >= metadata.items(), name
        assert blob.get_blob_tags() == tags, name
        if name.endswith(".html"):
            assert properties.content_settings.content_type.startswith("text/html")


def test_rclone(folder):
    containers = fresh("site", "my-bucket", "site-of-bucket")
    bucket = BLOBS.create_container(containers["my-bucket"])
    html = ContentSettings(content_type="text/html")
    for name, content in SITE.items():
        bucket.upload_blob(f"site/{name}", content, metadata={"team": "cloud"}, content_settings=html)
    # The gateway stands for the cloud.
    cloud = {
        "TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": S3, "ACCESS_KEY_ID": BLOBS.credential.account_name,
        "SECRET_ACCESS_KEY": BLOBS.credential.account_key,
    }
    run(folder, "rclone", containers, **{f"RCLONE_CONFIG_CLOUD_{name}": value for name, value in cloud.items()})
    assert files(folder / "site-copy") == SITE
    check(containers["site"], {"team": "web"}, {"stage": "live"})
    check(containers["site-of-bucket"], {"team": "cloud"}, {"stage": "live"})
    check(containers["my-bucket"], {"team": "cloud"}, {}, prefix="site-back/")


def test_azcopy(folder):
    containers = fresh("docs", "docs-copy")
    run(folder, "azcopy", containers)
    assert files(folder / "site-copy") == SITE
    for container in containers.values():
        check(container, {"team": "web"}, {"stage": "live"})


def test_s5cmd(folder):
    containers = fresh("media")
    run(folder, "s5cmd", containers)
    assert files(folder / "site-copy") == SITE
    check(containers["media"], {"team": "web"}, {})
