"""python -m tessera.trace SCRIPT: a step graph of an unmodified training script. See _script.py."""
import sys

if __name__ == '__main__':
    from tessera._script import main
    sys.exit(main())

from ._trace import trace

sys.modules[__name__] = trace  # type: ignore[assignment]  # `import tessera.trace` is the function
