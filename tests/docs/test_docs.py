"""The documentation is true: its Python blocks run and print what it says, its lists match the code.

In README.md and docs/*.md every ```python block is run, top to bottom, all of a file in one namespace
and in an empty folder. A ```text block right behind one is what it prints; `...` stands for anything.
"""

import ast
import contextlib
import doctest
import functools
import importlib.util
import inspect
import io
import pydoc
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite import core, ops
from mxlite.core import config, errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCE_PAGES = [*PAGES, ROOT / "CONTRIBUTING.md"]  # which name files of the repository
MISTAKES = ROOT / "docs" / "mistakes.md"  # its blocks raise
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PUBLIC = """
    ArgumentError attribute AttrScope autograd base BindError BudgetError callback context Context contrib
    core cpu cpu_pinned current_context DeferredInitializationError
    DefinitionError DerivativeError DeviceError dist DTypeError dynamic engine
    EngineError Executor executor_manager FileAccessError FileError FolderError format_bytes FormatError
    formats from_torch get_num_threads gluon gpu gpu_memory_info image img IndexingError init initializer
    io is_np_array is_np_shape kv kvstore log lr_scheduler MemoryBudgetError memplan metric misc
    MissingFileError
    MissingMethodError mod model models module mon monitor MXLiteError MXNetError name nd NDArray ndarray
    np_array np_shape num_gpus onnx OpAttributeError operator OperatorError opt optimizer OutOfMemoryError
    parse_bytes PlaceError PlanError profiler random RangeError recordio registry RewriteError rnd rnn runtime
    ScheduledRateError SearchLimitError set_gpu_memory_limit set_np_shape set_num_threads ShapeError
    StateError sym Symbol symbol test_utils tools torch tune UnknownAttributeError UnknownNameError use_np
    use_np_shape util var Variable visualization viz
""".split()
"""What `import mxlite as mx` promises. One name more or less is a change that users notice (CHANGELOG.md)."""

INNER = {"backends", "cli", "comm", "executor", "graph", "naming", "ops", "te"}
"""What Python shows on `mxlite` because something inside imports it; nobody is promised these."""


def blocks(page):
    """(language, code, line number of its first line, whether it follows the block before directly)."""
    text = page.read_text(encoding="utf-8")
    end = 0
    for match in BLOCK.finditer(text):
        between = text[end : match.start()]
        yield match[1], match[2], text[: match.start(2)].count("\n") + 1, end > 0 and not between.strip()
        end = match.end()


def name_of(page):
    return str(page.relative_to(ROOT))


def printed_blocks(page):
    """Run the page: (what a block printed, what the page says, line) for each with a text behind."""
    mx.random.seed(0)
    np.random.seed(0)
    namespace = {"__name__": "__docs__"}
    names = mx.sym.NameManager()  # a page's automatic names count from 0
    printed = None
    for language, code, line, follows in blocks(page):
        if language == "python":
            output = io.StringIO()
            # As many empty lines before it as there are in the page: tracebacks then name the page's lines.
            source = compile("\n" * (line - 1) + code, name_of(page), "exec")
            with contextlib.redirect_stdout(output), names:
                exec(source, namespace)
            printed = output.getvalue()
        else:
            if language == "text" and follows and printed is not None:
                yield printed, code, line
            printed = None
    mx.nd.waitall()


@pytest.mark.parametrize("page", [p for p in PAGES if p != MISTAKES], ids=name_of)
def test_python_blocks_run_and_print_what_the_page_says(page, tmp_path, monkeypatch):
    """With numpy's kernels: the bytes of a plan depend on which there are, and pages show bytes."""
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    monkeypatch.chdir(tmp_path)
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for printed, said, line in printed_blocks(page):
        assert checker.check_output(said, printed, flags), (
            f"{name_of(page)}, line {line}: "
            + checker.output_difference(doctest.Example(said, said), printed, flags)
        )


def test_the_guide_runs_with_the_kernels_that_are_here(tmp_path, monkeypatch):
    """Its reader has these; only the bytes it shows may be others."""
    monkeypatch.chdir(tmp_path)
    assert len(list(printed_blocks(ROOT / "docs" / "guide.md"))) > 10


def test_public_surface_is_the_pinned_list():
    shown = {n for n in dir(mx) if not n.startswith("_")}
    assert sorted(shown - INNER) == sorted(PUBLIC)
    assert mx.nd is mx.ndarray and mx.sym is mx.symbol and mx.mod is mx.module and mx.viz is mx.visualization
    assert mx.init is mx.initializer and mx.opt is mx.optimizer and mx.rnd is mx.random


def test_names_that_other_code_relies_on_are_there():
    net = mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc1"), name="softmax"
    )
    plan = net.memory_plan(mx.cpu(), memory_budget="512MiB", data=(4, 5))
    for name in ("peak_bytes", "arena_bytes", "lower_bound_bytes", "budget_bytes"):
        assert isinstance(getattr(plan, name), int), name
    assert set(plan.breakdown) == {
        "arguments", "gradients", "auxiliary", "optimizer", "inputs", "activations", "workspace", "outputs",
    }  # fmt: skip
    assert sum(plan.breakdown.values()) == plan.peak_bytes
    assert plan.extra_time == 0.0
    assert mx.memplan.MemoryPlan.from_json(plan.to_json()) == plan
    assert callable(plan.summary) and callable(plan.to_html)
    exe = net.simple_bind(mx.cpu(), grad_req="write", memory_budget="512MiB", data=(4, 5))
    assert exe.memory_plan == plan
    exe.forward(is_train=True, data=mx.nd.ones((4, 5)))
    exe.backward()
    assert exe.outputs[0].shape == (4, 3)
    assert exe.grad_dict["fc1_weight"].shape == (3, 5)
    with pytest.raises(mx.MemoryBudgetError) as raised:
        net.memory_plan(mx.cpu(), memory_budget=1, data=(4, 5))
    assert 0 < raised.value.lower_bound_bytes <= raised.value.least_feasible_bytes
    mx.mod.Module(net, context=mx.cpu(), memory_budget="512MiB").fit  # noqa: B018


def table_column(page, heading):
    """First column of the table under a heading, backticks off."""
    text = (ROOT / page).read_text(encoding="utf-8")
    section = text.split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1].strip().strip("`") for line in section.splitlines() if line.startswith("|")]
    return [r for r in rows[1:] if not set(r) <= {"-", ":", " "}]


def script_called(name, monkeypatch):
    """A module from scripts/."""
    monkeypatch.setattr(sys, "path", list(sys.path))  # the script adds to it
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_guide_lists_every_environment_variable():
    source = Path(config.__file__).read_text(encoding="utf-8")
    assert sorted(table_column("docs/guide.md", "## Switches")) == sorted(
        set(re.findall(r"MXLITE_[A-Z0-9_]+", source))
    )


def test_guide_lists_every_error():
    tree = {n for n, e in vars(errors).items() if isinstance(e, type) and issubclass(e, core.MXLiteError)}
    listed = {f"mx.{n}" for n in tree - {"MXNetError", "MXLiteError"}}
    assert sorted(table_column("docs/guide.md", "## Errors and what they mean")) == sorted(listed)


def test_the_list_of_operators_is_what_the_declarations_say(monkeypatch):
    script = script_called("write_operator_docs", monkeypatch)
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run scripts/write_operator_docs.py"


def test_the_list_of_gpu_kernels_is_what_their_rows_say(monkeypatch):
    script = script_called("write_gpu_docs", monkeypatch)
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run scripts/write_gpu_docs.py"
    count = re.search(r"\*\*Operators\*\*: (\d+) of them", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert count and int(count[1]) == len(ops.ALL), f"README.md: there are {len(ops.ALL)} operators"


def test_commands_print_what_the_page_says(monkeypatch):
    script = script_called("write_tool_docs", monkeypatch)
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run scripts/write_tool_docs.py"


def test_mistakes_are_told_as_the_page_says(monkeypatch):
    """Each by an error of ours or a warning in the log; the script raises Silent for one that is not."""
    script = script_called("write_mistake_docs", monkeypatch)
    written = script.page()
    assert script.PAGE.read_text(encoding="utf-8") == written, "run scripts/write_mistake_docs.py"
    assert len(script.MISTAKE.findall(written)) - 1 >= 50


def test_a_mistake_that_passes_in_silence_is_noticed(monkeypatch):
    script = script_called("write_mistake_docs", monkeypatch)
    for program in ("x = 1", "1 / 0"):
        with pytest.raises(script.Silent):
            script.said("", program)


def listed_in_api():
    """What docs/api.md shows: name -> object, members of modules that it lists with their own names."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    found = {}
    for kind, name, options in re.findall(r"^\.\. auto(\w+):: (mxlite\S*)\n((?:   :.*\n)*)", text, re.M):
        here = pydoc.locate(name)
        assert here is not None, f"docs/api.md: there is no {name}"
        found[name] = here
        if kind == "module" and (members := re.search(r":members: (.+)", options)):
            for member in members[1].split(", "):
                assert hasattr(here, member), f"docs/api.md: there is no {name}.{member}"
                found[f"{name}.{member}"] = getattr(here, member)
    return found


def test_the_interface_lists_every_class_that_a_user_would_make_or_extend():
    listed = list(listed_in_api().values())
    bases = {
        mx.io.DataIter: mx.io, mx.mod.BaseModule: mx.mod, mx.rnn.BaseRNNCell: mx.rnn,
        mx.metric.EvalMetric: mx.metric, mx.optimizer.Optimizer: mx.optimizer,
        mx.lr_scheduler.LRScheduler: mx.lr_scheduler, mx.initializer.Initializer: mx.initializer,
    }  # fmt: skip
    for base, namespace in bases.items():
        for name, here in vars(namespace).items():
            if (
                isinstance(here, type)
                and issubclass(here, base)
                and not name.startswith(("_", "Base", "Measured"))
            ):
                assert here in listed, f"docs/api.md lacks {namespace.__name__}.{name}"


def public_without_description():
    """What `mx.NAME` and its namespaces show that does not say what it is, methods included."""
    namespaces = {n: v for n in PUBLIC if inspect.ismodule(v := getattr(mx, n))}
    shown = {f"mx.{n}": v for n in PUBLIC if n not in namespaces and callable(v := getattr(mx, n))}
    for space, module in namespaces.items():
        for n, v in vars(module).items():
            if not n.startswith("_") and (inspect.isclass(v) or inspect.isfunction(v)):
                shown[f"mx.{space}.{n}"] = v
    for name, here in shown.items():
        if not here.__module__.startswith("mxlite"):
            continue
        if not inspect.getdoc(here) or (inspect.isclass(here) and not here.__doc__):
            yield name
        if inspect.isclass(here) and not here.__module__.startswith("mxlite.ops."):
            for n in dir(here):
                member = inspect.getattr_static(here, n)
                ours = isinstance(member, (property, staticmethod, classmethod)) or inspect.isfunction(member)
                if ours and not n.startswith("_") and not inspect.getdoc(getattr(here, n)):
                    yield f"{name}.{n}"


def test_all_that_is_public_says_what_it_is():
    assert list(public_without_description()) == []


def test_descriptions_have_no_marks_that_a_page_would_stumble_over():
    """Sphinx takes `*x` for the start of emphasis and `|x|` for a substitution: make docs fails there."""
    for name, here in listed_in_api().items():
        texts = [here.__doc__ or ""]
        if isinstance(here, type):
            shown = [m for n, m in vars(here).items() if n[0] != "_"]
            texts += [m.__doc__ or "" for m in shown if inspect.isroutine(m) or isinstance(m, property)]
        for text in texts:
            for paragraph in re.sub(r"(`+).*?\1", "", inspect.cleandoc(text), flags=re.S).split("\n\n"):
                if paragraph.startswith(" "):  # code
                    continue
                stars = re.sub(r"\*\*?[^\s*][^*]*\*\*?(?!\w)", "", paragraph)
                assert not re.search(r"(?:^|(?<=[\s(]))\*+[^\s*]", stars), (name, paragraph)
                assert not re.search(r"(?:^|(?<=[\s(]))\|[^\s|][^|]*\|", paragraph), (name, paragraph)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) + re.findall(r'src="([^"]+)"', text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name_of(page)} points to {target}"


@functools.cache
def all_sources():
    """The repository's Python files by their paths in it, each behind a slash."""
    parts = "mxlite", "tests", "scripts", "examples", "benchmarks", "torture"
    files = (p for part in parts for p in (ROOT / part).rglob("*.py"))
    return {f"/{p.relative_to(ROOT).as_posix()}": p for p in files}


def sources(named):
    """The files of that name, which may leave out the first folders of the path."""
    return [p for path, p in all_sources().items() if path.endswith(f"/{named}")]


def defined(body, before=""):
    """Classes, functions and variables of a module's body, and members of classes as `Class.member`."""
    for node in body:
        match node:
            case ast.ClassDef(name=name):
                yield before + name
                yield from defined(node.body, f"{before}{name}.")
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield before + name
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield before + name


@pytest.mark.parametrize("page", SOURCE_PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page):
    """A path from the repository, `mxlite/` or a package that the page is about; or a name alone."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for named in re.findall(r"`(?:python )?([\w/]+\.py)(?: [^`]*)?`", text):
        assert sources(named), f"{name_of(page)} names {named}"


@pytest.mark.parametrize("page", SOURCE_PAGES, ids=name_of)
def test_functions_that_a_page_names_are_in_their_files(page):
    """Written `file.py::name`, or `file.py::Class.member`."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for named, name in re.findall(r"`([\w/]+\.py)::([\w.]+)`", text):
        there = [n for p in sources(named) for n in defined(ast.parse(p.read_text(encoding="utf-8")).body)]
        assert name in there, f"{name_of(page)}: {named} has no {name}"


def test_every_page_is_in_the_table_of_contents():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    contents = set(index.split("```{toctree}", 1)[1].split("```", 1)[0].split())
    assert {p.stem for p in PAGES if p.parent.name == "docs"} - {"index"} <= contents


def test_readme_picture_is_drawn_from_plans_and_small(monkeypatch):
    script = script_called("draw_readme_picture", monkeypatch)
    keep_all, within = script.plans()
    assert within.peak_bytes <= mx.parse_bytes(script.BUDGET) < keep_all.peak_bytes
    drawn = script.draw(keep_all, within)
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    kept = script.PICTURE.read_text(encoding="utf-8")
    assert len(kept) < 200_000
    assert ElementTree.fromstring(kept).tag.endswith("svg")
    # Nothing of the machine that drew it.
    assert not re.search(r"/home|/tmp|/work|metadata|\d{4}-\d\d-\d\d", kept)
