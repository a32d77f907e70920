/* Stands for libnvidia-ml.so.1 where there is no GPU: the functions that the product calls, over a
 * state file that a test maps too and changes while a process uses this. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, UNKNOWN = 999 };
enum { DEVICES = 8, RULES = 8, MAGIC = 0x6e766d6c };

/* Mirrored by tests/fake_nvml.py; eight-byte numbers leave no padding to disagree about. */
struct device {
    char uuid[96], name[96];
    uint64_t lost, utilization, total, reserved, free, used, temperature, power_mw, limit_mw, energy_mj;
    uint64_t sm_mhz, memory_mhz, throttle, corrected, uncorrected, mig, pid, pid_memory;
};
struct rule {
    char function[64];
    int64_t device;
    uint64_t error, latency_us;
};
struct state {
    uint64_t magic, size, init_error, count;
    struct device devices[DEVICES];
    struct rule rules[RULES];
};

static struct state *state;
static int initialised;

static int mapped(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    int file = state || !path ? -1 : open(path, O_RDWR);
    if (file >= 0) {
        void *memory = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (memory != MAP_FAILED) state = memory;
    }
    return state && state->magic == MAGIC && state->size == sizeof *state;
}

/* Waits and fails as the rules say; a latency ends early when its rule is taken away. */
static int gate(const char *function, int64_t device) {
    if (!initialised) return UNINITIALIZED;
    for (struct rule *rule = state->rules; rule < state->rules + RULES; rule++) {
        if (strcmp(rule->function, function) || (rule->device >= 0 && rule->device != device)) continue;
        volatile uint64_t *latency_us = &rule->latency_us;
        for (uint64_t waited = 0; waited < *latency_us; waited += 5000) usleep(5000);
        if (rule->error) return (int)rule->error;
    }
    if (device >= 0 && (uint64_t)device >= state->count) return INVALID_ARGUMENT;
    return device >= 0 && state->devices[device].lost ? GPU_IS_LOST : SUCCESS;
}

#define HANDLE(handle) ((int64_t)(uintptr_t)(handle) - 1)
#define ENTER(device) do { int error = gate(__func__, device); if (error) return error; } while (0)
#define NUMBER(name, type, field) \
    API int name(void *handle, type *value) { \
        ENTER(HANDLE(handle)); \
        *value = (type)state->devices[HANDLE(handle)].field; \
        return SUCCESS; \
    }
#define TEXT(name, field) \
    API int name(void *handle, char *value, unsigned length) { \
        ENTER(HANDLE(handle)); \
        strncpy(value, state->devices[HANDLE(handle)].field, length); \
        return SUCCESS; \
    }

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!mapped()) return UNKNOWN;
    if (state->init_error) return (int)state->init_error;
    initialised = 1;
    return gate(__func__, -1);
}
API int nvmlShutdown(void) { ENTER(-1); initialised = 0; return SUCCESS; }
API const char *nvmlErrorString(int error) { (void)error; return "fake error"; }
API int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    ENTER(-1);
    strncpy(text, "580.00-fake", length);
    return SUCCESS;
}
API int nvmlSystemGetCudaDriverVersion(int *version) { ENTER(-1); *version = 13010; return SUCCESS; }
API int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(-1); *count = (unsigned)state->count; return SUCCESS; }
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    ENTER(index);
    *handle = (void *)(uintptr_t)(index + 1);
    return SUCCESS;
}
TEXT(nvmlDeviceGetUUID, uuid)
TEXT(nvmlDeviceGetName, name)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, power_mw)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, limit_mw)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, energy_mj)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, throttle)

API int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    ENTER(HANDLE(handle));
    *major = 9, *minor = 0;
    return SUCCESS;
}
API int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    ENTER(HANDLE(handle));
    *current = *pending = (unsigned)state->devices[HANDLE(handle)].mig;
    return SUCCESS;
}
API int nvmlDeviceGetUtilizationRates(void *handle, unsigned rates[2]) {
    ENTER(HANDLE(handle));
    rates[0] = (unsigned)state->devices[HANDLE(handle)].utilization, rates[1] = 0;
    return SUCCESS;
}
API int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius) {
    (void)sensor;
    ENTER(HANDLE(handle));
    *celsius = (unsigned)state->devices[HANDLE(handle)].temperature;
    return SUCCESS;
}
API int nvmlDeviceGetClockInfo(void *handle, unsigned clock, unsigned *mhz) {
    ENTER(HANDLE(handle));
    struct device *device = &state->devices[HANDLE(handle)];
    *mhz = (unsigned)(clock == 1 ? device->sm_mhz : device->memory_mhz);
    return SUCCESS;
}
API int nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned counter, unsigned long long *count) {
    (void)counter;
    ENTER(HANDLE(handle));
    struct device *device = &state->devices[HANDLE(handle)];
    *count = kind == 0 ? device->corrected : device->uncorrected;
    return SUCCESS;
}
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
API int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *memory) {
    ENTER(HANDLE(handle));
    struct device *device = &state->devices[HANDLE(handle)];
    memory->total = device->total, memory->reserved = device->reserved;
    memory->free = device->free, memory->used = device->used;
    return SUCCESS;
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
API int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci) {
    ENTER(HANDLE(handle));
    memset(pci, 0, sizeof *pci);
    memcpy(pci->bus_id, "0000FFF0:00:00.0", 17);
    pci->bus_id[10] = (char)('0' + HANDLE(handle));
    return SUCCESS;
}
struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
API int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *processes) {
    ENTER(HANDLE(handle));
    struct device *device = &state->devices[HANDLE(handle)];
    unsigned room = *count;
    *count = device->pid ? 1 : 0;
    if (*count == 0) return SUCCESS;
    if (room == 0) return INSUFFICIENT_SIZE;
    processes[0] = (struct process){(unsigned)device->pid, device->pid_memory, ~0u, ~0u};
    return SUCCESS;
}
