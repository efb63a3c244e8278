// The emulated libcudart.so.13: registration, launches, memory, properties. Calls are done when they return.
// Functions of the real library that are not here are generated as stubs that report `cannot_emulate`.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "matrices.h"
#include "modules.h"
#include "tensor_map.h"

#define API extern "C" __attribute__((visibility("default")))

namespace emulated {
namespace {

// ---- what nvcc's host code registers
struct FatBinary {
    std::vector<std::string> kernels;
    Module* module = nullptr;
    bool resolved = false;

    Module* get() {
        if (!resolved) module = claim_module(kernels);
        resolved = true;
        return module;
    }
};
struct HostVariable {
    FatBinary* binary;
    std::string name;
};
struct HostFunction {
    FatBinary* binary;
    Kernel kernel;
};
struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

// Never destroyed: libraries unregister at exit.
auto& functions = *new std::map<const void*, HostFunction>;
auto& host_variables = *new std::map<const void*, HostVariable>;
auto& allocations = *new std::map<void*, size_t>;
thread_local std::vector<Configuration> configurations;
thread_local cudaError_t last = cudaSuccess;

using Error = cudaError_t;

Error answer(int error) {
    if (error) last = cudaError_t(error);
    return cudaError_t(error);
}
Error done() { return answer(sticky_error()); }
template <class T, class V> Error give(T* to, V value) {
    *to = T(value);
    return done();
}

// ---- kernels
// A function is named by its host stub, or by the handle that __cudaGetKernel gave out.
Kernel* find_kernel(const void* function) {
    for (auto& [stub, f] : functions) {
        if (stub != function && &f.kernel != function) continue;
        if (!f.kernel.module) f.kernel.module = f.binary->get();
        return &f.kernel;
    }
    answer(cudaErrorInvalidDeviceFunction);
    return nullptr;
}

Kernel* loaded_kernel(const void* function) {
    Kernel* k = find_kernel(function);
    return k && !answer(load_kernel(*k)) ? k : nullptr;
}

Error start(const void* function, Geometry g, dim3 grid, dim3 block, void** arguments, size_t shared) {
    Kernel* k = find_kernel(function);
    if (!k) return last;
    const u32 grids[] = {grid.x, grid.y, grid.z}, blocks[] = {block.x, block.y, block.z};
    std::copy_n(grids, 3, g.grid);
    std::copy_n(blocks, 3, g.block);
    g.dynamic_shared = shared;
    return answer(launch(*k, g, arguments));
}

Geometry geometry_of(const cudaLaunchConfig_t& c) {
    Geometry g;
    for (unsigned i = 0; i < c.numAttrs; i++) {
        const auto& value = c.attrs[i].val;
        if (c.attrs[i].id == cudaLaunchAttributeCooperative) g.cooperative = value.cooperative != 0;
        if (c.attrs[i].id != cudaLaunchAttributeClusterDimension) continue;
        const u32 cluster[] = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
        std::copy_n(cluster, 3, g.cluster);
    }
    return g;
}

// ---- memory
bool is_device(const void* p) {
    Range r;
    return find_range(address_of(p), 1, r);
}

// Whether the device end of a copy is memory of the device, as far as it goes.
bool device_end(const void* p, size_t bytes) {
    Range r;
    const u64 address = address_of(p);
    if (!bytes || find_range(address, bytes, r)) return true;
    const std::string what = "a copy of " + std::to_string(bytes) + " bytes: ";
    report("crashed", nullptr, 0, what + describe_address(address + bytes - 1), &address);
    return false;
}

// ---- the device: an H100
struct Attribute {
    cudaDeviceAttr which;
    int value;
    int cudaDeviceProp::* property = nullptr;
};
const std::vector<Attribute>& attributes() {
    using P = cudaDeviceProp;
    static const std::vector<Attribute> all = {{cudaDevAttrMaxBlockDimX, 1024},
        {cudaDevAttrMaxBlockDimY, 1024}, {cudaDevAttrMaxBlockDimZ, 64}, {cudaDevAttrMaxGridDimX, 0x7fffffff},
        {cudaDevAttrMaxGridDimY, 65535}, {cudaDevAttrMaxGridDimZ, 65535},
        {cudaDevAttrMaxThreadsPerBlock, 1024, &P::maxThreadsPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlock, SHARED_PER_BLOCK}, {cudaDevAttrTotalConstantMemory, 64 << 10},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, SHARED_OPT_IN}, {cudaDevAttrWarpSize, 32, &P::warpSize},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, SHARED_PER_SM}, {cudaDevAttrClusterLaunch, 1},
        {cudaDeviceAttr(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1},
        {cudaDeviceAttr(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED), 1},
        {cudaDevAttrReservedSharedMemoryPerBlock, SHARED_RESERVED}, {cudaDevAttrMemoryPoolsSupported, 1},
        {cudaDevAttrMaxRegistersPerBlock, 65536, &P::regsPerBlock}, {cudaDevAttrClockRate, 1980000},
        {cudaDevAttrMaxRegistersPerMultiprocessor, 65536, &P::regsPerMultiprocessor},
        {cudaDevAttrMultiProcessorCount, int(options.multiprocessors), &P::multiProcessorCount},
        {cudaDevAttrMaxThreadsPerMultiProcessor, 2048, &P::maxThreadsPerMultiProcessor},
        {cudaDevAttrMaxBlocksPerMultiprocessor, 32, &P::maxBlocksPerMultiProcessor},
        {cudaDevAttrL2CacheSize, 50 << 20, &P::l2CacheSize}, {cudaDevAttrMemoryClockRate, 2619000},
        {cudaDevAttrGlobalMemoryBusWidth, 5120, &P::memoryBusWidth}, {cudaDevAttrGlobalL1CacheSupported, 1},
        {cudaDevAttrComputeCapabilityMajor, 9, &P::major}, {cudaDevAttrLocalL1CacheSupported, 1},
        {cudaDevAttrConcurrentKernels, 1, &P::concurrentKernels},
        {cudaDevAttrManagedMemory, 1, &P::managedMemory},
        {cudaDevAttrUnifiedAddressing, 1, &P::unifiedAddressing},
        {cudaDevAttrCooperativeLaunch, 1, &P::cooperativeLaunch}};
    return all;
}

int attribute(int which) {
    for (const Attribute& one : attributes())
        if (one.which == which) return one.value;
    return 0;
}

const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {710, "cudaErrorAssert", "device-side assert triggered"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {720, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {801, "cudaErrorNotSupported", "operation not supported (by the emulated GPU)"},
};

}  // namespace

// ---- for the torch side: memory that tensors refer to, and the error that ended a kernel
API void emulated_add_range(u64 begin, u64 size) { add_range(begin, size); }
API void emulated_remove_range(u64 begin, u64 size) { remove_range(begin, size); }
API int emulated_error() { return sticky_error(); }
// Schedules of the launches to come: the first has this seed, each launch adds one.
API void emulated_seed(u64 seed) { options.seed = seed; }
// Forgets the error that ended a kernel, and what was reported: a test goes on to the next kernel.
API void emulated_reset() {
    set_sticky(0);
    forget_reports();
}
API int emulated_unsupported(const char* function) {
    report("cannot_emulate", nullptr, 0, std::string("the CUDA runtime function ") + function);
    return answer(cudaErrorNotSupported);
}

}  // namespace emulated

using namespace emulated;

// ---- functions that do what another one does with the first arguments, here and in the driver. Those of
// `emulated_status` only say whether a kernel has failed: everything is over when a call returns.
API int emulated_status() { return done(); }
API int emulated_success() { return cudaSuccess; }
API int emulated_missing() { return cudaErrorNotSupported; }
asm(R"(
.macro same_as function, names:vararg
.irp name, \names
.globl \name
.set \name, \function
.endr
.endm
same_as cudaLaunchKernel, __cudaLaunchKernel, __cudaLaunchKernel_ptsz
same_as cudaOccupancyMaxActiveBlocksPerMultiprocessor, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
same_as cudaRuntimeGetVersion, cudaDriverGetVersion, cuDriverGetVersion
same_as cudaGetDevice, cuDeviceGet
same_as cudaGetDeviceCount, cuDeviceGetCount
same_as cudaDeviceGetAttribute, cuDeviceGetAttribute
same_as cudaMemGetInfo, cuMemGetInfo_v2
same_as cudaMalloc, cudaMallocAsync, cudaMallocManaged, cudaMallocHost, cudaHostAlloc, cuMemAlloc_v2
same_as cudaFree, cudaFreeAsync, cudaFreeHost, cuMemFree_v2
same_as cudaMemcpy, cudaMemcpyAsync
same_as cudaMemset, cudaMemsetAsync, cuMemsetD8Async
same_as cudaMemcpyToSymbol, cudaMemcpyToSymbolAsync
same_as cudaStreamCreate, cudaStreamCreateWithFlags, cudaStreamCreateWithPriority
same_as cudaEventCreate, cudaEventCreateWithFlags, cuEventCreate
same_as cudaEventElapsedTime, cuEventElapsedTime
same_as emulated_status, cudaDeviceSynchronize, cudaDeviceSetLimit, cudaFuncSetCacheConfig
same_as emulated_status, cudaCtxResetPersistingL2Cache, cudaThreadExchangeStreamCaptureMode
same_as emulated_status, cudaStreamDestroy, cudaStreamSynchronize, cudaStreamQuery, cudaStreamWaitEvent
same_as emulated_status, cudaStreamSetAttribute, cudaEventRecord, cudaEventRecordWithFlags, cudaEventQuery
same_as emulated_status, cudaEventSynchronize, cudaEventDestroy, cuCtxSynchronize, cuEventRecord, cuEventQuery
same_as emulated_success, cuInit, cuDevicePrimaryCtxRelease_v2, cuCtxSetCurrent, cuCtxResetPersistingL2Cache
same_as emulated_success, cuMemSetAccess, cuModuleUnload, cuEventDestroy_v2
same_as emulated_missing, cuIpcGetMemHandle, cuIpcOpenMemHandle_v2, cuIpcCloseMemHandle
)");

// ---- registration
API void** __cudaRegisterFatBinary(void*) { return reinterpret_cast<void**>(new FatBinary); }
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API char __cudaInitModule(void**) { return 0; }
API void __cudaRegisterFunction(
    void** handle, const char* stub, char*, const char* name, int, void*, void*, void*, void*, int*) {
    auto* binary = reinterpret_cast<FatBinary*>(handle);
    binary->kernels.push_back(name);
    functions[stub] = {binary, Kernel{name}};
}
API void __cudaRegisterVar(void** handle, char* stub, char*, const char* name, int, size_t, int, int) {
    host_variables[stub] = {reinterpret_cast<FatBinary*>(handle), name};
}
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}
API Error __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    if (configurations.empty()) return answer(cudaErrorMissingConfiguration);
    const Configuration c = configurations.back();
    configurations.pop_back();
    *grid = c.grid;
    *block = c.block;
    *shared = c.shared;
    return give(static_cast<cudaStream_t*>(stream), c.stream);
}
API Error __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
    Kernel* k = find_kernel(function);
    return k ? give(kernel, reinterpret_cast<cudaKernel_t>(k)) : last;
}

// ---- launches
API Error cudaLaunchKernel(const void* f, dim3 g, dim3 b, void** arguments, size_t shared, cudaStream_t) {
    return start(f, {}, g, b, arguments, shared);
}
API Error cudaLaunchCooperativeKernel(
    const void* f, dim3 g, dim3 b, void** arguments, size_t shared, cudaStream_t) {
    Geometry geometry;
    geometry.cooperative = true;
    return start(f, geometry, g, b, arguments, shared);
}
API Error cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** arguments) {
    return start(f, geometry_of(*c), c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes);
}
API Error cudaFuncSetAttribute(const void* f, cudaFuncAttribute which, int value) {
    Kernel* k = loaded_kernel(f);
    if (!k) return last;
    if (which == cudaFuncAttributeNonPortableClusterSizeAllowed) k->large_clusters = value != 0;
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || u32(value) + k->info->shared_bytes > SHARED_OPT_IN) return answer(cudaErrorInvalidValue);
    k->most_dynamic_shared = u32(value);
    return cudaSuccess;
}
API Error cudaFuncGetAttributes(cudaFuncAttributes* a, const void* f) {
    Kernel* k = loaded_kernel(f);
    if (!k) return last;
    *a = {};
    a->sharedSizeBytes = k->info->shared_bytes;
    a->localSizeBytes = k->info->local_bytes;
    a->maxThreadsPerBlock = int(k->info->max_threads);
    a->numRegs = 32;
    a->ptxVersion = a->binaryVersion = 90;
    a->maxDynamicSharedSizeBytes = int(k->most_dynamic_shared);
    a->nonPortableClusterSizeAllowed = k->large_clusters;
    return cudaSuccess;
}
API Error cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* f, int threads, size_t shared) {
    Kernel* k = loaded_kernel(f);
    return k ? give(n, resident_blocks(u32(threads), k->info->shared_bytes + shared)) : last;
}

// ---- errors
API Error cudaPeekAtLastError() { return last ? last : cudaError_t(sticky_error()); }
API Error cudaGetLastError() {
    const cudaError_t error = cudaPeekAtLastError();
    last = cudaSuccess;
    return error;
}
API const char* cudaGetErrorString(cudaError_t e) {
    for (const auto& one : errors)
        if (one.code == e) return one.text;
    return "an error of the emulated CUDA runtime";
}
API const char* cudaGetErrorName(cudaError_t e) {
    for (const auto& one : errors)
        if (one.code == e) return one.name;
    return "cudaErrorUnknown";
}

// ---- the device
API Error cudaGetDevice(int* device) { return give(device, 0); }
API Error cudaSetDevice(int device) { return device ? answer(cudaErrorInvalidDevice) : cudaSuccess; }
API Error cudaGetDeviceCount(int* count) { return give(count, 1); }
API Error cudaRuntimeGetVersion(int* version) { return give(version, CUDART_VERSION); }
API Error cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
    *value = attribute(which);
    return cudaSuccess;
}
API Error cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    *p = {};
    std::strcpy(p->name, "NVIDIA H100 80GB HBM3");
    p->totalGlobalMem = 80ull << 30;
    p->sharedMemPerBlock = SHARED_PER_BLOCK;
    p->sharedMemPerBlockOptin = SHARED_OPT_IN;
    p->sharedMemPerMultiprocessor = SHARED_PER_SM;
    p->reservedSharedMemPerBlock = SHARED_RESERVED;
    p->totalConstMem = 64 << 10;
    for (const Attribute& one : attributes())
        if (one.property) p->*one.property = one.value;
    for (int i = 0; i < 3; i++) {
        p->maxThreadsDim[i] = attribute(cudaDevAttrMaxBlockDimX + i);
        p->maxGridSize[i] = attribute(cudaDevAttrMaxGridDimX + i);
    }
    return cudaSuccess;
}
API Error cudaGetDriverEntryPointByVersion(
    const char* name, void** f, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* status) {
    const bool known = !std::strcmp(name, "cuTensorMapEncodeTiled");
    *f = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
    if (status) *status = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return known ? cudaSuccess : cudaError_t(emulated_unsupported(name));
}

// ---- memory
API Error cudaMalloc(void** p, size_t bytes) {
    if (sticky_error()) return done();
    *p = bytes ? std::aligned_alloc(256, (bytes + 511) / 256 * 256) : nullptr;
    if (bytes && !*p) return answer(cudaErrorMemoryAllocation);
    if (bytes) std::memset(*p, 0xff, bytes);
    add_range(address_of(*p), bytes);
    allocations[*p] = bytes;
    return cudaSuccess;
}
API Error cudaFree(void* p) {
    if (!p) return cudaSuccess;
    const auto found = allocations.find(p);
    if (found == allocations.end()) return answer(cudaErrorInvalidValue);
    remove_range(address_of(p), found->second);
    allocations.erase(found);
    std::free(p);
    return done();
}
API Error cudaMemGetInfo(size_t* free, size_t* total) {
    *free = 79ull << 30;
    return give(total, 80ull << 30);
}
API Error cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (sticky_error()) return done();
    const bool both = kind == cudaMemcpyDeviceToDevice, unknown = kind == cudaMemcpyDefault;
    const bool to_device = both || kind == cudaMemcpyHostToDevice || (unknown && is_device(to));
    const bool from_device = both || kind == cudaMemcpyDeviceToHost || (unknown && is_device(from));
    if ((to_device && !device_end(to, bytes)) || (from_device && !device_end(from, bytes)))
        return answer(cudaErrorInvalidValue);
    std::memmove(to, from, bytes);
    return cudaSuccess;
}
API Error cudaMemset(void* to, int value, size_t bytes) {
    if (sticky_error()) return done();
    if (!device_end(to, bytes)) return answer(cudaErrorInvalidValue);
    std::memset(to, value, bytes);
    return cudaSuccess;
}
API Error cudaMemcpyToSymbol(
    const void* symbol, const void* from, size_t n, size_t offset, cudaMemcpyKind kind) {
    const auto known = host_variables.find(symbol);
    if (known == host_variables.end()) return answer(cudaErrorInvalidSymbol);
    Module* module = known->second.binary->get();
    Variable* v = module ? find_variable(*module, known->second.name) : nullptr;
    if (!v) return module ? cudaSuccess : answer(cudaErrorNotSupported);  // no kernel reads it
    return offset + n > v->size ? answer(cudaErrorInvalidValue)
                                : cudaMemcpy(host(v->address + offset), from, n, kind);
}

// ---- streams and events
API Error cudaStreamCreate(cudaStream_t* stream) { return give(stream, 0x10ul); }
API Error cudaEventCreate(cudaEvent_t* event) { return give(event, 0x20ul); }
API Error cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return give(ms, 1); }
API Error cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
    return give(status, cudaStreamCaptureStatusNone);
}

// ---- tensor maps
API CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
    void* address, const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    using enum Element;
    static constexpr Element types[] = {u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16, f32, f32, f32};
    bool whole_steps = interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && swizzle <= CU_TENSOR_MAP_SWIZZLE_128B;
    for (cuuint32_t i = 0; i < std::min(rank, 5u); i++) whole_steps &= steps[i] == 1;
    if (!whole_steps || type >= std::size(types)) {
        emulated_unsupported(
            "cuTensorMapEncodeTiled with an interleaved layout, an atomic swizzle, packed elements or "
            "element strides other than 1");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (rank < 1 || rank > 5 || !address || address_of(address) % 16) return CUDA_ERROR_INVALID_VALUE;
    TensorMap m{TENSOR_MAP_MAGIC, emulated::u8(rank), emulated::u8(bits_of(types[type]) / 8)};
    m.swizzle = swizzle ? 16 << swizzle : 0;
    m.type = types[type];
    m.address = address_of(address);
    m.fill_nan = fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    for (cuuint32_t i = 0; i < rank; i++) {
        if (!dims[i] || dims[i] > 1ull << 32 || !box[i] || box[i] > 256) return CUDA_ERROR_INVALID_VALUE;
        m.dims[i] = dims[i];
        m.box[i] = emulated::u16(box[i]);
        m.pitches[i] = i ? strides[i - 1] : m.element_bytes;
        if (i && (m.pitches[i] % 16 || m.pitches[i] >= 1ull << 40)) return CUDA_ERROR_INVALID_VALUE;
    }
    const cuuint32_t inner = box[0] * m.element_bytes;
    if (inner % 16 || (m.swizzle && inner > m.swizzle)) return CUDA_ERROR_INVALID_VALUE;
    std::memset(map, 0, sizeof *map);
    std::memcpy(map, &m, sizeof m);
    return CUDA_SUCCESS;
}
