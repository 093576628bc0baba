"""mx.test_utils: checks for authors of operators, on mxlite's executors. Names are MXNet's."""

# MXNet's module has the names of these modules, and of `mx` below, and tests of its users get them by
# `from mxnet.test_utils import *`.
import json as json
import logging as logging
import os as os
import sys as sys
import time as time

import numpy as np  # noqa: F401
import numpy.random as rnd  # noqa: F401

from ..core import Context as Context, set_default_context as set_default_context
from ..core.compat.util_names import (
    use_np as use_np,
    use_np_array as use_np_array,
    use_np_shape as use_np_shape,
)
from ..ndarray import array as array, NDArray as NDArray
from ..symbol import Symbol as Symbol
from .checks import (
    check_numeric_gradient as check_numeric_gradient,
    check_symbolic_backward as check_symbolic_backward,
    check_symbolic_forward as check_symbolic_forward,
    numeric_grad as numeric_grad,
    simple_forward as simple_forward,
)
from .comparison import (
    almost_equal as almost_equal,
    assert_allclose as assert_allclose,
    assert_almost_equal as assert_almost_equal,
    assert_almost_equal_ignore_nan as assert_almost_equal_ignore_nan,
    assert_almost_equal_with_err as assert_almost_equal_with_err,
    assert_exception as assert_exception,
    find_max_violation as find_max_violation,
    retry as retry,
    same as same,
    same_array as same_array,
)
from .consistency import check_consistency as check_consistency, check_speed as check_speed
from .datasets import (
    DummyIter as DummyIter,
    get_mnist as get_mnist,
    get_mnist_iterator as get_mnist_iterator,
)
from .downloading import download as download
from .environment import (
    discard_stderr as discard_stderr,
    environment as environment,
    set_env_var as set_env_var,
)
from .generators import (
    chi_square_check as chi_square_check,
    gen_buckets_probs_with_ppf as gen_buckets_probs_with_ppf,
    mean_check as mean_check,
    var_check as var_check,
    verify_generator as verify_generator,
)
from .optimizers import (
    compare_ndarray_tuple as compare_ndarray_tuple,
    compare_optimizer as compare_optimizer,
)
from .platforms import (
    has_tvm_ops as has_tvm_ops,
    is_aarch64_run as is_aarch64_run,
    is_cd_run as is_cd_run,
    is_op_runnable as is_op_runnable,
)
from .random_arrays import (
    assign_each as assign_each,
    assign_each2 as assign_each2,
    collapse_sum_like as collapse_sum_like,
    create_2d_tensor as create_2d_tensor,
    create_sparse_array as create_sparse_array,
    create_sparse_array_zd as create_sparse_array_zd,
    create_vector as create_vector,
    np_reduce as np_reduce,
    rand_coord_2d as rand_coord_2d,
    rand_ndarray as rand_ndarray,
    rand_shape_2d as rand_shape_2d,
    rand_shape_3d as rand_shape_3d,
    rand_shape_nd as rand_shape_nd,
    rand_sparse_ndarray as rand_sparse_ndarray,
    random_arrays as random_arrays,
    random_sample as random_sample,
    random_uniform_arrays as random_uniform_arrays,
)
from .tolerances import (
    default_atols as default_atols,
    default_context as default_context,
    default_dtype as default_dtype,
    default_numeric_eps as default_numeric_eps,
    default_rtols as default_rtols,
    effective_dtype as effective_dtype,
    get_atol as get_atol,
    get_etol as get_etol,
    get_rtol as get_rtol,
    get_tolerance as get_tolerance,
    get_tols as get_tols,
    list_gpus as list_gpus,
)

mx = sys.modules[__name__.partition(".")[0]]
