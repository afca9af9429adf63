"""The dataset of python_workers.py: a module, so that workers import what it imports."""

import os

import torch
import torch.utils.data
import torchvision  # noqa: F401 (what workers that load pictures import)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.tensor([index, os.getpid()])
