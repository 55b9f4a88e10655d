"""One process, or several that share every batch: Lightning Fabric with the processes that torchrun has started."""

from __future__ import annotations

import os
import sys
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from kitt.errors import MissingExtraError


class Processes(Protocol):
    """What the training loop needs to know about the other processes. The first process, of rank 0, writes the files."""

    rank: int
    world: int

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model with gradients averaged over the processes; all begin with the weights of the first."""

    def backward(self, loss: Tensor) -> None: ...

    def agree(self, value: Any) -> Any:
        """The value that the first process has."""

    def close(self) -> None: ...


class OneProcess:
    rank, world = 0, 1

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def agree(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        pass


class FabricProcesses:
    """Data-parallel on CPUs, over gloo."""

    def __init__(self, world: int) -> None:
        try:
            from lightning.fabric import Fabric
        except ImportError as error:
            raise MissingExtraError("lightning", None, "training in several processes") from error
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        if local == world and sys.platform == "linux":  # all processes run on this machine: use the loopback interface
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self.fabric = Fabric(accelerator="cpu", strategy="ddp", devices=local, num_nodes=world // local)
        self.fabric.launch()
        self.rank, self.world = self.fabric.global_rank, self.fabric.world_size

    def wrap(self, model: nn.Module) -> nn.Module:
        return self.fabric.setup_module(model)

    def backward(self, loss: Tensor) -> None:
        self.fabric.backward(loss)

    def agree(self, value: Any) -> Any:
        return self.fabric.broadcast(value)

    def close(self) -> None:
        self.fabric.barrier()  # the first process still writes, and the others must not exit before
        torch.distributed.destroy_process_group()


def processes() -> Processes:
    """The processes that torchrun has started, or this one alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return FabricProcesses(world) if world > 1 else OneProcess()
