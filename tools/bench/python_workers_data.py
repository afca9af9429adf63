"""The dataset of python_workers.py, in its own module because workers import the module of their dataset."""

import os

import torch
import torch.utils.data
import torchvision  # noqa: F401 (what workers that load pictures import)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.tensor([index, os.getpid()])
