"""Ways to convolve arrays with their channels last: oneDNN's direct kernels, and Winograd's algorithm.

Each way is an object per direction with `nbytes` of scratch, a `name`, and a method that connects it to
arrays:

    Forward   connect(data, weight, bias, addend, out, work, factor)
    ByData    connect(d_out, weight, d_data, work)
    ByWeight  connect(d_out, data, d_weight, d_bias, work)
"""

from .choice import by_data as by_data, by_weight as by_weight, forward as forward
