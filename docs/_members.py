"""A MkDocs hook: a room's reference page shows the names that its `__init__.py` re-exports.

Names that `stochflow` re-exports again, and the methods of such classes, can also be linked to by the shorter
name.
"""

import ast
import re
from pathlib import Path

PACKAGE = "stochflow"
WITH_HEADING = "    options:\n      show_root_heading: true\n      show_root_toc_entry: true"
ROOM = re.compile(rf"^::: {PACKAGE}\.(\w+)$", re.MULTILINE)


def on_page_markdown(markdown: str, *, page, config, files) -> str:
    source = Path(config.config_file_path).parent / "src" / PACKAGE
    return ROOM.sub(lambda match: _reference(match[1], source), markdown)


def _reference(room: str, source: Path) -> str:
    short = {name for name, _ in _exports(source / "__init__.py")}
    parts = [f"::: {PACKAGE}.{room}\n    options:\n      members: false"]
    for name, module in _exports(source / room / "__init__.py"):
        path = f"{PACKAGE}.{room}.{name}"
        anchors = [f"{name}.{method}" for method in _methods(source / room / f"{module}.py", name)]
        if name == module:  # the function hides the module that it lives in; name it by its full path
            parts.append(f"[](){{ #{path} }}")
            path, anchors = f"{PACKAGE}.{room}.{module}.{name}", [name, *anchors]
        elif (source / name).is_dir():  # the short name is also a room's, which a static reader takes it for
            anchors = [name, *anchors]
        if name in short:
            parts += [f"[](){{ #{PACKAGE}.{anchor} }}" for anchor in anchors]
        parts.append(f"::: {path}\n{WITH_HEADING}")
    return "\n\n".join(parts)


def _exports(init: Path) -> list[tuple[str, str]]:
    """Names imported as themselves (`from .a import B as B`) and their modules, in order."""
    imports = [node for node in ast.parse(init.read_text()).body if isinstance(node, ast.ImportFrom)]
    return [
        (alias.name, node.module)
        for node in imports
        if node.module is not None
        for alias in node.names
        if alias.asname == alias.name
    ]


def _methods(path: Path, name: str) -> list[str]:
    """The public methods of the class `name`, if it is one."""
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    body = [child for node in classes if node.name == name for child in node.body]
    return [child.name for child in body if isinstance(child, ast.FunctionDef) and child.name[0] != "_"]
