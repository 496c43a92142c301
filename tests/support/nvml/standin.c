/* A stand-in for libnvidia-ml.so.1: as much of it as one reading of all GPUs asks for.
 *
 * What it answers stands in the text file that NVML_STANDIN names, read anew at every call:
 *   gpu UUID TOTAL_MIB USED_MIB     one device; the order gives the index, USED is what belongs to no process
 *   proc INDEX PID MIB              a holder, for as long as the process is there; MIB of -1: the driver does not say
 *   kept INDEX PID MIB              the same, but neither it nor its memory goes with the process
 *   fails FUNCTION CODE             that call answers with an error
 *   hangs FUNCTION                  that call never comes back
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, UNKNOWN = 999 };
enum { MOST = 16, MIB = 1 << 20 };
#define NOT_AVAILABLE (~0ULL)

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } Process;
typedef struct { char uuid[96]; long total, used; } Gpu;
typedef struct { int gpu; unsigned pid; long mib; } Holder;

static Gpu gpus[MOST];
static Holder holders[MOST];
static int gpu_count, holder_count;

static int exists(unsigned pid)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%u", pid);
    return access(path, F_OK) == 0;
}

static void take(const char *line)
{
    Holder holder;
    Gpu gpu;
    int kept = !strncmp(line, "kept ", 5);
    if (gpu_count < MOST && sscanf(line, "gpu %95s %ld %ld", gpu.uuid, &gpu.total, &gpu.used) == 3)
        gpus[gpu_count++] = gpu;
    else if (holder_count < MOST && sscanf(line, "%*s %d %u %ld", &holder.gpu, &holder.pid, &holder.mib) == 3
             && (kept || (!strncmp(line, "proc ", 5) && exists(holder.pid))))
        holders[holder_count++] = holder;
}

/* Reads the state; the error that this call is to answer with, SUCCESS if none. */
static int enter(const char *function)
{
    char line[256], name[96];
    int code, result = SUCCESS;
    const char *path = getenv("NVML_STANDIN");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return DRIVER_NOT_LOADED;
    gpu_count = holder_count = 0;
    while (fgets(line, sizeof line, file)) {
        take(line);
        if (sscanf(line, "fails %95s %d", name, &code) == 2 && !strcmp(name, function))
            result = code;
        if (sscanf(line, "hangs %95s", name) == 1 && !strcmp(name, function))
            for (;;)
                pause();
    }
    fclose(file);
    return result;
}

#define ENTER(function) do { int code = enter(function); if (code) return code; } while (0)

static int index_of(void *device) { return (int)(long)device - 1; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return enter("init"); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code)
{
    switch (code) {
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned *count) { ENTER("count"); *count = gpu_count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    ENTER("handle");
    *device = (void *)(long)(index + 1);
    return (int)index < gpu_count ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{
    ENTER("uuid");
    snprintf(text, size, "%s", gpus[index_of(device)].uuid);
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *text, unsigned size)
{
    (void)device;
    ENTER("name");
    snprintf(text, size, "Stand-in");
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory)
{
    ENTER("memory");
    int index = index_of(device);
    long used = gpus[index].used;
    for (int i = 0; i < holder_count; i++)
        if (holders[i].gpu == index && holders[i].mib > 0)
            used += holders[i].mib;
    memory->total = (unsigned long long)gpus[index].total * MIB;
    memory->used = (unsigned long long)used * MIB;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* Called twice: without an array for the number, then with one. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *processes)
{
    ENTER("compute");
    unsigned room = processes ? *count : 0, found = 0;
    for (int i = 0; i < holder_count; i++) {
        if (holders[i].gpu != index_of(device))
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
    (void)device, (void)processes;
    ENTER("graphics");
    *count = 0;
    return SUCCESS;
}
