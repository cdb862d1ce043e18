"""Two-level Schwarz attention whose subdomains attend by functional maps."""

import os
import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

import opjax
from opjax import schwarz
from opjax.nn.attention import (
    FunctionalAttention, HeadMaps, LearnedBasis, head_basis, map_heads, merge_heads, split_heads)
from opjax.schwarz import Cover
VAR=os.environ.get('VAR','perhead')

class FunctionalSchwarzAttention(nnx.Module):
    def __init__(self, features, *, num_heads, coarse=True, rngs, **options):
        self.local = FunctionalAttention(features, num_heads=num_heads, rngs=rngs, **options)
        self.h=num_heads
        self.coarse = HeadMaps(self.local.query.in_features, ridge_logit=0.0, rngs=rngs) if coarse else None

    def __call__(self, x, *, cover, coarse_space=None, basis=None, quadrature_weights=None):
        w = jnp.ones(len(x), x.dtype) if quadrature_weights is None else quadrature_weights
        local_w = jnp.asarray(cover.weights).astype(w.dtype) * w[jnp.asarray(cover.indices)]
        d = self.local.query.in_features
        h=self.h
        f, kernel, bias = self.local.choose_basis(basis).point_inputs(x)
        hs=split_heads(f,2*h); values, scores=hs[:h],hs[h:]
        if 'bar' in VAR: f=jax.lax.optimization_barrier(f)
        if coarse_space is not None:
            coarse_w = schwarz.coarse_restrict(coarse_space, w[:, None])[:, 0]
            support = jnp.where(jnp.asarray(coarse_space.weights) > 0, w[jnp.asarray(coarse_space.indices)], 0)
            functions = jnp.asarray(coarse_space.weights).astype(f.dtype)[..., None]
            def mean(f, phi, w):
                return opjax.project(f, phi, quadrature_weights=w, method="mean")
            if VAR.endswith('loop'):
                f0 = jax.lax.map(lambda a: mean(f[a[0]], a[1], a[2]), (jnp.asarray(coarse_space.indices), functions, support))[:, 0]
            else:
                f0 = jax.vmap(mean)(schwarz.restrict(coarse_space, f), functions, support)[:, 0]
            v0, s0 = split_heads(f0[:, :d*h], h), split_heads(f0[:, d*h:], h)
            y0 = jax.vmap(lambda v, s, k, b: self.coarse.attend(v, head_basis(s, k, b), coarse_w))(v0, s0, kernel, bias)
            y0 = schwarz.coarse_prolong(coarse_space, merge_heads(y0))

        if VAR.startswith('inside'):
            def local(weights, f):
                def head(v, s, k, b):
                    return self.local.attend(v, head_basis(s, k, b), weights)
                hs = split_heads(f, 2*h)
                return merge_heads(map_heads(jax.checkpoint(head), hs[:h], hs[h:], kernel, bias))
            y = schwarz.additive(local, cover, f, local_w, weighting='restricted')
        else:
            def head(values, scores, kernel, bias):
                def local(weights, f):
                    return self.local.attend(f[:, :d], head_basis(f[:, d:], kernel, bias), weights)
                f = jnp.concatenate([values, scores], 1)
                return schwarz.additive(local, cover, f, local_w, weighting="restricted")
            y = merge_heads(map_heads(jax.checkpoint(head), values, scores, kernel, bias))
        if coarse_space is not None: y = y + y0
        return self.local.out(checkpoint_name(y, "attended"))
