"""Data-parallel training with torch: each rank's loader has its share of the dataset and belongs to a group.

    torchrun --nproc_per_node 2 13_torch_ranks.py
    penstock launch --gpus host:2 -- python 13_torch_ranks.py

If the ranks' loaders differ (another seed, dataset or batch size), each rank fails at the start, with both values. When a rank is lost, the
next batch of every other one raises the first cause.
"""

import struct

import torch
from torch.utils.data import Dataset, DistributedSampler

import penstock
from penstock.torch import DataLoader


class Points(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """y = 3 x + 2, with noise that depends only on the point."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.Generator().manual_seed(index)
        x = torch.rand(1, generator=noise)
        y = torch.tensor([3 * float(x) + 2 + 0.01 * float(torch.randn(1, generator=noise))])
        return x, y


def main() -> None:
    with penstock.Group("program", agree={"epochs": 10}) as group:
        dataset = Points()
        sampler: DistributedSampler[tuple[torch.Tensor, torch.Tensor]] = DistributedSampler(
            dataset, num_replicas=group.world_size, rank=group.rank, seed=1
        )
        loader: DataLoader[tuple[torch.Tensor, torch.Tensor]] = DataLoader(
            dataset, batch_size=16, sampler=sampler, num_workers=1, group=True, name="train"
        )
        torch.manual_seed(0)
        model = torch.nn.Linear(1, 1)
        loss = torch.zeros(())
        for epoch in range(10):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x), y)
                weight, bias = torch.autograd.grad(loss, [model.weight, model.bias])
                # Fine for two numbers; for real models use torch.distributed's all_reduce.
                all_of_them = [struct.unpack("dd", each) for each in group.all_gather(struct.pack("dd", weight.item(), bias.item()))]
                with torch.no_grad():
                    model.weight -= 0.3 * sum(each[0] for each in all_of_them) / group.world_size
                    model.bias -= 0.3 * sum(each[1] for each in all_of_them) / group.world_size
        group.barrier()
        print(f"rank {group.rank} of {group.world_size}: y = {model.weight.item():.6f} x + {model.bias.item():.6f}, loss {loss.item():.4f}")


main()
