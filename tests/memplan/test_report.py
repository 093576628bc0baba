"""Pictures of plans: the page in a browser, images, text, a notebook's cell, a trace, the certificate."""

import io
import json
import re
import struct
import sys
import tempfile
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import mxlite as mx
from mxlite.core import BudgetError, MemoryBudgetError, MXLiteError
from mxlite.memplan import (
    FETCH,
    find_cuts,
    HostLink,
    make_plan,
    OFFLOADED,
    padded,
    partial,
    plan_memory,
    Problem,
    RUN,
    STORE,
    Task,
    Value,
)
from mxlite.memplan.report import certificate_of, drawn, image_of, page_of, trace_of
from mxlite.memplan.report.boxes import boxes, COLOURS, KINDS, peak_step
from mxlite.memplan.report.coding import packed, shortened, signed, steps_of
from mxlite.memplan.report.document import document
from mxlite.memplan.report.page import MOST_BUFFERS, thinned
from mxlite.memplan.report.trace import step_times
from tests.memplan.browser import Browser, CHROMIUM
from tests.memplan.problems import random_problem, residual

HOSTILE = (
    '</script><script>document.title="broken"</script><!--<img src=x onerror="alert(1)">&amp;"\'`${1}\u2028\n'
)


def recomputing(blocks=12, stride=3):
    problem = residual(blocks, 2)
    full = make_plan(problem)
    plan = make_plan(problem, partial(find_cuts(problem), stride, 1.0), method=f"keep 1 cut in {stride}")
    return replace(plan, budget_bytes=plan.peak_bytes + 500, keep_all_peak_bytes=full.peak_bytes)


def named(plan, name):
    """The plan with every name replaced."""
    problem = plan.problem
    tasks = tuple(replace(t, name=name, op=name, kernel=name) for t in problem.tasks)
    values = tuple(replace(v, name=name) for v in problem.values)
    problem = replace(problem, tasks=tasks, values=values)
    return replace(plan, schedule=replace(plan.schedule, problem=problem), method=name)


# -- numbers as text -----------------------------------------------------------------------------------


def unpacked(text):
    """As web/data.js reads it."""
    import base64

    numbers, n, shift = [], 0, 0
    for byte in base64.b64decode(text):
        n |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(n)
            n = shift = 0
    return numbers


def summed(text):
    signed_numbers = [-(n + 1) // 2 if n % 2 else n // 2 for n in unpacked(text)]
    return np.cumsum(signed_numbers).tolist()


def test_numbers_survive_packing():
    edges = [0, 1, 127, 128, 16383, 16384, 2**31, 2**53 - 1, 2**62]
    assert unpacked(packed(edges)) == edges
    assert unpacked(packed([])) == []
    walk = np.random.default_rng(0).integers(-(2**40), 2**40, 1000).tolist()
    assert summed(steps_of(walk)) == walk
    assert unpacked(signed([0, -1, 1, -2, 2])) == [0, 1, 2, 3, 4]


def test_names_survive_shortening():
    names = ["conv1", "conv1_weight", "conv10", "", "é1", "é2", "\U0001f600a", "\U0001f600b", "x", "x"]
    shared, rest = shortened(names)
    found, before = [], b""
    for n, end in zip(unpacked(shared), rest):  # as JavaScript counts
        before = before[: 2 * n] + end.encode("utf-16-le")
        found.append(before.decode("utf-16-le"))
    assert found == names
    assert len("".join(rest)) < len("".join(names))


@pytest.mark.parametrize("seed", range(6))
def test_the_page_is_given_what_the_plan_says(seed):
    problem = random_problem(seed, forward=14)
    counts = np.random.default_rng(seed).integers(-1 if seed % 2 else 0, 3, problem.num_forward).tolist()
    plan = make_plan(replace(problem, host=HostLink()), counts)
    data = document([plan], 0, "t")["plans"][0]
    ranges = plan.liveness.ranges
    assert summed(data["task"]) == list(plan.schedule.task)
    assert unpacked(data["copy"]) == list(plan.schedule.copy)
    assert unpacked(data["stepKind"]) == list(plan.schedule.kind)
    assert summed(data["start"]) == [r.start for r in ranges]
    assert unpacked(data["steps"]) == [r.stop - r.start for r in ranges]
    assert [data["sizes"][n] for n in unpacked(data["size"])] == [padded(r.nbytes) for r in ranges]
    assert [n * data["unit"] for n in unpacked(data["offset"])] == list(plan.offsets)
    # Instances, as they are made, and who reads them.
    made, value, buffer = summed(data["made"]), summed(data["value"]), summed(data["buffer"])
    rows = iter(unpacked(data["reads"]))
    reads = [[next(rows) for _ in range(n)] for n in unpacked(data["readCount"])]
    for s, (ins, outs) in enumerate(zip(plan.schedule.inputs, plan.schedule.outputs)):
        before = sum(m < s for m in made)
        values = [plan.schedule.value_of[i] for i in ins if plan.liveness.range_of[i] >= 0]
        assert [value[before - back] for back in reads[s]] == list(dict.fromkeys(values))
        places = [plan.liveness.range_of[i] for i in ins if plan.liveness.range_of[i] >= 0]
        assert [buffer[before - back] for back in reads[s]] == list(dict.fromkeys(places))
        assert [value[i] for i, m in enumerate(made) if m == s] == [
            plan.schedule.value_of[o] for o in outs if o >= 0 and plan.liveness.range_of[o] >= 0
        ]


def offloading(blocks=8):
    """Every third forward result waits in host memory."""
    problem = replace(residual(blocks, 2), host=HostLink(20.0, 100.0))
    counts = [OFFLOADED if t % 3 == 0 else 0 for t in range(problem.num_forward)]
    plan = make_plan(problem, counts, method="offload")
    assert plan.offloaded > 3
    return plan


def test_what_waits_in_host_memory_is_shown_as_such(tmp_path):
    plan = offloading()
    kinds = [b.kind for b in boxes(plan)]
    assert kinds.count("fetched") == plan.schedule.kind.count(FETCH) > 3
    meaning = "copied back from host memory"
    assert meaning in plan.to_text(200) and meaning in plan._repr_html_() and meaning in page_of(plan)
    kept = make_plan(plan.problem)
    assert meaning not in kept.to_text(200) + kept._repr_html_()
    assert f'"hostBytes":{plan.host_bytes}' in page_of(plan) and plan.host_bytes > 0
    trace = trace_of(plan)["traceEvents"]
    assert {e["args"]["name"] for e in trace if e["name"] == "thread_name"} == {
        "kernels", "copies to host memory", "copies from host memory",
    }  # fmt: skip
    copies = [e for e in trace if e["ph"] == "X" and e["cat"] == "copy"]
    assert len(copies) == sum(k != RUN for k in plan.schedule.kind)
    times, end = step_times(plan)
    assert end == pytest.approx(plan.predicted_seconds) and end > plan.step_seconds
    for kind in (RUN, STORE, FETCH):  # one after the other in each row
        row = [t for t, k in zip(times, plan.schedule.kind) if k == kind]
        assert all(a[1] <= b[0] for a, b in pairwise(row))


# -- the page ------------------------------------------------------------------------------------------


def test_the_page_stands_alone_and_nothing_breaks_out(tmp_path):
    plan = named(recomputing(), HOSTILE)
    plan.to_html(tmp_path / "plan.html", title=HOSTILE)
    text = (tmp_path / "plan.html").read_text("utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    assert "<img" not in text and 'onerror="' not in text.replace("&quot;", "'").split("<script")[0]
    assert "\u2028" not in text.split("<script", 1)[1]
    data = json.loads(re.search(r'id="plans">(.*?)</script>', text, re.S)[1])
    assert data["problems"][0]["ops"] == [HOSTILE]
    assert "http:" not in text.replace("http://www.w3.org/", "") and "https:" not in text
    assert re.search(r"default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'\"", text)


def test_plans_of_a_page_are_ordered_and_few_enough(monkeypatch):
    plan = recomputing()
    others = [recomputing(stride=s) for s in (1, 2, 3, 4, 6)]
    shown = thinned(plan, others)
    assert any(p is plan for p in shown)
    assert [p.peak_bytes for p in shown] == sorted(p.peak_bytes for p in shown)
    assert len({(p.peak_bytes, p.extra_time) for p in shown}) == len(shown) > 3
    monkeypatch.setattr(
        sys.modules["mxlite.memplan.report.page"], "MOST_BUFFERS", 3 * len(plan.liveness.ranges)
    )
    few = thinned(plan, others)
    assert 1 <= len(few) <= 3 and any(p is plan for p in few)
    assert MOST_BUFFERS > 10 * 10_000


def test_budgets_of_a_page_are_planned(tmp_path):
    problem = residual(8, 2, update=True)
    plan = plan_memory(problem)
    plan.to_html(tmp_path / "a.html", budgets=4)
    data = json.loads(
        re.search(r'id="plans">(.*?)</script>', (tmp_path / "a.html").read_text("utf-8"), re.S)[1]
    )
    peaks = [p["peak"] for p in data["plans"]]
    assert (
        2 < len(peaks) <= 4 and peaks == sorted(peaks) and data["plans"][data["shown"]]["peak"] == peaks[-1]
    )
    least = data["plans"][0]["budget"]
    plan.to_html(tmp_path / "b.html", budgets=[least, str(plan.peak_bytes)])
    with pytest.raises(MemoryBudgetError):
        plan.to_html(tmp_path / "c.html", budgets=["1B"])
    with pytest.raises(BudgetError, match="1 to 1000"):
        plan.to_html(tmp_path / "c.html", budgets=0)
    assert not (tmp_path / "c.html").exists()


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started = Browser(Path(folder))
        yield started
        started.close()


def colours_of(png):
    """How many different colours a PNG of 8-bit RGB or RGBA has."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed_rows, header = 8, b"", b""
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + length]
        header = body if kind == b"IHDR" else header
        packed_rows += body if kind == b"IDAT" else b""
        at += 12 + length
    width, height, _, colour = struct.unpack(">IIBB", header[:10])
    channels = {2: 3, 6: 4}[colour]
    rows = np.frombuffer(zlib.decompress(packed_rows), np.uint8).reshape(height, 1 + width * channels)
    # Filtered rows differ from pixels, but a blank picture has the same few bytes everywhere.
    return len(np.unique(rows[:, 1:].reshape(-1, channels), axis=0))


PIXELS = """(() => {
  const { data } = arena.getContext("2d").getImageData(0, 0, arena.width, arena.height);
  const counts = { "76,120,168": 0, "245,133,24": 0, "84,162,75": 0 };
  for (let i = 0; i < data.length; i += 4) {
    const colour = `${data[i]},${data[i + 1]},${data[i + 2]}`;
    if (colour in counts) counts[colour]++;
  }
  return Object.values(counts);
})()"""
"""How many pixels of the arena are of the colours of forward, recomputed and backward."""


BLUEST = """(() => {
  const { data } = arena.getContext("2d").getImageData(100, 0, arena.width - 100, arena.height);
  let most = 0;
  for (let i = 0; i < data.length; i += 4) most = Math.max(most, data[i + 2] - data[i]);
  return most;
})()"""
"""By how much blue exceeds red at most."""


def test_the_page_works_in_a_browser(browser, tmp_path):
    plan = recomputing()
    others = [recomputing(stride=s) for s in (1, 4, 6)] + [make_plan(plan.problem)]
    path = tmp_path / "plan.html"
    plan.to_html(path, plans=others, title="a page")
    tab = browser.open(path, 1200, 900)
    assert tab.text("h1") == "a page"
    assert tab.text("#peak") == mx.format_bytes(plan.peak_bytes)
    assert tab.text("#extra") == f"{100 * plan.extra_time:.1f} %"
    assert tab.text("#recomputed") == str(plan.recomputed)
    assert tab.text("#certificate").lower().startswith(certificate_of(plan).lower()[:30])
    assert colours_of(tab.screenshot()) > 30
    drawn_pixels = tab.evaluate(PIXELS)
    assert all(n > 1000 for n in drawn_pixels), drawn_pixels
    # The slider shows another plan.
    tab.evaluate("budget.value = budget.max; budget.dispatchEvent(new Event('input')); 1")
    tab.settle()
    assert tab.text("#recomputed") == "0" and tab.text("#extra") == "0.0 %"
    assert tab.text("#peak") == mx.format_bytes(others[-1].peak_bytes)
    assert tab.text('#breakdown tr[data-row="peak"] td') == mx.format_bytes(others[-1].peak_bytes)
    # Searching marks, Enter jumps and pins.
    before = tab.screenshot()
    tab.evaluate("query.focus()")
    for letter in "conv3_1":
        tab.key(letter)
    wanted = sum("conv3_1" in name for b in boxes(others[-1]) for name in b.names[:1])
    assert int(tab.text("#found").split()[0]) >= wanted > 0
    assert tab.screenshot() != before
    tab.key("Enter")
    assert tab.text("#found").startswith("1 of")
    assert "conv3_1" in tab.text("#details") and "read by" in tab.text("#details")
    # The keyboard: the canvas has the focus, Escape lets go, N walks.
    tab.evaluate("arena.focus()")
    tab.key("Escape")
    assert tab.evaluate("details.hidden")
    tab.key("n")
    shown = others[-1]
    for b in range(5):
        r = shown.liveness.ranges[b]
        end = shown.offsets[b] + padded(r.nbytes)
        assert f"address[{shown.offsets[b]:,}, {end:,})" in tab.text("#details")
        if r.members:
            assert tab.text("#details h2") == shown.problem.values[shown.schedule.value_of[r.members[0]]].name
            readers = [s for s, row in enumerate(shown.schedule.inputs) if r.members[0] in row]
            tasks = [shown.problem.tasks[shown.schedule.task[s]] for s in readers]
            read = "".join(f"step {s}: {t.name} ({t.op})" for s, t in zip(readers, tasks))
            assert f"read by{read}" in tab.text("#details")
        tab.key("n")
    tab.key("0")
    # The wheel zooms; a click pins what lies there.
    box = tab.evaluate("(({x, y, width, height}) => [x, y, width, height])(arena.getBoundingClientRect())")
    x, y = box[0] + box[2] / 2, box[1] + box[3] * 0.8
    whole = tab.screenshot()
    tab.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400)
    tab.settle()
    assert tab.screenshot() != whole
    tab.mouse("mouseMoved", x, y)
    tab.settle()
    assert not tab.evaluate("tip.hidden") and "steps [" in tab.text("#tip")
    tab.click(x, y)
    assert tab.text("#details h2") == tab.text("#tip b")
    assert tab.complaints() == []
    tab.close()


def test_a_page_of_hostile_names_shows_them_as_text(browser, tmp_path):
    path = tmp_path / "plan.html"
    named(recomputing(), HOSTILE).to_html(path, plans=[offloading()], title=HOSTILE)
    tab = browser.open(path, 700, 700, dark=True)
    tab.evaluate("arena.focus()")
    tab.key("n")
    assert tab.text("#details h2") == HOSTILE
    assert tab.text("h1") == HOSTILE.replace("\r", "") and tab.evaluate("document.images.length") == 0
    assert tab.evaluate("document.title").startswith("</script>")
    assert tab.complaints() == []
    tab.close()
    make_plan(Problem((), (), 0)).to_html(path)
    tab = browser.open(path)
    tab.evaluate("arena.focus()")
    for key in ("n", "k", "+", "0"):
        tab.key(key)
    assert tab.text("#peak") == "0 B" and tab.complaints() == []
    tab.close()


def test_a_page_of_ten_thousand_buffers_is_small_and_quick(browser, tmp_path):
    problem = residual(700, 2, update=True)
    plan = make_plan(problem, partial(find_cuts(problem), 5, 1.0))
    assert len(plan.liveness.ranges) > 10_000
    path = tmp_path / "plan.html"
    plan.to_html(path)
    assert path.stat().st_size < 800_000
    tab = browser.open(path)
    frames = tab.evaluate(
        "(async () => { const found = []; for (let i = 0; i < 12; i++) { whole.click();"
        " await new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f)));"
        " found.push(Number(arena.dataset.milliseconds)); } return found; })()"
    )
    assert min(frames) < 50
    assert colours_of(tab.screenshot()) > 30 and tab.complaints() == []
    tab.close()


def test_what_a_search_does_not_find_is_faint_however_many_lie_on_each_other(browser, tmp_path):
    make_plan(residual(700, 2)).to_html(tmp_path / "plan.html")
    tab = browser.open(tmp_path / "plan.html", 700, 500)
    tab.evaluate("query.value = 'nowhere'; query.dispatchEvent(new Event('input')); 1")
    tab.settle()
    assert tab.text("#found") == "0 found"
    assert 0.15 * (168 - 76) < tab.evaluate(BLUEST) < 30  # what is written on the axes has 26
    tab.close()


# -- images --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_images_are_drawn_whatever_the_names_are(form, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"plan.{form.upper() if form == 'png' else form}"
    plan = named(recomputing(4), "$x_{$ \x00\ud800 漢 </text>")
    plan.to_image(path, title="$\\frac{")
    content = path.read_bytes()
    assert content.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[form])
    if form == "svg":
        assert "made again for backward" in "".join(ElementTree.fromstring(content).itertext())
        plan.to_image(tmp_path / "again.svg", title="$\\frac{")
        assert (tmp_path / "again.svg").read_bytes() == content


def test_thousands_of_thin_boxes_keep_their_colour():
    image, colors = (pytest.importorskip(f"matplotlib.{name}") for name in ("image", "colors"))
    plan = plan_memory(residual(250, 2))
    pixels = image.imread(io.BytesIO(image_of(plan, "png")))[:, :, :3]
    blue = np.abs(pixels - colors.to_rgb(COLOURS["forward"])).max(axis=2) < 0.05
    found = boxes(plan)
    share = sum((b.stop - b.start) * b.nbytes for b in found if b.kind == "forward")
    share /= len(plan.schedule.task) * 1.06 * plan.arena_bytes
    assert share > 0.3 and blue.mean() / (0.88 * 0.74) > 0.8 * share


def test_the_line_of_a_budget_crosses_no_words():
    pytest.importorskip("matplotlib")
    plan = recomputing()
    for above, is_tight in ((64, True), (plan.arena_bytes // 4, False)):
        drawn = image_of(replace(plan, budget_bytes=plan.peak_bytes + above), "svg").decode()
        # Words and the place of their line: `<text ... transform="translate(x y)">peak 1 B ...</text>`.
        at = {w: float(y) for y, w in re.findall(r'<text[^>]* ([\d.]+)\)">(peak|budget) ', drawn)}
        assert set(at) == {"peak", "budget"} and (at["peak"] == at["budget"]) == is_tight, at


def test_an_image_without_matplotlib_or_of_another_kind_is_refused(monkeypatch, tmp_path):
    plan = recomputing(3)
    with pytest.raises(MXLiteError, match=r"\.svg, \.png or \.pdf"):
        plan.to_image(tmp_path / "plan.jpg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MXLiteError, match=r"pip install 'mxlite\[viz\]'"):
        plan.to_image(tmp_path / "plan.svg")
    assert not list(tmp_path.iterdir())


# -- text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("width", [1, 40, 79, 200])
def test_text_is_as_wide_as_asked_and_plain_where_it_must_be(width, unicode):
    text = recomputing().to_text(width, unicode=unicode)
    assert max(map(len, text.splitlines())) <= max(width, 40)
    assert text.isascii() != unicode
    signs = "#r=" if not unicode else "█▚▒"
    assert all(text.count(s) > 3 for s in signs)
    assert "forward" in text and "0 B" in text and "Fullest at step" in text
    # Left of the line between the passes nothing was made after it.
    lines = text.splitlines()
    split = next(line for line in lines if " 0 B " in line).index("┴" if unicode else "+", 13)
    left = "".join(line[13:split] for line in lines[1 : next(i for i, x in enumerate(lines) if " 0 B " in x)])
    assert set(left) <= {" ", signs[0], "░" if unicode else "."}


def test_text_shows_where_buffers_lie():
    values = (Value("a", 640), Value("b", 640), Value("out", 64, True))
    tasks = (
        Task("first", "op", (), (0,)),
        Task("second", "op", (), (1,)),
        Task("third", "op", (0, 1), (2,)),
        Task("fourth", "op", (1,), (2,)),
    )
    plan = make_plan(Problem(tasks, values, 4))
    lines = plan.to_text(53, height=2, unicode=False).splitlines()
    top, bottom = (line[13:] for line in lines[1:3])
    assert {
        (top.strip(), len(top) - len(top.lstrip())),
        (bottom.strip(), len(bottom) - len(bottom.lstrip())),
    } == {
        ("#" * 30, 0),
        ("#" * 30, 10),
    }


def test_text_fits_the_terminal_and_its_encoding(monkeypatch):
    plan = recomputing()
    monkeypatch.setenv("COLUMNS", "66")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    text = drawn(plan)
    assert text.isascii() and max(map(len, text.splitlines())) <= 66
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert not drawn(plan).isascii()


def test_text_of_hostile_names_holds_no_control_characters():
    text = named(recomputing(), "\x1b[31mred\x07\n\u202e").to_text(80, unicode=False)
    assert all(c.isprintable() or c == "\n" for c in text)


def test_nothing_can_be_drawn():
    plan = make_plan(Problem((), (), 0))
    assert plan.to_text() == "The arena is empty."
    assert "<svg" not in plan._repr_html_() and "Memory plan" in plan._repr_html_()
    assert len(trace_of(plan)["traceEvents"]) == 2
    assert boxes(plan) == []


# -- notebooks -----------------------------------------------------------------------------------------


def test_a_notebook_gets_a_table_and_a_drawing_without_script():
    plan = recomputing()
    cell = plan._repr_html_()
    root = ElementTree.fromstring(cell.replace("<br>", "<br/>"))
    drawing = next(e for e in root.iter() if e.tag == "svg")
    rectangles = sum(e.get("d", "").count("z") for e in drawing.iter("path") if e.get("fill") != "none")
    assert rectangles == len(plan.liveness.ranges)
    assert mx.format_bytes(plan.peak_bytes) in "".join(root.itertext())
    assert "<script" not in cell and "<style" not in cell and len(cell) < 30_000
    assert "<script" not in named(plan, HOSTILE)._repr_html_()
    assert repr(plan).startswith("MemoryPlan(schedule=")


def test_a_notebook_says_what_the_summary_says():
    """Also where costs were measured: then predicted times are not the plain sums."""
    problem = replace(recomputing().problem, cache_bytes=2**20, costs="measured")
    tasks = tuple(
        replace(t, warm=t.seconds / (2 + i % 5), cold=t.seconds) for i, t in enumerate(problem.tasks)
    )
    plan = make_plan(replace(problem, tasks=tasks), [1] * problem.num_forward, method="all again")
    assert f"{plan.extra_time:.3f}" != f"{plan.predicted_extra_time:.3f}"
    for shown in (plan, offloading()):
        text = "".join(ElementTree.fromstring(shown._repr_html_().replace("<br>", "<br/>")).itertext())
        for line in shown.summary().splitlines()[1:-1]:
            if line.endswith(" 0 B"):
                continue
            for part in re.split(r"  +", line.strip("- ")):
                assert part.strip("()") in text, part


def test_inference_has_no_backward_pass_in_a_notebook():
    plan = mx.models.get("lenet").memory_plan(data=(2, 1, 28, 28), grad_req="null")
    assert ">forward<" in plan._repr_html_() and ">backward<" not in plan._repr_html_()


def test_a_plan_from_elsewhere_gives_a_terminal_nothing_to_obey():
    plan = replace(recomputing(), method="\x1b[2Jgone")
    again = mx.memplan.MemoryPlan.from_json(plan.to_json())
    assert "\x1b" not in again.summary() and "\\x1b[2Jgone" in str(again)


# -- traces --------------------------------------------------------------------------------------------


def test_a_trace_has_every_step_and_its_bytes(tmp_path):
    plan = recomputing()
    plan.to_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = trace["traceEvents"]
    steps = [e for e in events if e["ph"] == "X"]
    assert len(steps) == len(plan.schedule.task)
    assert sum(e["cat"] == "recomputed" for e in steps) == plan.recomputed > 0
    assert all(e["name"].endswith(" (again)") == (e["cat"] == "recomputed") for e in steps)
    # One after the other, as long as the plan says.
    for a, b in pairwise(steps):
        assert b["ts"] == pytest.approx(a["ts"] + a["dur"])
    total = steps[-1]["ts"] + steps[-1]["dur"]
    assert total == pytest.approx(1e6 * (plan.problem.step_seconds + plan.schedule.extra_seconds))
    counters = [e for e in events if e["ph"] == "C"]
    live = [e["args"]["bytes"] for e in counters if e["name"] == "live bytes in the arena"]
    assert live == [*plan.live_bytes(), 0]
    owned = [e["args"]["bytes"] for e in counters if e["name"] == "arena and fixed bytes"]
    assert max(owned) == plan.problem.fixed_total + plan.max_live_bytes
    assert {e["args"]["bytes"] for e in counters if e["name"] == "budget"} == {plan.budget_bytes}
    assert {e["ph"] for e in events} == {"M", "X", "C", "i"}
    for e in events:
        assert set(e) >= {"name", "ph", "pid", "tid"} and ("ts" in e or e["ph"] == "M")
    times = [e["ts"] for e in events if e["ph"] != "M"]
    assert times == sorted(times)


# -- the certificate -----------------------------------------------------------------------------------


def test_the_certificate_says_what_is_proven():
    plan = recomputing()
    assert plan.placed_bytes == plan.max_live_bytes
    words = f"arena = most live bytes ({mx.format_bytes(plan.max_live_bytes)}): no smaller arena exists"
    assert words in plan.summary() and certificate_of(plan).startswith(words)
    gap = replace(plan, placed_bytes=plan.placed_bytes + 64)
    assert "64 B" in certificate_of(gap) and " %) above the most live bytes: lost to gaps" in certificate_of(
        gap
    )
    shared = replace(plan.problem, least_arena=plan.placed_bytes + 4096)
    inference = replace(plan, schedule=replace(plan.schedule, problem=shared))
    assert "inference" in certificate_of(inference) and "most live" not in certificate_of(inference)
    for strategy in ("none", "inplace"):
        said = certificate_of(make_plan(plan.problem, strategy=strategy))
        assert said.endswith("above the most live bytes: no two buffers share bytes")


def test_boxes_are_the_plans_buffers():
    plan = recomputing()
    found = boxes(plan)
    assert {b.kind for b in found} == set(KINDS) - {"fetched"}
    assert max(b.offset + b.nbytes for b in found) == plan.placed_bytes
    live = [0] * len(plan.schedule.task)
    for b in found:
        for s in range(b.start, b.stop):
            live[s] += b.nbytes
    assert live == plan.live_bytes()
    assert peak_step(plan) == live.index(max(live))


def test_a_wheel_would_hold_the_pages_parts():
    """Everything below mxlite/ goes into a wheel, unless it is left out of the repository."""
    from importlib.resources import files

    from mxlite.memplan.report.page import SCRIPTS

    folder = files("mxlite.memplan.report") / "web"
    assert sorted(f.name for f in folder.iterdir()) == sorted(["page.html", "page.css", *SCRIPTS])
