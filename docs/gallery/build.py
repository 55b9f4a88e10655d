"""Runs every example of the gallery and writes its page: `python docs/gallery/build.py`, called by `make docs`.

An example is a script beside this one. Its docstring is the title and the text of the page; its source, what it prints and
the figures that it leaves open are shown. An example that fails, or warns because of us, fails the build.
"""

import contextlib
import io
import runpy
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import matplotlib

matplotlib.use("agg")
FOLDER = Path(__file__).parent
ORDER = ("series", "text_columns", "changing_noise", "botorch_loop", "pipeline", "many_columns")


def page(name: str) -> str:
    """Run an example, save its figures, and return the text of its page."""
    import matplotlib.pyplot as plt

    plt.close("all")
    plt.rcParams.update({"figure.figsize": (7, 3.6), "figure.dpi": 80, "savefig.bbox": "tight", "font.size": 9})
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.filterwarnings("error", module=r"kitt\b.*")
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    pictures = []
    for number in plt.get_fignums():
        file = f"{name}-{number}.png"
        plt.figure(number).savefig(FOLDER / file)
        pictures.append(f"![{name}]({file})")
    if not pictures or not printed.getvalue().strip():
        raise RuntimeError(f"the example {name} must print something and draw a figure")
    _, about, code = (FOLDER / f"{name}.py").read_text(encoding="utf-8").split('"""', 2)
    title, text = about.split("\n", 1)
    blocks = (f"```python\n{code.strip()}\n```", f"```text\n{printed.getvalue().rstrip()}\n```")
    return "\n\n".join((f"# {title}", text.strip(), *pictures, *blocks)) + "\n"


def main() -> None:
    examples = {path.stem for path in FOLDER.glob("*.py")} - {"build"}
    if examples != set(ORDER):
        sys.exit(f"docs/gallery/build.py does not list {', '.join(sorted(examples ^ set(ORDER)))}")
    for old in (*FOLDER.glob("*.png"), *FOLDER.glob("*.md")):
        old.unlink()
    with ProcessPoolExecutor(2) as pool:
        pages = dict(zip(ORDER, pool.map(page, ORDER), strict=True))
    lines = ["# Gallery", "", "Each example is run when this site is built, and shows what it prints and draws.", ""]
    for name, text in pages.items():
        (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")
        title = text.split("\n", 1)[0].removeprefix("# ")
        lines += [f"## [{title}]({name}.md)", "", f"[![{title}]({name}-1.png)]({name}.md)", ""]
    (FOLDER / "index.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
