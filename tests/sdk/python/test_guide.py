"""The programs in docs/howto/azure.md and README.md."""

import os
import re
from pathlib import Path

from azure.core.exceptions import ResourceExistsError
from conftest import DEVELOPMENT

REPOSITORY = Path(__file__).parents[3]


def run(page, names):
    (program,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)
    exec(program.replace(DEVELOPMENT, os.environ.get("IFMATCH_SDK_BLOB", DEVELOPMENT)), names)


def test_guide(capsys):
    run("docs/howto/azure.md", {})
    assert capsys.readouterr().out == "412\nb'three'\n"


def test_readme(blobs):
    try:
        blobs.create_container("docs")
    except ResourceExistsError:
        pass
    blob = blobs.get_blob_client("docs", "hello.txt")
    blob.upload_blob(b"hello, world")
    names = {}
    run("README.md", names)
    assert blob.get_blob_properties().lease.state == "leased"
    names["lock"].release()
    blob.delete_blob()
