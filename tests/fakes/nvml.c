/* A stand-in for libnvidia-ml.so.1: three made-up GPUs, whose state is read from the files of the folder
 * that LIFTBENCH_FAKE_NVML names.
 *
 *   driver_absent  if it exists, nvmlInitWithFlags says that no driver is loaded
 *   used_bytes     memory in use on GPU 0
 *   processes      lines "pid bytes" (bytes -1: not available), of GPU 0
 *   events         lines "code": an Xid of GPU 0; those written after the registration are delivered
 *   sm_mhz         clock of GPU 0
 *   reasons        decimal mask of what holds its clocks down
 *   cells          "pending failed": rows of GPU 0 that wait to be remapped, and whether that failed
 *   compute_mode   of GPU 0
 *   old_driver     if it exists, there is no nvmlDeviceGetTemperatureV
 *
 * GPU 0 can do everything, GPU 1 is in MIG mode with two instances, GPU 2 supports nothing optional.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9, TIMEOUT = 10 };
enum { NO_FUNCTION = 13 };

typedef struct { int index, gi, ci; const char *uuid, *name; unsigned minor; int mig; } Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } Process;
typedef struct { void *device; unsigned long long kind, data; unsigned gi, ci; } Event;
typedef struct { Device *device; long offset; } EventSet;
typedef struct { unsigned version; int sensor, celsius; } Temperature;

static Device gpus[] = {
    {0, -1, -1, "GPU-00000000-aaaa-0000-0000-000000000000", "Made-up H200", 0, 0},
    {1, -1, -1, "GPU-11111111-bbbb-1111-1111-111111111111", "Made-up H100", 3, 1},
    {2, -1, -1, "GPU-22222222-cccc-2222-2222-222222222222", "Made-up old card", 7, -1},
};
static Device slices[] = {
    {1, 9, 0, "MIG-33333333-dddd-3333-3333-333333333333", "Made-up H100 MIG 1g.10gb", 0, 0},
    {1, 11, 0, "MIG-44444444-eeee-4444-4444-444444444444", "Made-up H100 MIG 1g.10gb", 0, 0},
};
static const unsigned long long TOTAL = 150000000000ULL;

static FILE *state(const char *name) {
    char path[4096];
    const char *folder = getenv("LIFTBENCH_FAKE_NVML");
    if (!folder) return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "r");
}

static unsigned long long number(const char *name, unsigned long long otherwise) {
    unsigned long long value = otherwise;
    FILE *file = state(name);
    if (file && fscanf(file, "%llu", &value) != 1) value = otherwise;
    if (file) fclose(file);
    return value;
}

static int put(const char *text, char *to, unsigned length) {
    if (strlen(text) + 1 > length) return TOO_SMALL;
    strcpy(to, text);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    FILE *file = state("driver_absent");
    if (!file) return OK;
    fclose(file);
    return NO_DRIVER;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case NO_DRIVER: return "Driver Not Loaded";
    default: return "Some Error";
    }
}
int nvmlSystemGetDriverVersion(char *to, unsigned length) { return put("580.95.05", to, length); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= 3) return INVALID;
    *device = &gpus[index];
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    for (int i = 0; i < 3; i++)
        if (!strcmp(uuid, gpus[i].uuid)) { *device = &gpus[i]; return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(Device *device, char *to, unsigned length) { return put(device->uuid, to, length); }
int nvmlDeviceGetName(Device *device, char *to, unsigned length) { return put(device->name, to, length); }
int nvmlDeviceGetMinorNumber(Device *device, unsigned *minor) { *minor = device->minor; return OK; }
int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    *major = device->index == 2 ? 7 : 9;
    *minor = device->index == 2 ? 5 : 0;
    return OK;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *pending) {
    if (device->mig < 0) return NOT_SUPPORTED;
    *now = *pending = device->mig;
    return OK;
}
int nvmlDeviceGetComputeMode(Device *device, unsigned *mode) {
    if (device->index == 2) return NOT_SUPPORTED;
    *mode = device->index ? 0 : (unsigned)number("compute_mode", 0);
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { (void)device; *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, void **slice) {
    if (device->index != 1 || index >= 2) return NOT_FOUND;
    *slice = &slices[index];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) { *id = device->gi; return OK; }
int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *id) { *id = device->ci; return OK; }

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    unsigned long long used = 600000000ULL;
    FILE *file = device->index == 0 ? state("used_bytes") : NULL;
    if (file) {
        if (fscanf(file, "%llu", &used) != 1) used = 0;
        fclose(file);
    }
    *memory = (Memory){TOTAL, TOTAL - used, used};
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *found) {
    FILE *file = device->index == 0 ? state("processes") : NULL;
    unsigned room = *count, n = 0, pid;
    long long bytes;
    while (file && fscanf(file, "%u %lld", &pid, &bytes) == 2) {
        if (n < room) found[n] = (Process){pid, (unsigned long long)bytes, ~0u, ~0u};
        n++;
    }
    if (file) fclose(file);
    *count = n;
    return n > room ? TOO_SMALL : OK;
}
int nvmlDeviceGetClockInfo(Device *device, int kind, unsigned *mhz) {
    if (device->index == 2) return NOT_SUPPORTED;
    *mhz = kind != 1 ? 3201 : device->index ? 345 : number("sm_mhz", 345);
    return OK;
}
int nvmlDeviceGetMaxClockInfo(Device *device, int kind, unsigned *mhz) {
    if (device->index == 2) return NOT_SUPPORTED;
    *mhz = kind == 1 ? 1980 : 3201;
    return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *mask) {
    if (device->index == 2) return NOT_SUPPORTED;
    *mask = device->index ? 0x1 | 0x4 : number("reasons", 0x1 | 0x4);
    return OK;
}
int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    if (device->index == 2) return NOT_SUPPORTED;
    *milliwatts = 123456;
    return OK;
}
int nvmlDeviceGetTemperatureV(Device *device, Temperature *asked) {
    FILE *file = state("old_driver");
    if (file) fclose(file);
    if (file || device->index == 2) return NO_FUNCTION;
    if (asked->version != (sizeof *asked | 1u << 24) || asked->sensor != 0) return INVALID;
    asked->celsius = 41;
    return OK;
}
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) {
    if (sensor != 0) return INVALID;
    if (device->index == 2) return NOT_SUPPORTED;
    *celsius = 42;
    return OK;
}
int nvmlDeviceGetRemappedRows(Device *device, unsigned *fixed, unsigned *lost, unsigned *pending, unsigned *failed) {
    FILE *file = device->index == 0 ? state("cells") : NULL;
    if (device->index == 2) return NOT_SUPPORTED;
    *fixed = *lost = *pending = *failed = 0;
    if (file) {
        if (fscanf(file, "%u %u", pending, failed) != 2) *pending = *failed = 0;
        fclose(file);
    }
    return OK;
}

int nvmlEventSetCreate(EventSet **set) {
    *set = calloc(1, sizeof **set);
    return OK;
}
int nvmlDeviceRegisterEvents(Device *device, unsigned long long kinds, EventSet *set) {
    FILE *file;
    if (device->index == 2 || kinds != 0x8) return NOT_SUPPORTED;
    set->device = device;
    file = state("events");
    if (file) {
        fseek(file, 0, SEEK_END);
        set->offset = ftell(file);
        fclose(file);
    }
    return OK;
}
int nvmlEventSetWait_v2(EventSet *set, Event *event, unsigned timeout_ms) {
    for (unsigned waited = 0;; waited++) {
        FILE *file = state("events");
        unsigned code;
        int found = 0;
        if (file) {
            fseek(file, set->offset, SEEK_SET);
            found = fscanf(file, "%u\n", &code) == 1;
            if (found) set->offset = ftell(file);
            fclose(file);
        }
        if (found) {
            *event = (Event){set->device, 0x8, code, ~0u, ~0u};
            return OK;
        }
        if (waited >= timeout_ms) return TIMEOUT;
        usleep(1000);
    }
}
int nvmlEventSetFree(EventSet *set) { free(set); return OK; }
