"""Train a very deep residual network on real images inside a memory budget you name.

    python examples/train_resnet.py --depth 1001 --budget 32MiB

The plan is made, and printed, before anything is allocated: if training does not fit, this is where you
learn it, with a budget that would do. Then it trains, and at the end planned and measured bytes stand
side by side. Ctrl-C stops cleanly; `--resume` goes on from there.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time

import numpy as np

import mxlite as mx


def preactivation_resnet(depth: int, width: int, classes: int) -> mx.sym.Symbol:
    """Bottleneck ResNet of `depth` = 9n + 2 layers, three stages of n blocks of `width`, 2 and 4 times
    `width`.

    K. He, X. Zhang, S. Ren, J. Sun 2016, "Identity mappings in deep residual networks".
    """
    if depth < 11 or (depth - 2) % 9:
        near = 9 * max(1, round((depth - 2) / 9)) + 2
        raise SystemExit(f"--depth must be 9n + 2 (11, 20, ... 1001), got {depth}; {near} is near.")

    def norm(data: mx.sym.Symbol, name: str) -> mx.sym.Symbol:
        data = mx.sym.BatchNorm(data, fix_gamma=False, eps=2e-5, momentum=0.9, name=f"{name}_bn")
        return mx.sym.Activation(data, act_type="relu", name=f"{name}_relu")

    def conv(data: mx.sym.Symbol, filters: int, kernel: int, name: str, stride: int = 1) -> mx.sym.Symbol:
        return mx.sym.Convolution(
            data, num_filter=filters, kernel=(kernel, kernel), stride=(stride, stride),
            pad=(kernel // 2, kernel // 2), no_bias=True, name=f"{name}_conv",
        )  # fmt: skip

    data = conv(mx.sym.Variable("data"), width, 3, "stem")
    for stage in range(3):
        filters = width << stage
        for block in range((depth - 2) // 9):
            name = f"stage{stage + 1}_block{block + 1}"
            first = block == 0
            act = norm(data, f"{name}_a")
            out = conv(act, filters // 4, 1, f"{name}_a")
            out = conv(norm(out, f"{name}_b"), filters // 4, 3, f"{name}_b", 2 if first and stage else 1)
            out = conv(norm(out, f"{name}_c"), filters, 1, f"{name}_c")
            data = out + (conv(act, filters, 1, f"{name}_skip", 2 if stage else 1) if first else data)
    data = mx.sym.Pooling(norm(data, "head"), global_pool=True, kernel=(1, 1), pool_type="avg", name="pool")
    data = mx.sym.FullyConnected(mx.sym.Flatten(data), num_hidden=classes, name="fc")
    return mx.sym.SoftmaxOutput(data, name="softmax")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--depth", type=int, default=1001, help="layers, 9n + 2 (default 1001)")
    parser.add_argument("--budget", default="32MiB", help="bytes for everything, or 'none' (default 32MiB)")
    parser.add_argument("--dataset", choices=("digits", "fashion-mnist"), default="digits")
    parser.add_argument("--data-path", help="folder with Fashion-MNIST's four files")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, default=32, help="channels of the first stage (default 32)")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05, help="peak learning rate (default 0.05)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prefix", default="checkpoints/resnet", help="name of the files it writes")
    parser.add_argument("--resume", action="store_true", help="continue where an earlier run stopped")
    parser.add_argument("--save-plan", metavar="FILE", help="write the plan as one HTML page")
    args = parser.parse_args()
    for name, value in vars(args).items():
        if type(value) is int and value < 1 and name != "seed":
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    try:
        mx.parse_bytes("1" if args.budget.lower() == "none" else args.budget)
    except mx.BudgetError as error:
        parser.error(str(error))
    return args


def main() -> int:
    args = arguments()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    mx.random.seed(args.seed)
    np.random.seed(args.seed)
    budget = None if args.budget.lower() == "none" else args.budget
    if args.dataset == "digits":
        train_x, train_y, test_x, test_y = mx.io.load_digits()
    else:
        train_x, train_y, test_x, test_y = mx.io.load_fashion_mnist(args.data_path)
    train = mx.io.NDArrayIter(train_x, train_y, args.batch_size, shuffle=True)
    test = mx.io.NDArrayIter(test_x, test_y, args.batch_size)
    batches = -(-len(train_x) // args.batch_size)

    net = preactivation_resnet(args.depth, args.width, int(train_y.max()) + 1)
    updates = args.epochs * batches
    schedule = mx.lr_scheduler.CosineScheduler(
        max_update=updates,
        base_lr=args.lr,
        final_lr=0.0,
        warmup_steps=min(batches, updates // 4),
        warmup_begin_lr=0.0,
    )
    optimizer = mx.optimizer.SGD(
        learning_rate=args.lr, lr_scheduler=schedule, momentum=0.9, wd=1e-4, rescale_grad=1.0 /
        args.batch_size, sym=net,
    )  # fmt: skip

    started = time.perf_counter()
    try:
        plan = net.memory_plan(
            mx.cpu(), memory_budget=budget, optimizer=optimizer,
            data=(args.batch_size, *train_x.shape[1:]), softmax_label=(args.batch_size,),
        )  # fmt: skip
    except mx.MemoryBudgetError as error:
        print(error, file=sys.stderr)
        return 3
    print(
        f"ResNet-{args.depth} on {args.dataset}: {len(train_x)} images to learn from, {len(test_x)} held out"
    )
    print(plan.summary())
    print(f"Planned in {time.perf_counter() - started:.1f} s.", flush=True)
    if args.save_plan:
        plan.to_html(args.save_plan)

    os.makedirs(os.path.dirname(args.prefix) or ".", exist_ok=True)
    module = mx.mod.Module(net, context=mx.cpu(), memory_budget=budget)
    progress = mx.mod.TqdmProgress(
        args.batch_size, total=batches, num_epoch=args.epochs, peak_bytes=plan.peak_bytes
    )
    try:
        module.fit(
            train,
            eval_data=test,
            eval_metric=["acc", "ce"],
            validation_metric="acc",
            optimizer=optimizer,
            initializer=mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2),
            num_epoch=args.epochs,
            batch_end_callback=progress,
            epoch_end_callback=progress,
            checkpoint_prefix=args.prefix,
            resume=args.resume,
        )
    except KeyboardInterrupt:
        progress.close()
        print(f"Stopped; continue with --resume. State is in {args.prefix}.resume.")
        return 130
    progress.close()

    module.save_checkpoint(args.prefix, args.epochs)
    # predict leaves out the rows that fill up the last batch; the metric above counts them, as in MXNet
    accuracy = float((module.predict(test).asnumpy().argmax(axis=1) == test_y).mean())
    measured = module.measured_bytes
    print(f"Held-out accuracy: {100 * accuracy:.2f} %")
    print(f"Planned peak:  {module.memory_plan.peak_bytes:>12,} bytes")
    print(f"Measured peak: {measured:>12,} bytes (all arrays and the arena)")
    if budget is not None:
        print(f"Budget:        {mx.parse_bytes(budget):>12,} bytes")
    return 0 if measured == module.memory_plan.peak_bytes else 1


if __name__ == "__main__":
    sys.exit(main())
