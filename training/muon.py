"""Muon for the matrices of the layers, and AdamW for all other weights.

`torch.optim.Muon` supports neither other weights nor stacks of experts. It computes in bfloat16, one matrix after the
other. On a CPU without bfloat16 instructions, this takes 30 times as long as computing all matrices of a shape at once
in float32.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor

# The coefficients a, b and c of X <- a X + (b A + c A A) X, where A = X X^T, in the first four iterations of Polar
# Express.
_POLAR_EXPRESS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
)
_MOMENTUM = 0.95
_MATRIX = re.compile(r"\.layers\..*proj(\.weight)?$")


def layer_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Return the matrices of a Weft model that Muon trains: those of attention, feed-forward networks and experts."""
    return [parameter for name, parameter in model.named_parameters() if _MATRIX.search(name)]


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Orthogonalize matrices by four iterations of Polar Express (Amsel et al. 2025, arXiv:2505.16932).

    The singular vectors are kept, and the singular values become nearly 1.

    Args:
        matrices (`torch.Tensor` of shape `(n, rows, columns)`): the matrices, with at most as many rows as columns.

    Returns:
        `torch.Tensor` of shape `(n, rows, columns)`: the singular values are 0.44 to 1.56 if they were at least 0.002
        of the matrix's norm, and smaller otherwise.
    """
    result = matrices / (1.01 * matrices.norm(dim=(1, 2), keepdim=True)).clamp(min=1e-7)
    for a, b, c in _POLAR_EXPRESS:
        products = result @ result.mT
        products = torch.baddbmm(products, products, products, beta=b, alpha=c)
        result = torch.baddbmm(result, products, result, beta=a)
    return result


class Muon(torch.optim.AdamW):
    """Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) for matrices, and AdamW for all other
    weights.

    The update of a matrix is the Nesterov momentum of its gradient (0.95), made orthogonal and multiplied by
    0.2 sqrt(max(rows, columns)). It is thus as large as an update of AdamW (Liu et al. 2025, arXiv:2502.16982), so
    that both share the learning rate and the weight decay.

    Args:
        params: groups of parameters, as in `AdamW`.
        matrices: the parameters that Muon trains ([`layer_matrices`]): matrices, or stacks of them.
        **settings: other arguments of `AdamW`.

    Raises:
        ValueError: processes share a matrix.
    """

    def __init__(self, params: Iterable[dict[str, Any]], matrices: Iterable[nn.Parameter], **settings: Any):
        matrix_set, groups = set(matrices), []
        if any(isinstance(parameter, DTensor) for parameter in matrix_set):
            raise ValueError("Muon needs whole matrices, but this model is sharded over processes: leave --muon out.")
        for group in params:
            for is_matrix in (False, True):
                parameters = [parameter for parameter in group["params"] if (parameter in matrix_set) == is_matrix]
                groups.append({**group, "params": parameters, "is_matrix": is_matrix})
        super().__init__(groups, **settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all weights. The gradients of matrices are None afterwards."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            if group["is_matrix"]:
                self._step_matrices(group)
        super().step()  # it skips weights without a gradient
        return loss

    def _step_matrices(self, group: dict[str, Any]) -> None:
        matrices = [matrix for matrix in group["params"] if matrix.grad is not None]
        if not matrices:
            return
        gradients, momenta = [cast(torch.Tensor, matrix.grad) for matrix in matrices], []
        for matrix in matrices:
            state = self.state[matrix]
            if not state:  # named as in AdamW, which loads the state from a checkpoint
                state["step"], state["exp_avg"] = torch.tensor(0.0), torch.zeros_like(matrix)
            momenta.append(state["exp_avg"])
            matrix.grad = None
        # all at once, because a GPU would wait for the launches of so many small operations
        torch._foreach_lerp_(momenta, gradients, 1 - _MOMENTUM)
        shapes: dict[tuple[int, ...], list[tuple[nn.Parameter, torch.Tensor]]] = defaultdict(list)
        for matrix, update in zip(matrices, torch._foreach_lerp(gradients, momenta, _MOMENTUM), strict=True):
            update = update.mT if update.shape[-2] > update.shape[-1] else update
            shapes[update.shape[-2:]].append((matrix, update.reshape(-1, *update.shape[-2:])))
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        for shape, pairs in shapes.items():
            alike, updates = zip(*pairs, strict=True)
            together = torch.cat(updates).to(torch.bfloat16 if updates[0].is_cuda else torch.float32)
            parts = [
                (part.mT if matrix.shape[-2] > matrix.shape[-1] else part).reshape(matrix.shape).to(matrix.dtype)
                for matrix, part in zip(alike, orthogonal(together).split([*map(len, updates)]), strict=True)
            ]
            torch._foreach_add_(alike, parts, alpha=-group["lr"] * 0.2 * max(shape) ** 0.5)
