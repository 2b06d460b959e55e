"""The program in docs/howto/azure.md."""

import os
import re
from pathlib import Path

from conftest import DEVELOPMENT

PAGE = Path(__file__).parents[3] / "docs/howto/azure.md"


def test_guide(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(program.replace(DEVELOPMENT, os.environ.get("IFMATCH_SDK_BLOB", DEVELOPMENT)), {})
    assert capsys.readouterr().out == "412\nb'three'\n"
