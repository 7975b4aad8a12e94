# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The Executable Transformer: the library that the book writes.

Every module is collected from the chapter of the same name. The public
names are those of __init__.pyi, where editors find them too. Each is
imported when it is first used, so that `import transformer_lib` is
quick and loads no torch.
"""

import lazy_loader

__version__ = "1.0.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
