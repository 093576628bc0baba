// Common parts of batch normalization and its gradient; work split among threads: channels.cuh.
#pragma once

// The normalized number before any epilogue; forward and backward must agree on its sign.
__device__ __forceinline__ A line(A x, A mean, A scale, A beta) { return (x - mean) * scale + beta; }

// Rectified value of a negative number, or of its gradient: `below` is the slope, 1 if there is no rectifier.
__device__ __forceinline__ A leaked(A y, A below) { return below == A(0) ? A(0) : y * below; }
