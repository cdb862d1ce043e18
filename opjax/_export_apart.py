"""A process that parses an exported operator before the main process does.

    python _export_apart.py <seconds> <bytes of memory>  < operator

XLA's parser trusts its input: a malicious operator may crash the process or hang it.
Then only this process ends. It prints an empty line on success, or otherwise the
reason, and exits with status 0.
"""

import sys


def parse(content: bytes) -> str:
    """Checks an operator like `opjax.export.load`, and reports errors."""
    from jax import export

    try:
        export.deserialize(bytearray(content)).mlir_module()
    except Exception as error:  # nobody checks offsets before they are followed
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return lines[0][:200] or type(error).__name__
    return ""


def limit(seconds: int, num_bytes: int) -> None:
    """Limits the CPU time and memory of this process, if the platform supports it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (num_bytes, num_bytes))


def main() -> None:
    """Parses the operator from standard input."""
    content = sys.stdin.buffer.read()
    limit(int(sys.argv[1]), int(sys.argv[2]))
    print(parse(content), flush=True)


if __name__ == "__main__":
    main()
