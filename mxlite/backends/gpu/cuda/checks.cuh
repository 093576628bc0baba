// Errors in a kernel's input are recorded in a slot of three words, all ones before; see checks.py.
#pragma once

// Records the first wrong index, and the value there; a value beyond int32 is clamped.
__device__ __forceinline__ void note_first(uint64 *slot, int64 place, int64 value) {
    int64 shown = value < -2147483648ll ? -2147483648ll : value > 2147483647ll ? 2147483647ll : value;
    atomicMin(slot, (uint64)place << 32 | (uint32)(int)shown);
}
