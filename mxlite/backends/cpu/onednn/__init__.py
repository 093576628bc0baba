"""oneDNN through its C API and ctypes: the library, descriptors, primitives. Kernels are elsewhere."""

from .library import (
    find as find,
    Library as Library,
    library as library,
    loaded as loaded,
    OneDNNError as OneDNNError,
)
from .memory import Memory as Memory, memory as memory, memory_any as memory_any
from .primitive import (
    Attr as Attr,
    bind as bind,
    cached as cached,
    in_turn as in_turn,
    Primitive as Primitive,
    reorder as reorder,
    Run as Run,
)
