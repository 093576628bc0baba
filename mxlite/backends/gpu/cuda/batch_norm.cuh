// What batch normalization and its gradient share; how threads share the work: channels.cuh.
#pragma once

// The normalized number, before anything follows; forward and backward must agree on its sign.
__device__ __forceinline__ A line(A x, A mean, A scale, A beta) { return (x - mean) * scale + beta; }
