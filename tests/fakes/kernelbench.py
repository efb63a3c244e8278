"""A checkout in KernelBench's form, of small problems written for the tests: one for each way to go."""

from __future__ import annotations

from pathlib import Path

_HEAD = "import torch\nimport torch.nn as nn\n\n"

_MODEL = """\
class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{given}]
"""


def problem(
    forward: str,
    inputs: str = "torch.rand(32, 16)",
    *,
    arguments: str = "x",
    init: str = "pass",
    parameters: str = "",
    given: str = "",
) -> str:
    """The source of a problem."""
    return _HEAD + _MODEL.format(**locals())


# A constant called `scale` is here because a task's reference.py may define a function of that name.
SCALED_LINEAR = (
    problem(
        "return self.fc(x) * factor",
        "torch.rand(32, 16) - 0.5, 1.5",
        arguments="x, factor",
        init="self.fc = nn.Linear(width, 8)",
        parameters=", width",
        given="16",
    )
    + "\n\nscale = 3\n"
)

PROBLEMS: dict[str, str] = {
    "1_Scaled_linear": SCALED_LINEAR,
    "2_Copy": problem("return x.clone()"),
    "3_Dropout": problem("return self.drop(x)", init="self.drop = nn.Dropout(0.5)"),
    "4_BatchNorm": problem("return self.bn(x) * self.bn.weight", init="self.bn = nn.BatchNorm1d(16)"),
    "5_Dead": problem("return torch.relu(x - 2).sum(1)"),
    "6_Huge": problem("return torch.tanh(x - 0.5)", "torch.rand(1 << 16, 1 << 20)"),
    "16_Huge_row": problem("return torch.tanh(x - 0.5)", "torch.rand(4, 1 << 32)"),
    "17_ReLU": problem("return torch.relu(x)"),
    "18_Huge_loss": problem("return ((x - 0.5) ** 2).mean()", "torch.rand(1 << 16, 1 << 14)"),
    "19_Huge_mean": problem("return x - x.mean(0)", "torch.rand(1 << 16, 1 << 14)"),
    "20_Square": problem("return x @ y", "torch.rand(8192, 8192), torch.rand(8192, 8192)", arguments="x, y"),
    "21_GRU": problem(
        "return self.gru(x)[0]",
        "torch.rand(2, 500, 8)",
        init="self.gru = nn.GRU(8, 16, 3, batch_first=True, bidirectional=True)",
    ),
    "7_Dictionary": problem("return {'x': x}"),
    "8_Needs_a_module": "import no_such_module\n" + problem("return x"),
    "9_In_place": problem("return x.mul_(2)"),
    "10_Hidden_state": problem("return x + self.h", init="self.h = torch.randn(16)"),
    "11_Two_outputs": problem("return torch.sort(x, dim=1)"),
    "12_Mean_of_many": problem("return (1 + x / 100).mean()", "torch.rand(1 << 18)"),
    "13_Not_a_number": problem("return torch.log(x - 0.5)"),
    "14_Dies": "import os\nos.kill(os.getpid(), 9)\n" + problem("return x"),
    "15_Library_names": problem("return x * 2 + 1") + "\n\ntruth = library = compare = 1\n",
    "22_Loss": problem("return ((x - 0.7) ** 2).mean()"),
}


def write_checkout(root: Path, names: tuple[str, ...] = tuple(PROBLEMS)) -> Path:
    """A checkout below `root` with the problems of those names, all of level 1."""
    folder = root / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.py").write_text(PROBLEMS[name])
    return root
