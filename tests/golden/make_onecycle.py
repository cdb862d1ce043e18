"""Writes onecycle.npz: 50 steps of torch's AdamW + OneCycleLR + clip_grad_norm_.

Run with torch installed: `python tests/golden/make_onecycle.py`. The objective is
0.5 |A x - t_i|^2 + sum(cos(3 b)) with a target that changes every step.
"""

import pathlib

import numpy as np
import torch


def trajectory(matrix, targets, start, *, clip, options):
    x, b = (torch.tensor(v, requires_grad=True) for v in start)
    optimizer = torch.optim.AdamW([x, b], lr=1.0, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, total_steps=len(targets), **options
    )
    rows = []
    for target in torch.tensor(targets):
        group = optimizer.param_groups[0]
        rate, beta = group["lr"], group["betas"][0]
        optimizer.zero_grad()
        residual = torch.tensor(matrix) @ x - target
        loss = 0.5 * (residual**2).sum() + torch.cos(3 * b).sum()
        loss.backward()
        limit = float("inf") if clip is None else clip
        norm = torch.nn.utils.clip_grad_norm_([x, b], limit)
        optimizer.step()
        schedule.step() if len(rows) + 1 < len(targets) else None
        rows.append([rate, beta, loss.item(), norm.item(), *x.tolist(), *b.tolist()])
    return np.array(rows)


def main():
    rng = np.random.default_rng(0)
    matrix, targets = rng.normal(size=(4, 3)), rng.normal(size=(50, 4))
    start = rng.normal(size=3), rng.normal(size=2)
    options = {"max_lr": 0.05}
    late = {"max_lr": 0.1, "pct_start": 0.1, "div_factor": 1e4, "final_div_factor": 1e3}
    np.savez_compressed(
        pathlib.Path(__file__).with_name("onecycle.npz"),
        matrix=matrix,
        targets=targets,
        x=start[0],
        b=start[1],
        clipped=trajectory(matrix, targets, start, clip=1.0, options=options),
        fixed=trajectory(
            matrix, targets, start, clip=None, options=late | {"cycle_momentum": False}
        ),
    )


if __name__ == "__main__":
    main()
