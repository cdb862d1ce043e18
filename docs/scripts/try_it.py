"""Adds ONNX Runtime and the operator to the page "Try it" of the documentation.

    python docs/scripts/try_it.py [OUTPUT]

Fetches onnxruntime-web with npm and writes docs/try/runtime.js, 6 MB, which git
ignores. Build the documentation afterwards. A page that is opened from a file may not
fetch other files, so this script contains everything: ONNX Runtime, its WebAssembly and
docs/try/operator.onnx.
"""

import base64
import gzip
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "try"
VERSION = "1.30.0"
SHA256 = "d2228df7e4616bc3348bf504ee888f3bec43789a273f0a63f3e68d203ce3bf71"


def runtime(package: Path, operator: bytes) -> str:
    """The script: `tryRuntime` with the parts of a package of npm, and an operator."""
    content = package.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise ValueError(
            f"npm's onnxruntime-web {VERSION} has another SHA-256 than {SHA256}."
        )
    with tarfile.open(package) as archive:

        def member(name: str) -> bytes:
            file = archive.extractfile(f"package/dist/{name}")
            assert file is not None
            return file.read()

        source = member("ort.wasm.bundle.min.mjs").decode().partition("\n//# source")[0]
        wasm = gzip.compress(member("ort-wasm-simd-threaded.wasm"), mtime=0)
    parts = {
        "ort": source,
        "wasm": base64.b64encode(wasm).decode(),
        "operator": base64.b64encode(operator).decode(),
    }
    licence = f"/* onnxruntime-web {VERSION}, MIT, Copyright (c) Microsoft */\n"
    return f"{licence}globalThis.tryRuntime = {json.dumps(parts)};\n"


def main(output: str = str(FOLDER / "runtime.js")) -> None:
    """Writes the script to a file."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--loglevel=error", f"onnxruntime-web@{VERSION}"]
        subprocess.run(command, cwd=folder, check=True)
        (package,) = Path(folder).glob("*.tgz")
        script = runtime(package, (FOLDER / "operator.onnx").read_bytes())
    Path(output).write_text(script)
    print(f"{output}: {len(script) / 1e6:.1f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
