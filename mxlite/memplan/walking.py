"""A schedule walked through in numbers: what `make_schedule` and `live_buffers` would say, and nothing kept.

In the part of Python that `compiled` understands. A schedule for mirror counts is emitted step by step,
updates are put between, copies of values get numbers of their own, and the bytes that begin and end at each
step are added up; everything that is decided on the way is decided as in schedule.py and liveness.py, whose
words are used here: a *copy* is a run of a task, 0 the first; an *instance* is a value made by one copy.

A table of rows is two arrays: row t of `reads` is reads[reads_at[t]], ... up to reads_at[t + 1].
"""

from __future__ import annotations

from .compiled import Ints


def ascend(rows: Ints, count: int, spare: Ints) -> int:
    """Sort the first `count` numbers. What is in order, or the other way round, takes one look at each."""
    i = 0
    j = count - 1
    if count > 1 and rows[0] > rows[j]:
        while i < j:
            k = rows[i]
            rows[i] = rows[j]
            rows[j] = k
            i += 1
            j -= 1
    width = 1
    while width < count:
        low = 0
        while low + width < count:
            middle = low + width
            high = middle + width
            if high > count:
                high = count
            if rows[middle - 1] > rows[middle]:
                i = low
                while i < middle:
                    spare[i] = rows[i]
                    i += 1
                i = low
                j = middle
                k = low
                while i < middle:
                    if j < high and rows[j] < spare[i]:
                        rows[k] = rows[j]
                        j += 1
                    else:
                        rows[k] = spare[i]
                        i += 1
                    k += 1
            low = high
        width += width
    return 0


def emit(
    forward: int,
    backward: Ints,
    num_backward: int,
    reads_at: Ints,
    reads: Ints,
    counts: Ints,
    runs: Ints,
    there: Ints,
    stamp: Ints,
    stack: Ints,
    missing: Ints,
    spare: Ints,
    task: Ints,
    copy: Ints,
) -> int:
    """The steps without updates, by task and copy; how many there are. `runs[t]`: how often t runs again."""
    t = 0
    while t < forward:
        task[t] = t
        copy[t] = 0
        runs[t] = 0
        stamp[t] = 0
        there[t] = 0
        if counts[t] <= 0:
            there[t] = 1
        t += 1
    steps = forward
    j = 0
    while j < num_backward:
        t = backward[j]
        j += 1
        top = 0
        found = 0
        i = reads_at[t]
        while i < reads_at[t + 1]:
            p = reads[i]
            if there[p] == 0 and stamp[p] != j:
                stamp[p] = j
                stack[top] = p
                top += 1
            i += 1
        while top > 0:
            top -= 1
            u = stack[top]
            missing[found] = u
            found += 1
            i = reads_at[u]
            while i < reads_at[u + 1]:
                p = reads[i]
                if there[p] == 0 and stamp[p] != j:
                    stamp[p] = j
                    stack[top] = p
                    top += 1
                i += 1
        ascend(missing, found, spare)
        i = 0
        while i < found:
            u = missing[i]
            runs[u] += 1
            if runs[u] >= counts[u]:
                there[u] = 1
            task[steps] = u
            copy[steps] = runs[u]
            steps += 1
            i += 1
        task[steps] = t
        copy[steps] = 0
        steps += 1
    return steps


def spare_late(
    forward: int,
    steps: int,
    task: Ints,
    copy: Ints,
    touched_at: Ints,
    touched: Ints,
    changed_at: Ints,
    changed: Ints,
    storage: int,
    is_changed: Ints,
    counts: Ints,
) -> int:
    """Set to 0 the counts of tasks whose copies read storage that backward has changed; how many."""
    i = 0
    while i < storage:
        is_changed[i] = 0
        i += 1
    late = 0
    s = forward
    while s < steps:
        t = task[s]
        if copy[s] > 0:
            i = touched_at[t]
            while i < touched_at[t + 1]:
                if is_changed[touched[i]] > 0 and counts[t] > 0:
                    counts[t] = 0
                    late += 1
                i += 1
        else:
            i = changed_at[t]
            while i < changed_at[t + 1]:
                is_changed[changed[i]] = 1
                i += 1
        s += 1
    return late


def put_updates(
    forward: int,
    tasks: int,
    steps: int,
    task: Ints,
    copy: Ints,
    updates: Ints,
    num_updates: int,
    made_at: Ints,
    made: Ints,
    touched_at: Ints,
    touched: Ints,
    changed_at: Ints,
    changed: Ints,
    storage: int,
    last_touch: Ints,
    place: Ints,
    behind: Ints,
    more: Ints,
    all_task: Ints,
    all_copy: Ints,
) -> int:
    """The steps with updates, in `all_task` and `all_copy`; how many there are.

    `behind[s]` is one more than the first update behind step s, `more[i]` than the next behind update i.
    """
    i = 0
    while i < storage:
        last_touch[i] = 0
        i += 1
    t = 0
    while t < tasks:
        place[t] = 0
        t += 1
    s = 0
    while s < steps:
        t = task[s]
        behind[s] = 0
        if copy[s] == 0:
            place[t] = s
        i = touched_at[t]
        while i < touched_at[t + 1]:
            last_touch[touched[i]] = s
            i += 1
        s += 1
    u = num_updates - 1
    while u >= 0:
        t = updates[u]
        at = 0
        if forward > 0:
            at = forward - 1
        i = made_at[u]
        while i < made_at[u + 1]:
            if place[made[i]] > at:
                at = place[made[i]]
            i += 1
        i = changed_at[t]
        while i < changed_at[t + 1]:
            if last_touch[changed[i]] > at:
                at = last_touch[changed[i]]
            i += 1
        more[u] = behind[at]
        behind[at] = u + 1
        u -= 1
    s = 0
    k = 0
    while s < steps:
        all_task[k] = task[s]
        all_copy[k] = copy[s]
        k += 1
        u = behind[s]
        while u > 0:
            all_task[k] = updates[u - 1]
            all_copy[k] = 0
            k += 1
            u = more[u - 1]
        s += 1
    return k


def read_last(
    values: int,
    steps: int,
    task: Ints,
    copy: Ints,
    inputs_at: Ints,
    inputs: Ints,
    outputs_at: Ints,
    outputs: Ints,
    newest: Ints,
    last: Ints,
    taken: Ints,
) -> int:
    """The step that reads each instance last, -1 if none does; how many instances there are.

    Copy 0 of value v is instance v; the others are numbered as they are made.
    """
    v = 0
    while v < values:
        newest[v] = v
        last[v] = -1
        taken[v] = 0
        v += 1
    instances = values
    s = 0
    while s < steps:
        t = task[s]
        i = inputs_at[t]
        while i < inputs_at[t + 1]:
            last[newest[inputs[i]]] = s
            i += 1
        if copy[s] > 0:
            i = outputs_at[t]
            while i < outputs_at[t + 1]:
                newest[outputs[i]] = instances
                last[instances] = -1
                taken[instances] = 0
                instances += 1
                i += 1
        s += 1
    return instances


def add_up(
    values: int,
    steps: int,
    task: Ints,
    copy: Ints,
    outputs_at: Ints,
    outputs: Ints,
    joins_at: Ints,
    join_place: Ints,
    join_donor: Ints,
    size: Ints,
    always: Ints,
    newest: Ints,
    last: Ints,
    taken: Ints,
    change: Ints,
) -> int:
    """What begins less what ends at each step, in bytes.

    `taken` is one more than the step at which an instance was written over, or over another one. One written
    over another begins a step later: the same sum as that of one buffer for both.
    """
    v = 0
    while v < values:
        newest[v] = v
        v += 1
    s = 0
    while s <= steps + 1:
        change[s] = 0
        s += 1
    instances = values
    s = 0
    while s < steps:
        t = task[s]
        first = outputs_at[t]
        i = joins_at[t]
        while i < joins_at[t + 1]:
            v = outputs[first + join_place[i]]
            o = v
            if copy[s] > 0:
                o = instances + join_place[i]
            d = newest[join_donor[i]]
            if last[d] == s and (last[o] >= 0 or always[v] > 0) and taken[o] != s + 1 and taken[d] != s + 1:
                taken[o] = s + 1
                taken[d] = s + 1
            i += 1
        i = first
        while i < outputs_at[t + 1]:
            v = outputs[i]
            o = v
            if copy[s] > 0:
                o = instances
                instances += 1
                newest[v] = o
            if last[o] >= 0 or always[v] > 0:
                end = last[o] + 1
                if end <= s:
                    end = s + 1
                begin = s
                if taken[o] == s + 1:
                    begin = s + 1
                change[begin] += size[v]
                change[end] -= size[v]
            i += 1
        s += 1
    return 0


def fullest(
    forward: int,
    stages: int,
    steps: int,
    task: Ints,
    copy: Ints,
    is_update: Ints,
    scratch: Ints,
    change: Ints,
    peaks: Ints,
) -> int:
    """The most live bytes of all, and in `peaks` of each stage.

    Stages are forward tasks, and backward tasks with all that runs again for them, and with the updates
    behind the one before.
    """
    i = 0
    while i < stages:
        peaks[i] = 0
        i += 1
    most = 0
    live = 0
    stage = 0
    s = 0
    while s < steps:
        t = task[s]
        live += change[s]
        now = live + scratch[t]
        if now > most:
            most = now
        if now > peaks[stage]:
            peaks[stage] = now
        if copy[s] == 0 and is_update[t] == 0 and stage < stages - 1:
            stage += 1
        s += 1
    return most


def walk(
    forward: int,
    tasks: int,
    values: int,
    storage: int,
    num_backward: int,
    num_updates: int,
    stages: int,
    backward: Ints,
    updates: Ints,
    is_update: Ints,
    scratch: Ints,
    size: Ints,
    always: Ints,
    reads_at: Ints,
    reads: Ints,
    inputs_at: Ints,
    inputs: Ints,
    outputs_at: Ints,
    outputs: Ints,
    joins_at: Ints,
    join_place: Ints,
    join_donor: Ints,
    touched_at: Ints,
    touched: Ints,
    changed_at: Ints,
    changed: Ints,
    made_at: Ints,
    made: Ints,
    marks: Ints,
    places: Ints,
    there: Ints,
    stamp: Ints,
    stack: Ints,
    missing: Ints,
    spare: Ints,
    task: Ints,
    copy: Ints,
    behind: Ints,
    more: Ints,
    all_task: Ints,
    all_copy: Ints,
    newest: Ints,
    last: Ints,
    taken: Ints,
    change: Ints,
    counts: Ints,
    runs: Ints,
    peaks: Ints,
    found: Ints,
) -> int:
    """The most live bytes for `counts`, which become 0 where a copy would come too late.

    Fills `runs` and `peaks`; found[0] says how many counts became 0, found[1] how many steps there are.
    """
    found[0] = 0
    steps = 0
    late = 1
    while late > 0:
        steps = emit(
            forward,
            backward,
            num_backward,
            reads_at,
            reads,
            counts,
            runs,
            there,
            stamp,
            stack,
            missing,
            spare,
            task,
            copy,
        )
        late = 0
        if storage > 0:
            late = spare_late(
                forward,
                steps,
                task,
                copy,
                touched_at,
                touched,
                changed_at,
                changed,
                storage,
                marks,
                counts,
            )
        found[0] += late
    steps = put_updates(
        forward,
        tasks,
        steps,
        task,
        copy,
        updates,
        num_updates,
        made_at,
        made,
        touched_at,
        touched,
        changed_at,
        changed,
        storage,
        marks,
        places,
        behind,
        more,
        all_task,
        all_copy,
    )
    found[1] = steps
    read_last(
        values,
        steps,
        all_task,
        all_copy,
        inputs_at,
        inputs,
        outputs_at,
        outputs,
        newest,
        last,
        taken,
    )
    add_up(
        values,
        steps,
        all_task,
        all_copy,
        outputs_at,
        outputs,
        joins_at,
        join_place,
        join_donor,
        size,
        always,
        newest,
        last,
        taken,
        change,
    )
    return fullest(forward, stages, steps, all_task, all_copy, is_update, scratch, change, peaks)


def walk_all(
    rows: int,
    with_stages: int,
    forward: int,
    tasks: int,
    values: int,
    storage: int,
    num_backward: int,
    num_updates: int,
    stages: int,
    backward: Ints,
    updates: Ints,
    is_update: Ints,
    scratch: Ints,
    size: Ints,
    always: Ints,
    reads_at: Ints,
    reads: Ints,
    inputs_at: Ints,
    inputs: Ints,
    outputs_at: Ints,
    outputs: Ints,
    joins_at: Ints,
    join_place: Ints,
    join_donor: Ints,
    touched_at: Ints,
    touched: Ints,
    changed_at: Ints,
    changed: Ints,
    made_at: Ints,
    made: Ints,
    marks: Ints,
    places: Ints,
    there: Ints,
    stamp: Ints,
    stack: Ints,
    missing: Ints,
    spare: Ints,
    task: Ints,
    copy: Ints,
    behind: Ints,
    more: Ints,
    all_task: Ints,
    all_copy: Ints,
    newest: Ints,
    last: Ints,
    taken: Ints,
    change: Ints,
    counts: Ints,
    runs: Ints,
    peaks: Ints,
    found: Ints,
    all_counts: Ints,
    all_runs: Ints,
    all_peaks: Ints,
    most: Ints,
    late: Ints,
) -> int:
    """`walk` for each row of counts (rows, forward): `most` bytes, `late` counts, runs (rows, forward), and
    peaks (rows, stages) if they are wanted.
    """
    row = 0
    while row < rows:
        at = row * forward
        i = 0
        while i < forward:
            counts[i] = all_counts[at + i]
            i += 1
        most[row] = walk(
            forward,
            tasks,
            values,
            storage,
            num_backward,
            num_updates,
            stages,
            backward,
            updates,
            is_update,
            scratch,
            size,
            always,
            reads_at,
            reads,
            inputs_at,
            inputs,
            outputs_at,
            outputs,
            joins_at,
            join_place,
            join_donor,
            touched_at,
            touched,
            changed_at,
            changed,
            made_at,
            made,
            marks,
            places,
            there,
            stamp,
            stack,
            missing,
            spare,
            task,
            copy,
            behind,
            more,
            all_task,
            all_copy,
            newest,
            last,
            taken,
            change,
            counts,
            runs,
            peaks,
            found,
        )
        late[row] = found[0]
        i = 0
        while i < forward:
            all_runs[at + i] = runs[i]
            i += 1
        if with_stages > 0:
            at = row * stages
            i = 0
            while i < stages:
                all_peaks[at + i] = peaks[i]
                i += 1
        row += 1
    return 0


PARTS = (ascend, emit, spare_late, put_updates, read_last, add_up, fullest, walk, walk_all)
"""What `compiled` takes: each before its callers."""
