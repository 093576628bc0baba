// What batch normalization and its gradient share; how threads share the work: channels.cuh.
#pragma once

// The normalized number, before anything follows; forward and backward must agree on its sign.
__device__ __forceinline__ A line(A x, A mean, A scale, A beta) { return (x - mean) * scale + beta; }

// What a rectifier leaves of a number below 0, or of the gradient there: `below` is its slope, 1 if there is none.
__device__ __forceinline__ A leaked(A y, A below) { return below == A(0) ? A(0) : y * below; }
