// A libcuda.so.1 for launches alone: a module is a library that g++ made, a function one of its launchers.
// Signatures: NVIDIA, "CUDA Driver API", CUDA 13 (CUresult is an int, handles are pointers).
#include <dlfcn.h>

#include <cstdio>

extern "C" {
int cuGetErrorName(int, const char **text) {
    *text = "CUDA_ERROR_UNKNOWN";
    return 0;
}
int cuGetErrorString(int, const char **text) {
    *text = "it did not work";
    return 0;
}
// One context, which is always there.
int cuCtxGetCurrent(void **context) {
    *context = reinterpret_cast<void *>(0x5678);
    return 0;
}
int cuCtxSetCurrent(void *context) { return context == reinterpret_cast<void *>(0x5678) ? 0 : 201; }
// The image is the path of a library.
int cuModuleLoadData(void **module, const void *image) {
    *module = dlopen(static_cast<const char *>(image), RTLD_NOW);
    return *module ? 0 : 999;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    char launcher[256];
    snprintf(launcher, sizeof launcher, "launch_%s", name);
    *function = dlsym(module, launcher);
    return *function ? 0 : 500;
}
int cuFuncGetAttribute(int *value, int, void *) {
    *value = 0;
    return 0;
}
int cuFuncSetAttribute(void *, int, int) { return 0; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned, void *stream, void **parameters, void **extra) {
    if (extra || stream != reinterpret_cast<void *>(0x1234)) return 1;
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    using Launcher = const char *(*)(const unsigned *, const unsigned *, void **);
    return reinterpret_cast<Launcher>(function)(grid, block, parameters) ? 719 : 0;
}
}
