#!/usr/bin/env python3
"""Small ONNX models from PyTorch's exporters, and onnxruntime's results for them: tests/golden/onnx.

    python scripts/make_onnx_models.py

Needs torch 2.13, onnx, onnxscript and onnxruntime in its environment; the tests need none of these but onnx.
Each NAME.onnx has a NAME.npz next to it with its inputs and outputs. All numbers come from fixed seeds.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden" / "onnx"
LARGEST = 200_000  # bytes of a model


class Residual(nn.Module):
    """A basic block of ResNet-18: K. He et al., 2016, "Deep residual learning for image recognition"."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels != channels_in:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 with fewer channels: 4, 8, 12, 16 for 64, 128, 256, 512."""

    def __init__(self, widths: tuple[int, ...] = (4, 8, 12, 16), classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 7, 2, 3, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[nn.Module] = []
        before = widths[0]
        for i, width in enumerate(widths):
            blocks += [Residual(before, width, 1 if i == 0 else 2), Residual(width, width, 1)]
            before = width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(before, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class Transformer(nn.Module):
    """Token and position embeddings, an encoder of two layers, the mean over time, classes."""

    def __init__(self, words: int = 40, width: int = 16, heads: int = 4, longest: int = 12) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(1, longest, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, heads, 32, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classes = nn.Linear(width, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places[:, : tokens.shape[1]]
        return self.classes(self.encoder(x).mean(dim=1))


class Attention(nn.Module):
    """Causal self-attention written out, with views and transposes as in many models."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        hidden = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Lstm(nn.Module):
    """Two layers of bidirectional LSTM and a GRU over an embedded sequence, classes from the last step."""

    def __init__(self, words: int = 30, width: int = 8, hidden: int = 8) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.classes = nn.Linear(hidden, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out, _ = self.lstm(self.words(tokens))
        out, _ = self.gru(out)
        return self.classes(out[:, -1])


def models() -> dict[str, tuple[nn.Module, torch.Tensor, bool]]:
    """Name -> the module, an input, and whether the newer exporter (torch.export) writes the file."""
    torch.manual_seed(7)
    image = torch.randn(2, 3, 32, 32)
    tokens = torch.randint(0, 30, (3, 12))
    return {
        "resnet18": (ResNet18(), image, True),
        "resnet18-torchscript": (ResNet18(), image, False),
        "transformer": (Transformer(), tokens, True),
        "transformer-torchscript": (Transformer(), tokens, False),
        "attention": (Attention(), torch.randn(2, 6, 16), True),
        "attention-torchscript": (Attention(), torch.randn(2, 6, 16), False),
        "lstm": (Lstm(), tokens, True),
        "lstm-torchscript": (Lstm(), tokens, False),
    }


def settle(module: nn.Module, example: torch.Tensor) -> None:
    """Make all parameters (an exporter would merge equal ones) and averages differ from initial values."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.5 if parameter.dim() == 1 else 0.0, 0.2)
    module.train()
    with torch.no_grad():
        for _ in range(3):
            module(example)
    module.eval()


def strip(path: Path) -> None:
    """Remove what the exporter records about the machine and the program: stack traces, comments."""
    model = onnx.load(path)
    graph = model.graph
    for part in (
        model,
        graph,
        *graph.node,
        *graph.initializer,
        *graph.input,
        *graph.output,
        *graph.value_info,
    ):
        if hasattr(part, "metadata_props"):
            del part.metadata_props[:]
        part.ClearField("doc_string")
    onnx.checker.check_model(model)
    onnx.save(model, path)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (module, example, newer) in models().items():
        settle(module, example)
        path = FOLDER / f"{name}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # PRESERVE: in inference mode, but batch normalization is not folded into the convolution.
            older = dict(dynamo=False, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)
            kind = dict(dynamo=True, external_data=False, optimize=True) if newer else older
            dynamic = None if newer else {"input": {0: "batch"}, "output": {0: "batch"}}
            torch.onnx.export(
                module, (example,), str(path), input_names=["input"], output_names=["output"],
                dynamic_axes=dynamic, **kind,
            )  # fmt: skip
        strip(path)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (wanted,) = session.run(None, {"input": example.numpy()})
        with torch.no_grad():
            difference = np.abs(module(example).numpy() - wanted).max()
        size = path.stat().st_size
        print(f"{name}: {size} bytes, onnxruntime and PyTorch differ by {difference:.1e}")
        assert difference < 1e-5 and size < LARGEST
        np.savez_compressed(path.with_suffix(".npz"), input=example.numpy(), output=wanted)


if __name__ == "__main__":
    main()
