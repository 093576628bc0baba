"""Small networks of the families people bring: name -> a function that gives (module, inputs)."""

from . import attention, language, losses, operators, sequence, vision

FILES = (attention, language, losses, operators, sequence, vision)
NETWORKS = {
    f"{file.__name__.rpartition('.')[2]}-{name}": make
    for file in FILES
    for name, make in file.NETWORKS.items()
}
