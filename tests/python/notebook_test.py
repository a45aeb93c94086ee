"""examples/notebooks run from top to bottom, and show what their texts claim: notebook_test.py CHORAL [--write]

--write puts the outputs into the notebooks, as they are committed.
"""

import os
import pathlib
import sys
import unittest

try:
    import nbclient
    import nbformat
except ModuleNotFoundError as missing:
    print(f"skipped: there is no {missing.name}; ./dev test installs it")
    sys.exit(77)

import package

NOTEBOOKS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "notebooks"


def outputs_of(cell):
    """By their types, those of all pieces joined."""
    told = {}
    for output in cell.get("outputs", ()):
        data = {"text/plain": output["text"]} if output.output_type == "stream" else output.get("data", {})
        for kind, text in data.items():
            told[kind] = told.get(kind, "") + text
    return told


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


class Notebooks(unittest.TestCase):
    def run_notebook(self, name):
        notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
        return notebook

    def test_adapters(self):
        notebook = self.run_notebook("adapters.ipynb")
        by_source = {cell.source: outputs_of(cell) for cell in code_cells(notebook)}

        def of(text):
            return next(told for source, told in by_source.items() if text in source)

        for name in ("butler", "emoji", "json", "pirate", "sql", "yoda"):
            self.assertIn(f"{name} ", of("llm.adapters()")["text/plain"])
        page = of("llm.compare(")["text/html"]
        self.assertIn("<th scope=\"col\">0.5·pirate + 0.5·yoda</th>", page)
        self.assertEqual(page.count('class="token parts"'), 6, "three adapters leave the base at both questions")
        self.assertEqual(of("mean_logprob")["text/plain"].count("parts at token"), 3)
        picture = of("heatmap()")["image/svg+xml"]
        self.assertIn("self_attn.q_proj, layer 29", picture)
        self.assertIn("modules; the most: model.layers.", of("strongest")["text/plain"])
        counts = eval(of("QUESTIONS")["text/plain"])
        self.assertGreater(counts["json"], counts["base"])
        self.assertIn("matey", of("served ==")["text/plain"])
        if WRITE:
            nbformat.write(tidied(notebook), NOTEBOOKS / "adapters.ipynb")

    def test_they_are_committed_as_they_ran(self):
        for path in NOTEBOOKS.glob("*.ipynb"):
            notebook = nbformat.read(path, as_version=4)
            nbformat.validate(notebook)
            for cell in code_cells(notebook)[:-1]:
                self.assertTrue(cell.outputs, f"{path.name}: a cell without output: {cell.source[:60]}")
                self.assertNotIn("error", {output.output_type for output in cell.outputs})


def tidied(notebook):
    """Without what differs from run to run or tells of a machine."""
    for cell in code_cells(notebook):
        cell.metadata = {}
        cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    return notebook


WRITE = "--write" in sys.argv
if __name__ == "__main__":
    if "CHORAL_DEMO_MODEL" not in os.environ:
        print("skipped: CHORAL_DEMO_MODEL names no file; ./dev test fetches the model")
        sys.exit(77)
    os.environ["CHORAL_CACHE"] = str(pathlib.Path(os.environ["CHORAL_DEMO_MODEL"]).parents[1])
    sys.argv = [one for one in sys.argv if one != "--write"]
    package.main()
