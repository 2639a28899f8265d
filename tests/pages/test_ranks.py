"""Same seed, other device, on several GPUs: what each process of a distributed training draws, and what DDP copies."""

import inspect
import multiprocessing

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel


def drawn_on(rank, store):
    """In a process of its own: the parameters after DDP has wrapped them, then dropout and noise with two seeds."""
    torch.manual_seed(rank)
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    found = [DistributedDataParallel(torch.nn.Linear(4, 3)).module.weight]
    for seed in (0, rank):
        torch.manual_seed(seed)
        found += [F.dropout(torch.ones(40), 0.5), torch.randn(40)]
    torch.distributed.destroy_process_group()
    return [tensor.tolist() for tensor in found]


@pytest.mark.usefixtures("on_the_cpu")
def test_ddp_copies_the_parameters_of_rank_0_and_one_seed_drops_the_same_everywhere(tmp_path):
    ranks = [(rank, tmp_path / "store") for rank in range(2)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        first, second = pool.starmap(drawn_on, ranks, chunksize=1)
    assert [ours == theirs for ours, theirs in zip(first, second, strict=True)] == [True, True, True, False, False]


def test_fsdp_copies_no_parameters_by_itself():
    assert inspect.signature(FullyShardedDataParallel).parameters["sync_module_states"].default is False
