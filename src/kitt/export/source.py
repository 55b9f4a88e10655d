"""Extraction of the definitions and imports of a Python file that an expression needs, as text."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

_PACKAGE = __package__


@dataclass(frozen=True)
class Source:
    """The top level of a file of this package, by name; what it imports from this package counts as its own."""

    imports: dict[str, tuple[str, str]]  # name -> (module or "", the words after `import`)
    definitions: dict[str, str]

    @classmethod
    def of(cls, module: str) -> Source:
        text = files(_PACKAGE).joinpath(f"{module}.py").read_text(encoding="utf-8")
        source = cls({"np": ("", "numpy as np")}, {})
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{_PACKAGE}."):
                parent = cls.of(str(node.module).removeprefix(f"{_PACKAGE}."))
                source.imports.update(parent.imports)
                source.definitions.update(parent.definitions)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                source.imports.update(_imports(node))
            elif isinstance(node, ast.ClassDef | ast.FunctionDef):
                source.definitions[node.name] = str(ast.get_source_segment(text, node))
            elif isinstance(node, ast.Assign):
                (name,) = [target.id for target in node.targets if isinstance(target, ast.Name)]
                source.definitions[name] = str(ast.get_source_segment(text, node))
        return source

    def with_functions(self, functions: Iterable[Callable[..., Any]]) -> Source:
        """These definitions and those of functions that need nothing but what is imported here."""
        return replace(self, definitions={f.__name__: inspect.getsource(f) for f in functions} | self.definitions)

    def needed_by(self, expression: str, preamble: str = "") -> str:
        """Imports, preamble, and the definitions that both and the expression use, in the order of the file."""
        names, reached = _names(f"{preamble}\n{expression}"), set[str]()
        while names:
            reached |= names
            names = set().union(*(_names(self.definitions[n]) for n in names if n in self.definitions)) - reached
        head = _import_block(what for name, what in self.imports.items() if name in reached)
        definitions = [text for name, text in self.definitions.items() if name in reached]
        return "\n\n\n".join(["\n\n".join(part for part in (head, preamble) if part), *definitions]) + "\n"


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _imports(node: ast.stmt) -> dict[str, tuple[str, str]]:
    assert isinstance(node, ast.Import | ast.ImportFrom)
    module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
    return {alias.asname or alias.name: (module, ast.unparse(alias)) for alias in node.names if module != "__future__"}


def _import_block(imports: Iterable[tuple[str, str]]) -> str:
    """The standard library, then the rest; in each, modules before names, in alphabetical order."""
    modules: dict[str, list[str]] = {}
    for module, what in sorted(imports):
        modules.setdefault(module or f"import {what}", []).append(what)
    sections: tuple[list[str], list[str]] = ([], [])
    for module, names in sorted(modules.items(), key=lambda item: not item[0].startswith("import ")):
        root = module.removeprefix("import ").split(".")[0].split()[0]
        line = module if module.startswith("import ") else f"from {module} import {', '.join(names)}"
        sections[root not in sys.stdlib_module_names].append(line)
    return "\n\n".join("\n".join(section) for section in sections if section)
