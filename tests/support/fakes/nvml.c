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
       TIMEOUT = 10, GPU_IS_LOST = 15, IN_USE = 19, INSUFFICIENT_RESOURCES = 23, UNKNOWN = 999 };
enum { DEVICES = 8, RULES = 16, LINKS = 18, PROCESSES = 4, INSTANCES = 8, SAMPLES = 128, EVENTS = 64,
       MAGIC = 0x6e766d6c };

/* Mirrored by tests/support/fakes/nvml.py; eight-byte numbers leave no padding to disagree about. */
struct link { uint64_t up, remote; };
struct running { uint64_t pid, memory, graphics, instance, utilization; };
struct sample { uint64_t at_us, utilization, power_mw; };
struct instance { char uuid[96], name[96]; uint64_t gpu_instance, compute_instance, total, used, slices, start, size, whole; };
struct device {
    char uuid[96], name[96], serial[32];
    uint64_t lost, utilization, memory_utilization, total, reserved, free, used, temperature, power_mw, limit_mw;
    uint64_t default_limit_mw, minimum_limit_mw, maximum_limit_mw, energy_mj, sm_mhz, memory_mhz, throttle, locked_mhz;
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
API int nvmlDeviceGetSupportedMemoryClocks(void *handle, unsigned *count, unsigned *clocks) {
    WHOLE(handle);
    unsigned room = *count;
    *count = 2;
    if (room < 2) return INSUFFICIENT_SIZE;
    clocks[0] = 2619, clocks[1] = 1593;
    return SUCCESS;
}
API int nvmlDeviceGetSupportedGraphicsClocks(void *handle, unsigned memory, unsigned *count, unsigned *clocks) {
    WHOLE(handle);
    unsigned room = *count;
    *count = 3;
    if (room < 3) return INSUFFICIENT_SIZE;
    clocks[0] = memory == 2619 ? 1980 : 1755, clocks[1] = 1200, clocks[2] = 345;
    return SUCCESS;
}
API int nvmlDeviceSetGpuLockedClocks(void *handle, unsigned minimum, unsigned maximum) {
    WHOLE(handle);
    if (minimum > maximum) return INVALID_ARGUMENT;
    DEVICE(handle)->locked_mhz = maximum;
    return SUCCESS;
}
API int nvmlDeviceResetGpuLockedClocks(void *handle) {
    WHOLE(handle);
    DEVICE(handle)->locked_mhz = 0;
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

/* Those that are busy, and no others, as drivers have it. */
struct turn { unsigned pid; unsigned long long at_us; unsigned sm, memory, encoder, decoder; };
API int nvmlDeviceGetProcessUtilization(void *handle, struct turn *turns, unsigned *count, unsigned long long since_us) {
    WHOLE(handle);
    struct device *device = DEVICE(handle);
    unsigned room = turns == NULL ? 0 : *count;
    *count = 0;
    for (uint64_t number = 0; number < device->process_count && number < PROCESSES; number++) {
        struct running *process = &device->processes[number];
        if (!process->utilization) continue;
        if (*count < room) {
            turns[*count] = (struct turn){(unsigned)process->pid, since_us + 1, (unsigned)process->utilization, 0, 0, 0};
        }
        ++*count;
    }
    if (!*count) return NOT_FOUND;
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
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
    struct device *device = DEVICE(handle);
    for (uint64_t place = 0; device->mig && place < device->instance_count; place++) {
        if (!device->instances[place].whole || index--) continue;
        *instance = (void *)((uintptr_t)handle | (uintptr_t)(place + 1) << 8);
        return SUCCESS;
    }
    return NOT_FOUND;
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

/* MIG instances that are made and removed. The table is an H100's, as `nvidia-smi mig -lgip` and -lgipp tell it. */
struct profile { unsigned number, id, slices, size, limit; const char *name; unsigned starts[7]; };
static const struct profile profiles[] = {
    {0, 19, 1, 1, 7, "1g.10gb", {0, 1, 2, 3, 4, 5, 6}}, {1, 14, 2, 2, 3, "2g.20gb", {0, 2, 4}},
    {2, 9, 3, 4, 2, "3g.40gb", {0, 4}}, {3, 5, 4, 4, 1, "4g.40gb", {0}}, {4, 0, 7, 8, 1, "7g.80gb", {0}},
    {7, 20, 1, 1, 1, "1g.10gb+me", {0}}, {9, 15, 1, 2, 4, "1g.20gb", {0, 2, 4, 6}},
};
enum { PROFILES = sizeof profiles / sizeof *profiles };
static const struct profile *profile_with(unsigned value, int by_id) {
    for (int place = 0; place < PROFILES; place++) {
        if ((by_id ? profiles[place].id : profiles[place].number) == value) return &profiles[place];
    }
    return NULL;
}
static const struct profile *profile_of(struct instance *instance) {
    for (int place = 0; place < PROFILES; place++) {
        const char *at = strstr(instance->name, "MIG ");
        if (at && !strcmp(at + 4, profiles[place].name)) return &profiles[place];
    }
    return NULL;
}
/* A GPU instance's handle is its GPU's with its id, from 1, in the third byte; a compute instance's has a bit more. */
#define COMPUTE ((uintptr_t)1 << 30)
static void *gpu_instance_handle(void *handle, struct instance *instance) {
    return (void *)(((uintptr_t)handle & 255) | (uintptr_t)(instance->gpu_instance + 1) << 16);
}
static struct instance *instance_with(void *handle) {
    struct device *device = DEVICE(handle);
    for (uint64_t place = 0; place < device->instance_count; place++) {
        uint64_t id = ((uintptr_t)handle & ~COMPUTE) >> 16;
        if (device->instances[place].gpu_instance + 1 == id) return &device->instances[place];
    }
    return NULL;
}
static int in_use(void *handle, struct instance *instance) {
    struct device *device = DEVICE(handle);
    for (uint64_t number = 0; number < device->process_count; number++) {
        if (device->processes[number].instance == instance->gpu_instance) return 1;
    }
    return 0;
}
struct profile_info { unsigned version, id, p2p, slices, limit, processors, copy, decoders, encoders, jpeg, ofa;
                      unsigned long long memory_mb; char name[96]; };
API int nvmlDeviceGetGpuInstanceProfileInfoV(void *handle, unsigned number, struct profile_info *info) {
    WHOLE(handle);
    const struct profile *profile = profile_with(number, 0);
    if (!profile) return NOT_SUPPORTED;
    unsigned version = info->version;
    memset(info, 0, sizeof *info);
    info->version = version, info->id = profile->id, info->slices = profile->slices, info->limit = profile->limit;
    info->memory_mb = profile->size * (DEVICE(handle)->total >> 20) / 8;
    snprintf(info->name, sizeof info->name, "%s", profile->name);
    return SUCCESS;
}
struct placement { unsigned start, size; };
API int nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *handle, unsigned id, struct placement *found,
                                                      unsigned *count) {
    WHOLE(handle);
    const struct profile *profile = profile_with(id, 1);
    if (!profile) return INVALID_ARGUMENT;
    *count = id == 20 ? 7 : profile->limit;
    for (unsigned place = 0; found && place < *count; place++) {
        found[place] = (struct placement){id == 20 ? place : profile->starts[place], profile->size};
    }
    return SUCCESS;
}
API int nvmlDeviceGetGpuInstances(void *handle, unsigned id, void **found, unsigned *count) {
    WHOLE(handle);
    struct device *device = DEVICE(handle);
    *count = 0;
    for (uint64_t place = 0; place < device->instance_count; place++) {
        const struct profile *profile = profile_of(&device->instances[place]);
        if (profile && profile->id == id) found[(*count)++] = gpu_instance_handle(handle, &device->instances[place]);
    }
    return SUCCESS;
}
struct gpu_instance { void *device; unsigned id, profile; struct placement placement; };
API int nvmlGpuInstanceGetInfo(void *handle, struct gpu_instance *info) {
    ENTER(INDEX(handle));
    struct instance *instance = instance_with(handle);
    if (!instance) return NOT_FOUND;
    *info = (struct gpu_instance){(void *)((uintptr_t)handle & 255), (unsigned)instance->gpu_instance,
                                  profile_of(instance)->id,
                                  {(unsigned)instance->start, (unsigned)instance->size}};
    return SUCCESS;
}
API int nvmlDeviceCreateGpuInstanceWithPlacement(void *handle, unsigned id, const struct placement *wanted,
                                                 void **made) {
    WHOLE(handle);
    struct device *device = DEVICE(handle);
    const struct profile *profile = profile_with(id, 1);
    if (!device->mig || !profile || wanted->size != profile->size) return INVALID_ARGUMENT;
    uint64_t next = 1;
    for (uint64_t place = 0; place < device->instance_count; place++) {
        struct instance *other = &device->instances[place];
        if (other->start < wanted->start + wanted->size && wanted->start < other->start + other->size)
            return INSUFFICIENT_RESOURCES;
        if (other->gpu_instance >= next) next = other->gpu_instance + 1;
    }
    if (device->instance_count == INSTANCES) return INSUFFICIENT_RESOURCES;
    struct instance *instance = &device->instances[device->instance_count++];
    memset(instance, 0, sizeof *instance);
    snprintf(instance->uuid, sizeof instance->uuid, "MIG-fa4e0000-0000-0000-0001-0000000%d%02d%02d",
             (int)INDEX(handle), (int)wanted->start, (int)profile->id);
    snprintf(instance->name, sizeof instance->name, "%s MIG %s", device->name, profile->name);
    instance->gpu_instance = next, instance->slices = profile->slices;
    instance->total = profile->size * device->total / 8;
    instance->start = wanted->start, instance->size = wanted->size;
    *made = gpu_instance_handle(handle, instance);
    return SUCCESS;
}
API int nvmlGpuInstanceDestroy(void *handle) {
    ENTER(INDEX(handle));
    struct device *device = DEVICE(handle);
    struct instance *instance = instance_with(handle);
    if (!instance) return NOT_FOUND;
    if (instance->whole || in_use(handle, instance)) return IN_USE;
    struct instance *last = &device->instances[--device->instance_count];
    for (; instance < last; instance++) *instance = instance[1];
    return SUCCESS;
}
struct compute_profile { unsigned id, slices, limit, processors, shared[5]; };
API int nvmlGpuInstanceGetComputeInstanceProfileInfo(void *handle, unsigned number, unsigned engine,
                                                     struct compute_profile *info) {
    (void)engine;
    ENTER(INDEX(handle));
    struct instance *instance = instance_with(handle);
    static const unsigned slices[] = {1, 2, 3, 4, 7};
    if (!instance || number > 4 || slices[number] > instance->slices) return NOT_SUPPORTED;
    *info = (struct compute_profile){number, slices[number], (unsigned)instance->slices / slices[number], 0, {0}};
    return SUCCESS;
}
API int nvmlGpuInstanceGetComputeInstances(void *handle, unsigned id, void **found, unsigned *count) {
    ENTER(INDEX(handle));
    struct instance *instance = instance_with(handle);
    if (!instance) return NOT_FOUND;
    static const unsigned slices[] = {1, 2, 3, 4, 7};
    *count = instance->whole && slices[id] == instance->slices;
    if (*count) *found = (void *)((uintptr_t)handle | COMPUTE);
    return SUCCESS;
}
API int nvmlGpuInstanceCreateComputeInstance(void *handle, unsigned id, void **made) {
    (void)id;
    ENTER(INDEX(handle));
    struct instance *instance = instance_with(handle);
    if (!instance || instance->whole) return INSUFFICIENT_RESOURCES;
    instance->whole = 1;
    *made = (void *)((uintptr_t)handle | COMPUTE);
    return SUCCESS;
}
API int nvmlComputeInstanceDestroy(void *handle) {
    ENTER(INDEX(handle));
    struct instance *instance = instance_with(handle);
    if (!instance) return NOT_FOUND;
    if (in_use(handle, instance)) return IN_USE;
    instance->whole = 0;
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
