/* Stands for libnvidia-ml.so.1 where there is no GPU: the functions that the product, nvitop and gpustat
 * call, over a state file that a test maps too and changes while a process uses this. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE,
       TIMEOUT = 10, GPU_IS_LOST = 15, UNKNOWN = 999 };
enum { DEVICES = 8, RULES = 16, LINKS = 18, PROCESSES = 4, INSTANCES = 4, SAMPLES = 128, EVENTS = 64,
       MAGIC = 0x6e766d6c };

/* Mirrored by tests/support/fakes/nvml.py; eight-byte numbers leave no padding to disagree about. */
struct link { uint64_t up, remote; };
struct running { uint64_t pid, memory, graphics, instance; };
struct sample { uint64_t at_us, utilization, power_mw; };
struct instance { char uuid[96], name[96]; uint64_t gpu_instance, compute_instance, total, used, slices; };
struct device {
    char uuid[96], name[96], serial[32];
    uint64_t lost, utilization, memory_utilization, total, reserved, free, used, temperature, power_mw, limit_mw;
    uint64_t default_limit_mw, minimum_limit_mw, maximum_limit_mw, energy_mj, sm_mhz, memory_mhz, throttle;
    uint64_t corrected, uncorrected, mig, performance_state, fan, encoder, decoder, numa_node;
    uint64_t pcie_generation, pcie_width, pcie_generation_max, pcie_width_max;
    uint64_t retired_single, retired_double, retired_pending;
    uint64_t remapped_corrected, remapped_uncorrected, remap_pending, remap_failed;
    uint64_t link_count, process_count, instance_count, sample_count;
    uint64_t topology[DEVICES];
    struct link links[LINKS];
    struct running processes[PROCESSES];
    struct instance instances[INSTANCES];
    struct sample samples[SAMPLES];
};
struct rule { char function[64]; int64_t device; uint64_t error, latency_us; };
struct event { uint64_t device, type, data; };
struct state {
    uint64_t magic, size, init_error, count, serial, sampling, throughput_calls, event_count;
    struct event events[EVENTS];
    struct device devices[DEVICES];
    struct rule rules[RULES];
};

static struct state *state;
static int initialised;
static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;

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

/* A latency ends early when its rule is taken away. */
static int ruled(const char *function, int64_t device) {
    for (struct rule *rule = state->rules; rule < state->rules + RULES; rule++) {
        if (!rule->function[0] || strcmp(rule->function, function)) continue;
        if (rule->device >= 0 && rule->device != device) continue;
        volatile uint64_t *latency_us = &rule->latency_us;
        for (uint64_t waited = 0; waited < *latency_us; waited += 5000) usleep(5000);
        if (rule->error) return (int)rule->error;
    }
    return SUCCESS;
}

/* Waits and fails as the rules say; with `serial` one call that waits keeps all others waiting. */
static int gate(const char *function, int64_t device) {
    if (!initialised) return UNINITIALIZED;
    int serial = (int)state->serial;
    if (serial) pthread_mutex_lock(&driver);
    int error = ruled(function, device);
    if (serial) pthread_mutex_unlock(&driver);
    if (error) return error;
    if (device >= 0 && (uint64_t)device >= state->count) return INVALID_ARGUMENT;
    return device >= 0 && state->devices[device].lost ? GPU_IS_LOST : SUCCESS;
}

/* A handle is a device's number and, from the second byte on, that of its MIG instance, from 1. */
#define INDEX(handle) ((int64_t)((uintptr_t)(handle) & 255) - 1)
#define PART(handle) ((int64_t)((uintptr_t)(handle) >> 8) - 1)
#define DEVICE(handle) (&state->devices[INDEX(handle)])
#define INSTANCE(handle) (&DEVICE(handle)->instances[PART(handle)])
#define ENTER(device) do { int error = gate(__func__, device); if (error) return error; } while (0)
#define WHOLE(handle) do { ENTER(INDEX(handle)); if (PART(handle) >= 0) return NOT_SUPPORTED; } while (0)
#define NUMBER(name, type, field) \
    API int name(void *handle, type *value) { WHOLE(handle); *value = (type)DEVICE(handle)->field; return SUCCESS; }
#define CONSTANT(name, type, number) \
    API int name(void *handle, type *value) { WHOLE(handle); *value = (number); return SUCCESS; }
#define ABSENT(name) \
    API int name(void *handle) { WHOLE(handle); return NOT_SUPPORTED; }

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!mapped()) return UNKNOWN;
    if (state->init_error) return (int)state->init_error;
    initialised = 1;
    return gate(__func__, -1);
}
API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API int nvmlShutdown(void) { ENTER(-1); initialised = 0; return SUCCESS; }
API const char *nvmlErrorString(int error) { (void)error; return "fake error"; }
API int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    ENTER(-1);
    snprintf(text, length, "580.00-fake");
    return SUCCESS;
}
API int nvmlSystemGetCudaDriverVersion(int *version) { ENTER(-1); *version = 13010; return SUCCESS; }
API int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }
API int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(-1); *count = (unsigned)state->count; return SUCCESS; }
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    ENTER(index);
    *handle = (void *)(uintptr_t)(index + 1);
    return SUCCESS;
}
API int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    for (unsigned index = 0; index < state->count; index++) {
        if (strcmp(state->devices[index].uuid, uuid) == 0) return nvmlDeviceGetHandleByIndex_v2(index, handle);
    }
    return NOT_FOUND;
}
API int nvmlDeviceGetIndex(void *handle, unsigned *index) { WHOLE(handle); *index = INDEX(handle); return SUCCESS; }
API int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    ENTER(INDEX(handle));
    snprintf(text, length, "%s", PART(handle) < 0 ? DEVICE(handle)->uuid : INSTANCE(handle)->uuid);
    return SUCCESS;
}
API int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    ENTER(INDEX(handle));
    snprintf(text, length, "%s", PART(handle) < 0 ? DEVICE(handle)->name : INSTANCE(handle)->name);
    return SUCCESS;
}
API int nvmlDeviceGetSerial(void *handle, char *text, unsigned length) {
    WHOLE(handle);
    snprintf(text, length, "%s", DEVICE(handle)->serial);
    return SUCCESS;
}

NUMBER(nvmlDeviceGetPowerUsage, unsigned, power_mw)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, limit_mw)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, limit_mw)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, default_limit_mw)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, energy_mj)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, throttle)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, throttle)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, performance_state)
NUMBER(nvmlDeviceGetFanSpeed, unsigned, fan)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, pcie_generation)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, pcie_width)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, pcie_generation_max)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, pcie_width_max)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, unsigned, retired_pending)
NUMBER(nvmlDeviceGetNumaNodeId, unsigned, numa_node)
CONSTANT(nvmlDeviceGetDisplayActive, unsigned, 0)
CONSTANT(nvmlDeviceGetDisplayMode, unsigned, 0)
CONSTANT(nvmlDeviceGetPersistenceMode, unsigned, 1)
CONSTANT(nvmlDeviceGetComputeMode, unsigned, 0)
ABSENT(nvmlDeviceGetDriverModel)
ABSENT(nvmlDeviceGetDriverModel_v2)
ABSENT(nvmlDeviceGetFieldValues)
ABSENT(nvmlDeviceGetTemperatureThreshold)
ABSENT(nvmlDeviceGetProcessUtilization)

API int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned *minimum, unsigned *maximum) {
    WHOLE(handle);
    *minimum = (unsigned)DEVICE(handle)->minimum_limit_mw, *maximum = (unsigned)DEVICE(handle)->maximum_limit_mw;
    return SUCCESS;
}
API int nvmlDeviceSetPowerManagementLimit(void *handle, unsigned limit) {
    WHOLE(handle);
    struct device *device = DEVICE(handle);
    if (limit < device->minimum_limit_mw || limit > device->maximum_limit_mw) return INVALID_ARGUMENT;
    device->limit_mw = limit;
    return SUCCESS;
}
API int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    ENTER(INDEX(handle));
    *major = 9, *minor = 0;
    return SUCCESS;
}
API int nvmlDeviceGetUtilizationRates(void *handle, unsigned rates[2]) {
    WHOLE(handle);
    rates[0] = (unsigned)DEVICE(handle)->utilization, rates[1] = (unsigned)DEVICE(handle)->memory_utilization;
    return SUCCESS;
}
API int nvmlDeviceGetEncoderUtilization(void *handle, unsigned *percent, unsigned *period_us) {
    WHOLE(handle);
    *percent = (unsigned)DEVICE(handle)->encoder, *period_us = 167000;
    return SUCCESS;
}
API int nvmlDeviceGetDecoderUtilization(void *handle, unsigned *percent, unsigned *period_us) {
    WHOLE(handle);
    *percent = (unsigned)DEVICE(handle)->decoder, *period_us = 167000;
    return SUCCESS;
}
API int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius) {
    (void)sensor;
    WHOLE(handle);
    *celsius = (unsigned)DEVICE(handle)->temperature;
    return SUCCESS;
}
API int nvmlDeviceGetClockInfo(void *handle, unsigned clock, unsigned *mhz) {
    WHOLE(handle);
    *mhz = (unsigned)(clock == 2 ? DEVICE(handle)->memory_mhz : DEVICE(handle)->sm_mhz);
    return SUCCESS;
}
API int nvmlDeviceGetMaxClockInfo(void *handle, unsigned clock, unsigned *mhz) {
    WHOLE(handle);
    *mhz = clock == 2 ? 2619 : 1980;
    return SUCCESS;
}
API int nvmlDeviceGetEccMode(void *handle, unsigned *current, unsigned *pending) {
    WHOLE(handle);
    *current = *pending = 1;
    return SUCCESS;
}
API int nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned counter, unsigned long long *count) {
    (void)counter;
    WHOLE(handle);
    *count = kind == 0 ? DEVICE(handle)->corrected : DEVICE(handle)->uncorrected;
    return SUCCESS;
}
API int nvmlDeviceGetRetiredPages(void *handle, unsigned cause, unsigned *count, unsigned long long *pages) {
    WHOLE(handle);
    unsigned room = *count;
    *count = (unsigned)(cause == 0 ? DEVICE(handle)->retired_single : DEVICE(handle)->retired_double);
    if (*count > room) return INSUFFICIENT_SIZE;
    for (unsigned place = 0; place < *count; place++) pages[place] = place;
    return SUCCESS;
}
API int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                  unsigned *failed) {
    WHOLE(handle);
    struct device *device = DEVICE(handle);
    *corrected = (unsigned)device->remapped_corrected, *uncorrected = (unsigned)device->remapped_uncorrected;
    *pending = (unsigned)device->remap_pending, *failed = (unsigned)device->remap_failed;
    return SUCCESS;
}

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
API int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *memory) {
    ENTER(INDEX(handle));
    if (PART(handle) >= 0) {
        struct instance *instance = INSTANCE(handle);
        memory->total = instance->total, memory->reserved = 0;
        memory->used = instance->used, memory->free = instance->total - instance->used;
        return SUCCESS;
    }
    struct device *device = DEVICE(handle);
    memory->total = device->total, memory->reserved = device->reserved;
    memory->free = device->free, memory->used = device->used;
    return SUCCESS;
}
API int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
    ENTER(INDEX(handle));
    struct memory_v2 full;
    int error = nvmlDeviceGetMemoryInfo_v2(handle, &full);
    memory->total = full.total, memory->free = full.free, memory->used = full.used + full.reserved;
    return error;
}
API int nvmlDeviceGetBAR1MemoryInfo(void *handle, struct memory *memory) {
    WHOLE(handle);
    *memory = (struct memory){1ull << 37, (1ull << 37) - (1ull << 20), 1ull << 20};
    return SUCCESS;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
static void place(struct pci *pci, int64_t index) {
    memset(pci, 0, sizeof *pci);
    pci->domain = 0xfff0, pci->device = (unsigned)index;
    snprintf(pci->bus_id, sizeof pci->bus_id, "0000FFF0:00:0%d.0", (int)index & 15);
    snprintf(pci->legacy, sizeof pci->legacy, "FFF0:00:0%d.0", (int)index & 15);
}
API int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci) {
    ENTER(INDEX(handle));
    place(pci, INDEX(handle));
    return SUCCESS;
}
API int nvmlDeviceGetPcieThroughput(void *handle, unsigned counter, unsigned *value) {
    (void)counter;
    WHOLE(handle);
    state->throughput_calls++;
    *value = 0;
    return SUCCESS;
}
API int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *up) {
    WHOLE(handle);
    if (link >= DEVICE(handle)->link_count) return NOT_SUPPORTED;
    *up = (unsigned)DEVICE(handle)->links[link].up;
    return SUCCESS;
}
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, struct pci *pci) {
    WHOLE(handle);
    if (link >= DEVICE(handle)->link_count) return NOT_SUPPORTED;
    place(pci, (int64_t)DEVICE(handle)->links[link].remote);
    return SUCCESS;
}
API int nvmlDeviceGetP2PStatus(void *first, void *second, unsigned kind, unsigned *status) {
    WHOLE(first);
    struct device *device = DEVICE(first);
    *status = 4;
    for (uint64_t link = 0; kind == 2 && link < device->link_count; link++) {
        if (device->links[link].up && (int64_t)device->links[link].remote == INDEX(second)) *status = 0;
    }
    return SUCCESS;
}
API int nvmlDeviceGetTopologyCommonAncestor(void *first, void *second, unsigned *level) {
    WHOLE(first);
    *level = (unsigned)DEVICE(first)->topology[INDEX(second)];
    return SUCCESS;
}

struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
static int running(void *handle, unsigned *count, struct process *processes, unsigned graphics) {
    struct device *device = DEVICE(handle);
    unsigned room = *count;
    *count = 0;
    for (uint64_t number = 0; number < device->process_count && number < PROCESSES; number++) {
        struct running *process = &device->processes[number];
        if (process->graphics != graphics) continue;
        if (PART(handle) >= 0 && process->instance != INSTANCE(handle)->gpu_instance) continue;
        if (*count < room) {
            processes[*count] = (struct process){(unsigned)process->pid, process->memory, ~0u, ~0u};
            if (device->mig) processes[*count].gpu_instance = (unsigned)process->instance;
        }
        ++*count;
    }
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}
API int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *processes) {
    ENTER(INDEX(handle));
    return running(handle, count, processes, 0);
}
API int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, struct process *processes) {
    ENTER(INDEX(handle));
    return running(handle, count, processes, 1);
}

struct value { unsigned long long at_us; union { unsigned number; unsigned long long wide; } value; };
API int nvmlDeviceGetSamples(void *handle, unsigned kind, unsigned long long since_us, unsigned *type,
                             unsigned *count, struct value *values) {
    WHOLE(handle);
    struct device *device = DEVICE(handle);
    if (kind > 1) return NOT_SUPPORTED;
    unsigned room = *count;
    *type = 1, *count = SAMPLES;
    if (values == NULL) return SUCCESS;
    *count = 0;
    /* As many new samples at every call, for measurements. */
    for (uint64_t number = 1; number <= state->sampling && *count < room; number++) {
        values[(*count)++] = (struct value){(since_us ? since_us : 1) + number * 1000, {.wide = number}};
    }
    for (uint64_t number = 0; number < device->sample_count && *count < room; number++) {
        struct sample *sample = &device->samples[number];
        if (sample->at_us <= since_us) continue;
        values[*count].at_us = sample->at_us, values[*count].value.wide = 0;
        values[(*count)++].value.number = (unsigned)(kind ? sample->utilization : sample->power_mw);
    }
    return *count ? SUCCESS : NOT_FOUND;
}

API int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    WHOLE(handle);
    *current = *pending = (unsigned)DEVICE(handle)->mig;
    return SUCCESS;
}
API int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is) {
    ENTER(INDEX(handle));
    *is = PART(handle) >= 0;
    return SUCCESS;
}
API int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    WHOLE(handle);
    *count = DEVICE(handle)->mig ? INSTANCES : 0;
    return SUCCESS;
}
API int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **instance) {
    WHOLE(handle);
    if (!DEVICE(handle)->mig || index >= DEVICE(handle)->instance_count) return NOT_FOUND;
    *instance = (void *)((uintptr_t)handle | (uintptr_t)(index + 1) << 8);
    return SUCCESS;
}
API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **parent) {
    ENTER(INDEX(handle));
    *parent = (void *)((uintptr_t)handle & 255);
    return SUCCESS;
}
API int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) {
    ENTER(INDEX(handle));
    if (PART(handle) < 0) return NOT_SUPPORTED;
    *id = (unsigned)INSTANCE(handle)->gpu_instance;
    return SUCCESS;
}
API int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) {
    ENTER(INDEX(handle));
    if (PART(handle) < 0) return NOT_SUPPORTED;
    *id = (unsigned)INSTANCE(handle)->compute_instance;
    return SUCCESS;
}
struct attributes { unsigned processors, copy, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
                    unsigned long long memory_mb; };
API int nvmlDeviceGetAttributes_v2(void *handle, struct attributes *attributes) {
    ENTER(INDEX(handle));
    if (PART(handle) < 0) return NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->gpu_slices = attributes->compute_slices = (unsigned)INSTANCE(handle)->slices;
    attributes->memory_mb = INSTANCE(handle)->total >> 20;
    return SUCCESS;
}

/* One set per process; it hears what is appended to the state after it was made. */
static uint64_t heard, registered;
API int nvmlEventSetCreate(void **set) { ENTER(-1); heard = state->event_count; *set = &heard; return SUCCESS; }
API int nvmlEventSetFree(void *set) { (void)set; registered = 0; return SUCCESS; }
API int nvmlDeviceGetSupportedEventTypes(void *handle, unsigned long long *types) {
    WHOLE(handle);
    *types = 1 | 2 | 8;
    return SUCCESS;
}
API int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) {
    (void)set;
    WHOLE(handle);
    if (types & 8) registered |= 1ull << INDEX(handle);
    return SUCCESS;
}
struct told { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
API int nvmlEventSetWait_v2(void *set, struct told *told, unsigned timeout_ms) {
    (void)set;
    ENTER(-1);
    for (unsigned waited = 0;; waited += 5) {
        while (heard < state->event_count) {
            struct event *event = &state->events[heard++ % EVENTS];
            if (!(registered >> event->device & 1)) continue;
            *told = (struct told){(void *)(uintptr_t)(event->device + 1), event->type, event->data, ~0u, ~0u};
            return SUCCESS;
        }
        if (waited >= timeout_ms) return TIMEOUT;
        usleep(5000);
    }
}
