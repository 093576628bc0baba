"""Planning problems made of plain numbers, for tests."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from mxlite.memplan import HostLink, Problem, Task, Value


def chain(length: int, size: int = 1000, update: bool = False) -> Problem:
    """`length` layers with a weight each; backward of a layer reads its input and its weight."""
    return residual(length, 1, size, shortcut=False, update=update)


def residual(
    blocks: int, inner: int, size: int = 1000, *, shortcut: bool = True, update: bool = False
) -> Problem:
    """Blocks of `inner` weighted layers, each followed by a cheap one done in place, with a sum around
    them.
    """
    values: list[Value] = [Value("data", size, fixed=True)]
    tasks: list[Task] = []
    grads: list[Task] = []

    def value(name: str, nbytes: int, fixed: bool = False) -> int:
        values.append(Value(name, nbytes, fixed))
        return len(values) - 1

    def gradient(of: int) -> int:
        return value(f"d_{values[of].name}", values[of].nbytes)

    tape: list[tuple[str, tuple[int, ...]]] = []
    h, weights = 0, {}
    for b in range(blocks):
        start = h
        for i in range(inner):
            w = value(f"w{b}_{i}", size // 10, fixed=True)
            y = value(f"conv{b}_{i}", size)
            tasks.append(Task(f"conv{b}_{i}", "conv", (h, w), (y,), workspace=size // 5, seconds=10))
            tape.append(("conv", (h, w, y)))
            r = value(f"relu{b}_{i}", size)
            tasks.append(Task(f"relu{b}_{i}", "relu", (y,), (r,), ((r, y),), seconds=1, cheap=True))
            tape.append(("relu", (y, r)))
            h = r
        if shortcut:
            s = value(f"sum{b}", size)
            tasks.append(
                Task(f"sum{b}", "add", (start, h), (s,), ((s, start), (s, h)), seconds=1, cheap=True)
            )
            tape.append(("add", (start, h, s)))
            h = s
    num_forward = len(tasks)
    d = {h: value("d_head", size)}
    loss = value("loss", size, fixed=True)
    tasks.append(Task("loss", "loss", (h,), (loss,), seconds=1))
    num_forward += 1
    grads.append(Task("loss_backward", "loss", (loss,), (d[h],), seconds=1))

    def add(at: int, term: int) -> None:
        if at in d:
            total = gradient(at)
            grads.append(
                Task("grad_sum", "add", (d[at], term), (total,), ((total, d[at]), (total, term)), seconds=1)
            )
            d[at] = total
        else:
            d[at] = term

    for kind, entries in reversed(tape):
        if kind == "conv":
            x, w, y = entries
            dw = value(f"d_{values[w].name}", values[w].nbytes, fixed=not update)
            dx = gradient(x) if x else -1
            name = f"{values[y].name}_backward"
            grads.append(Task(name, "conv", (d[y], x, w), (dx, dw), workspace=size // 5, seconds=20))
            if x:
                add(x, dx)
            weights[w] = dw
        elif kind == "relu":
            x, y = entries
            dx = gradient(x)
            grads.append(
                Task(f"{values[y].name}_backward", "relu", (d[y], y), (dx,), ((dx, d[y]),), seconds=1)
            )
            add(x, dx)
        else:
            a, b2, y = entries
            if a:
                add(a, d[y])
            add(b2, d[y])
    if update:
        for w, dw in weights.items():
            grads.append(Task(f"{values[w].name}_update", "sgd", (w, dw), (), mutates=(w,), update=True))
    tasks += grads
    fixed = sum(v.nbytes for v in values if v.fixed)
    return Problem(tuple(_prune(tasks)), tuple(values), num_forward, {"arguments": fixed})


def _prune(tasks: list[Task]) -> list[Task]:
    """Outputs that nobody reads become -1, but keep at least what is fixed."""
    return tasks


def random_problem(seed: int, forward: int = 12) -> Problem:
    """A random differentiable-looking DAG with in-place options, workspaces, cheap tasks, updates."""
    rng = np.random.default_rng(seed)
    values: list[Value] = [Value("data", 640, fixed=True)]
    sizes = [64, 128, 128, 256, 640]
    tasks: list[Task] = []
    weights: list[int] = []
    records = []
    live = [0]
    for t in range(forward):
        n = int(rng.integers(1, min(3, len(live)) + 1))
        ins = [int(v) for v in rng.choice(live[-6:], size=min(n, len(live[-6:])), replace=False)]
        if rng.random() < 0.4:
            values.append(Value(f"w{t}", 64, fixed=True))
            weights.append(len(values) - 1)
            ins.append(weights[-1])
        outs = []
        for k in range(1 + (rng.random() < 0.2)):
            values.append(Value(f"v{t}_{k}", int(rng.choice(sizes)), fixed=False))
            outs.append(len(values) - 1)
        pairs = tuple((outs[0], i) for i in ins if not values[i].fixed and rng.random() < 0.6)
        tasks.append(
            Task(
                f"f{t}", "op", tuple(ins), tuple(outs), pairs,
                workspace=int(rng.choice([0, 0, 100])), seconds=float(rng.integers(1, 9)),
                recomputable=bool(rng.random() < 0.9), cheap=bool(rng.random() < 0.5),
            )
        )  # fmt: skip
        records.append((ins, outs))
        live += outs
    used = {v for t in tasks for v in t.inputs}
    heads = [v for v in range(1, len(values)) if v not in used and not values[v].fixed]
    num_forward = len(tasks)
    d: dict[int, int] = {}
    for t in range(forward - 1, -1, -1):
        ins, outs = records[t]
        needs = [d[o] for o in outs if o in d]
        if not needs and not any(o in heads for o in outs):
            continue
        needs += [v for v in (*ins, *outs) if rng.random() < 0.5 or v in heads]
        made, pairs = [], []
        for v in ins:
            if v == 0:
                continue
            fixed = v in weights and rng.random() < 0.5
            values.append(Value(f"d{v}_{t}", values[v].nbytes, fixed=fixed))
            g = len(values) - 1
            made.append((v, g))
            pairs += [(g, n) for n in needs if not values[n].fixed and not fixed and rng.random() < 0.3]
        if not made:
            continue
        tasks.append(
            Task(f"b{t}", "grad", tuple(dict.fromkeys(needs)), tuple(g for _, g in made), tuple(pairs),
                 workspace=int(rng.choice([0, 64])), seconds=2.0, recomputable=False)
        )  # fmt: skip
        for v, g in made:
            if v in weights:
                if not values[g].fixed:
                    tasks.append(Task(f"u{v}", "sgd", (v, g), (), mutates=(v,), update=True, seconds=1.0))
            elif v in d:
                values.append(Value(f"s{v}_{t}", values[v].nbytes))
                s = len(values) - 1
                tasks.append(
                    Task(f"s{v}_{t}", "add", (d[v], g), (s,), ((s, d[v]), (s, g)), recomputable=False)
                )
                d[v] = s
            else:
                d[v] = g
    read = {v for t in tasks for v in t.inputs}
    tasks = [
        Task(**{**{f: getattr(t, f) for f in Task.__slots__},
                "outputs": tuple(v if v in read or values[v].fixed else -1 for v in t.outputs)})
        for t in tasks
    ]  # fmt: skip
    fixed = sum(v.nbytes for v in values if v.fixed)
    return Problem(tuple(tasks), tuple(values), num_forward, {"arguments": fixed})


def busy_problem(seed: int, forward: int = 12) -> Problem:
    """As `random_problem`, with what is rare: states that backward writes and forward reads, outputs of the
    user's in the middle, outputs that each run makes, inputs read twice, updates of several gradients with
    scratch, updates that share a weight, one donor for two outputs, empty values.
    """
    rng = np.random.default_rng([seed, 1])
    plain = random_problem(seed, forward)
    values, tasks = list(plain.values), list(plain.tasks)
    n = plain.num_forward

    def value(name: str, nbytes: int, fixed: bool = False) -> int:
        values.append(Value(name, nbytes, fixed))
        return len(values) - 1

    states = [value(f"state{i}", 64, True) for i in range(3)]
    shared = value("shared", 64, True)
    gradients = [
        v for t in tasks[n:] if not t.update for v in t.outputs if v >= 0 and not values[v].fixed
    ]  # fmt: skip
    for at, t in enumerate(tasks):
        change: dict[str, object] = {}
        arena = [v for v in t.inputs if not values[v].fixed]
        outs, inputs, pairs = t.outputs, t.inputs, t.in_place
        if not t.update and rng.random() < 0.3:
            # More outputs of the size of an input, each allowed to take its place.
            more = tuple(
                value(f"{t.name}+{i}", values[arena[0]].nbytes)
                for i in range(2)
                if arena and rng.random() < 0.6
            )
            pairs = (*((v, arena[0]) for v in more), *pairs)
            if more and rng.random() < 0.5:
                pairs = pairs[::-1]
            outs = (*outs, *more)
            change["always"] = tuple(v for v in more if rng.random() < 0.7)
            if at < n and more:
                reader = int(rng.integers(at + 1, len(tasks)))
                if not tasks[reader].update:
                    r = tasks[reader]
                    tasks[reader] = replace(r, inputs=(*r.inputs, more[0]))
        if at < n:
            if rng.random() < 0.3:
                inputs = (*inputs, int(rng.choice(states)))
            if rng.random() < 0.3:
                inputs = (*inputs, shared)
            if rng.random() < 0.1:
                change["mutates"] = (states[2],)
            if rng.random() < 0.1:
                outs = (*outs, value(f"{t.name} output", 64, True))
            if arena and rng.random() < 0.1:
                inputs = (*inputs, arena[0])
        elif not t.update:
            if rng.random() < 0.2:
                change["mutates"] = (states[int(rng.integers(0, 2))],)
            if rng.random() < 0.2:
                inputs = (*inputs, int(rng.choice([*states, shared])))
        elif rng.random() < 0.5:
            change["workspace"] = int(rng.integers(1, 500))
        tasks[at] = replace(t, inputs=inputs, outputs=outs, in_place=pairs, **change)
    for i in range(int(rng.integers(0, 4)) if gradients else 0):
        some = tuple(int(v) for v in rng.choice(gradients, size=min(2, len(gradients)), replace=False))
        tasks.append(
            Task(f"update{i}", "sgd", (shared, *some), (), mutates=(shared,),
                 workspace=int(rng.choice([0, 200])), update=True)
        )  # fmt: skip
    there = {v for t in tasks for v in (*t.inputs, *t.always)} | {i for i, v in enumerate(values) if v.fixed}
    tasks = [replace(t, outputs=tuple(v if v in there else -1 for v in t.outputs)) for t in tasks]
    values = [replace(v, nbytes=0) if not v.fixed and rng.random() < 0.02 else v for v in values]
    return Problem(tuple(tasks), tuple(values), n, plain.fixed_bytes)


def several_results(seed: int) -> Problem:
    """A few tasks with up to three results each: results of many sizes that may lie where inputs lay, in any
    order of preference, results that each run makes, that nobody reads, that are the user's, of no bytes;
    inputs read twice; scratch; some that run once; copies to the host, at times.
    """
    rng = random.Random(seed)
    values, tasks, arena = [Value("data", 640, True)], [], list[int]()
    forward = rng.randint(2, 4)
    for t in range(forward + rng.randint(1, 3)):
        ins = rng.sample(arena, min(len(arena), rng.randint(0, 3)))
        ins += [0] * (rng.random() < 0.3)
        if ins and rng.random() < 0.1:
            ins.append(ins[0])
        outs = []
        for k in range(rng.choice([1, 1, 2, 3])):
            like = rng.choice(ins) if ins and rng.random() < 0.6 else None
            nbytes = rng.choice([0, 64, 100, 128, 512, 1024]) if like is None else values[like].nbytes
            outs.append(len(values))
            values.append(Value(f"v{t}_{k}", nbytes, rng.random() < 0.07))
        pairs = [(o, i) for o in outs for i in dict.fromkeys(ins) if rng.random() < 0.5]
        rng.shuffle(pairs)
        arena += outs
        tasks.append(
            Task(
                f"t{t}", "op", tuple(ins), tuple(outs), tuple(pairs), workspace=rng.choice([0, 0, 70, 400]),
                seconds=float(rng.randint(1, 5)), recomputable=t < forward and rng.random() < 0.85,
                always=tuple(o for o in outs if rng.random() < 0.15),
            )
        )  # fmt: skip
    there = {v for t in tasks for v in (*t.inputs, *t.always)} | {i for i, v in enumerate(values) if v.fixed}
    tasks = [replace(t, outputs=tuple(v if v in there else -1 for v in t.outputs)) for t in tasks]
    host = HostLink() if seed % 5 == 0 else None
    return Problem(tuple(tasks), tuple(values), forward, {"arguments": 640}, host=host)
