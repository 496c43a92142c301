/* A stand-in for libnvidia-ml.so.1: as much of it as one reading of all GPUs asks for.
 *
 * What it answers stands in the text file that NVML_STANDIN names, read anew at every call. INDEX counts the lines that
 * describe a device; a CALL is meant for that device alone if an INDEX follows.
 *   gpu UUID TOTAL_MIB USED_MIB           one GPU; the order gives the index, USED is what belongs to no process
 *   mig PARENT UUID TOTAL_MIB USED_MIB    an instance of a GPU, after all GPUs; a UUID of - is an empty place
 *   proc INDEX PID MIB                    a holder, for as long as the process is there; -1: the driver does not say
 *   kept INDEX PID MIB                    the same, but neither it nor its memory goes with the process
 *   slow INDEX PID MIB SECONDS            the same, but its memory returns bit by bit within SECONDS of its end
 *   busy INDEX PERCENT                    how busy a GPU is
 *   fails CALL CODE [INDEX]               that call answers with an error
 *   hangs CALL [INDEX]                    that call never comes back
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9 };
enum { MOST = 16, MIB = 1 << 20, WHOLE = -1 };
#define NOT_AVAILABLE (~0ULL)

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } Process;
typedef struct { char uuid[96]; long total, used; int parent; } Device;
typedef struct { int device; unsigned pid; long mib; } Holder;

/* Devices are asked about in threads, all at once. */
static _Thread_local Device devices[MOST];
static _Thread_local Holder holders[MOST];
static _Thread_local int device_count, holder_count, busy[MOST];

static int exists(unsigned pid)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%u", pid);
    return access(path, F_OK) == 0;
}

/* When the end of a process was first seen: the time of a file beside the state, so that every reader agrees. */
static double seconds_since_end(unsigned pid)
{
    char path[4096];
    struct stat state;
    struct timespec now;
    snprintf(path, sizeof path, "%s.%u", getenv("NVML_STANDIN"), pid);
    close(open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
    if (stat(path, &state))
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    return (now.tv_sec - state.st_mtim.tv_sec) + (now.tv_nsec - state.st_mtim.tv_nsec) / 1e9;
}

static void take_device(const char *line)
{
    Device device = {.parent = WHOLE};
    if (device_count < MOST
        && (sscanf(line, "gpu %95s %ld %ld", device.uuid, &device.total, &device.used) == 3
            || sscanf(line, "mig %d %95s %ld %ld", &device.parent, device.uuid, &device.total, &device.used) == 4))
        devices[device_count++] = device;
}

static void take_holder(const char *line)
{
    char how[8];
    Holder holder;
    double seconds = 0;
    if (holder_count == MOST
        || sscanf(line, "%7s %d %u %ld %lf", how, &holder.device, &holder.pid, &holder.mib, &seconds) < 4)
        return;
    if (strcmp(how, "kept") && !exists(holder.pid)) {
        double left = strcmp(how, "slow") ? 0 : 1 - seconds_since_end(holder.pid) / seconds;
        if (left <= 0)
            return;
        holder.mib *= left;
    }
    holders[holder_count++] = holder;
}

static int meant(const char *name, int index, const char *function, int device)
{
    return !strcmp(name, function) && (index == WHOLE || index == device);
}

/* Reads the state; the error that this call about a device is to answer with, SUCCESS if none. */
static int enter(const char *function, int device)
{
    char line[256], name[96];
    int code, result = SUCCESS;
    const char *path = getenv("NVML_STANDIN");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file)
        return DRIVER_NOT_LOADED;
    device_count = holder_count = 0;
    while (fgets(line, sizeof line, file)) {
        int index = WHOLE;
        if (!strncmp(line, "proc ", 5) || !strncmp(line, "kept ", 5) || !strncmp(line, "slow ", 5))
            take_holder(line);
        else if (sscanf(line, "busy %d %d", &index, &code) == 2 && index >= 0 && index < MOST)
            busy[index] = code;
        else
            take_device(line);
        index = WHOLE;
        if (sscanf(line, "fails %95s %d %d", name, &code, &index) >= 2 && meant(name, index, function, device))
            result = code;
        index = WHOLE;
        if (sscanf(line, "hangs %95s %d", name, &index) >= 1 && meant(name, index, function, device))
            for (;;)
                pause();
    }
    fclose(file);
    return result;
}

#define ENTER(function, device) do { int code = enter(function, device); if (code) return code; } while (0)

static int index_of(void *device) { return (int)(long)device - 1; }
static void *handle_of(int index) { return (void *)(long)(index + 1); }

static int instances_of(int gpu, int place)
{
    int found = 0;
    for (int i = 0; i < device_count; i++)
        if (devices[i].parent == gpu && found++ == place)
            return i;
    return place < 0 ? found : -1;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return enter("init", WHOLE); }
int nvmlShutdown(void) { return enter("shutdown", WHOLE); }

const char *nvmlErrorString(int code)
{
    switch (code) {
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER("count", WHOLE);
    *count = instances_of(WHOLE, -1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    ENTER("handle", (int)index);
    *device = handle_of((int)index);
    return (int)index < instances_of(WHOLE, -1) ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    ENTER("migmode", index_of(device));
    *current = *pending = instances_of(index_of(device), -1) > 0;
    return *current ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count)
{
    ENTER("migcount", index_of(device));
    *count = instances_of(index_of(device), -1);
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned place, void **instance)
{
    ENTER("mighandle", index_of(device));
    int index = instances_of(index_of(device), (int)place);
    *instance = handle_of(index);
    return index < 0 || !strcmp(devices[index].uuid, "-") ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor)
{
    ENTER("minor", index_of(device));
    *minor = index_of(device);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{
    ENTER("uuid", index_of(device));
    snprintf(text, size, "%s", devices[index_of(device)].uuid);
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *text, unsigned size)
{
    ENTER("name", index_of(device));
    snprintf(text, size, "Stand-in");
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates)
{
    int index = index_of(device);
    ENTER("utilization", index);
    rates[0] = busy[index];
    rates[1] = 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory)
{
    int index = index_of(device);
    ENTER("memory", index);
    long used = devices[index].used;
    for (int i = 0; i < holder_count; i++)
        if (holders[i].device == index && holders[i].mib > 0)
            used += holders[i].mib;
    memory->total = (unsigned long long)devices[index].total * MIB;
    memory->used = (unsigned long long)used * MIB;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* Called twice: without an array for the number, then with one. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *processes)
{
    ENTER("compute", index_of(device));
    unsigned room = processes ? *count : 0, found = 0;
    for (int i = 0; i < holder_count; i++) {
        if (holders[i].device != index_of(device))
            continue;
        if (found < room) {
            unsigned long long bytes = holders[i].mib < 0 ? NOT_AVAILABLE : (unsigned long long)holders[i].mib * MIB;
            processes[found] = (Process){holders[i].pid, bytes, ~0U, ~0U};
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, Process *processes)
{
    (void)processes;
    ENTER("graphics", index_of(device));
    *count = 0;
    return SUCCESS;
}
