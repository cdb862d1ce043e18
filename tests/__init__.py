"""Tests; importing them, which comes before JAX starts, sets how programs compile."""

import importlib.metadata
import os

# Nearly all of the time goes into compiling small programs, so compile quickly: without
# optimisations of machine code, a third of the time. Later versions may not know the
# flags that are not of all of XLA, and then end the process.
_FLAGS = ["--xla_backend_optimization_level=0"]
if importlib.metadata.version("jaxlib").startswith("0.10."):
    _FLAGS += [
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    ]
os.environ.setdefault("XLA_FLAGS", " ".join(_FLAGS))

# A process for every core, and one thread for each process: threads of several
# processes would wait for each other, those of BLAS by counting: 3 s become 200.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("NPROC", "1")
