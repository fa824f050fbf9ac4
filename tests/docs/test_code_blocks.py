"""Every Python block of the README and the docs runs, as a reader would run it: page by page, in order.

A block that is not to be run has `.no-run` in its info string: ```` ```python {.no-run} ````.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NOT_PAGES = {"notes", "assets"}
# Seconds a page: far more than one needs, so that a busy machine does not fail the test.
PATIENCE = 600
# Compilation is most of the time here, and nothing runs for long: compile in haste.
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>.*)$")


def script(page: str) -> str:
    """The code of a page, all else left blank: a line number in a traceback is then one of the page."""
    lines, fence, runs = [], None, False
    for line in page.splitlines():
        match = FENCE.match(line)
        if fence is None and match:
            fence, runs = match, _runs(match["info"])
            lines.append("")
        elif fence is not None and match and match["ticks"] == fence["ticks"] and not match["info"].strip():
            fence = None
            lines.append("")
        else:
            lines.append(line.removeprefix(fence["indent"]) if fence is not None and runs else "")
    if fence is not None:
        raise ValueError(f"a block is never closed: {fence.string!r}")
    return "\n".join(lines) + "\n"


def _runs(info: str) -> bool:
    language, _, options = info.strip().partition(" ")
    return language == "python" and ".no-run" not in options


def _pages() -> dict[str, Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    found = [path for path in found if not NOT_PAGES & set(path.relative_to(ROOT).parts)]
    return {str(path.relative_to(ROOT)): path for path in found if script(path.read_text()).strip()}


@pytest.mark.docs
@pytest.mark.parametrize("name", _pages())
def test_the_code_of_a_page_runs(name, tmp_path):
    path = tmp_path / Path(name).with_suffix(".py").name
    path.write_text(script(_pages()[name].read_text()))
    ran = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:__main__", path.name],
        check=False,
        cwd=tmp_path,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, f"{name}:\n{ran.stderr[-3000:]}"


PAGE = """Words.

```python
a = 1
```

    ```python
    b = a + 1
    ```

```python {.no-run}
raise ValueError
```

```text
not python
```
"""


def test_blocks_keep_their_lines_and_share_a_namespace():
    code = script(PAGE)
    names = {}
    exec(code, names)
    assert (names["a"], names["b"]) == (1, 2)
    assert code.splitlines()[3] == PAGE.splitlines()[3] == "a = 1"
    assert "raise" not in code
    assert "not python" not in code


def test_a_block_that_is_never_closed_is_an_error():
    with pytest.raises(ValueError, match="never closed"):
        script("```python\na = 1\n")
