/* Finds ditto_cuda.so, checks that it fits, and registers what it brings. */
#include "kernels/device_plugin.h"
#include "config.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"

#define PLUGIN_FILE "ditto_cuda.so"
#define PLUGIN_VARIABLE "DITTO_CUDA_PLUGIN"

static const struct ditto_host host = {
    .abi = DEVICE_PLUGIN_ABI,
    .status_fail = status_fail,
    .status_assert_failed = status_assert_failed,
    .status_first = status_first,
    .log_info = log_info,
    .clock_ps = clock_ps,
    .team_gather = team_gather,
    .team_broadcast = team_broadcast,
    .team_barrier = team_barrier,
    .team_abort = team_abort,
    .team_status = team_status,
    .team_peer_failed = team_peer_failed,
    .team_heartbeat = team_heartbeat,
    .team_deadline_start = team_deadline_start,
    .team_deadline_passed = team_deadline_passed,
};

bool device_plugin_brings(const char *device)
{
    return strcmp(device, "cuda") == 0;
}

/* The folder of the running program, or "" where it cannot be known. */
static void own_folder(char out[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", out, PATH_MAX - 1);
    out[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash != NULL)
        *slash = '\0';
}

static enum status find(char path[PATH_MAX])
{
    const char *given = getenv(PLUGIN_VARIABLE);
    char folder[PATH_MAX];
    if (given != NULL && given[0] != '\0') {
        snprintf(path, PATH_MAX, "%s", given);
        return access(path, F_OK) == 0
                   ? OK
                   : FAIL(ERR_UNSUPPORTED, "the CUDA plug-in is missing: " PLUGIN_VARIABLE
                                           " names %.200s, which is not there",
                          given);
    }
    own_folder(folder);
    if (snprintf(path, PATH_MAX, "%s/" PLUGIN_FILE, folder) < PATH_MAX && access(path, F_OK) == 0)
        return OK;
    snprintf(path, PATH_MAX, "%s/" PLUGIN_FILE, DITTO_PLUGIN_FOLDER);
    if (access(path, F_OK) == 0)
        return OK;
    return FAIL(ERR_UNSUPPORTED,
                "the CUDA plug-in " PLUGIN_FILE " is missing in %.150s and in " DITTO_PLUGIN_FOLDER
                "; build with -Dcuda=enabled where the CUDA toolkit is",
                folder);
}

static enum status open_plugin(const char *path, const struct ditto_plugin **out)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* for the rest of the process */
    if (library == NULL)
        return FAIL(ERR_UNSUPPORTED, "the CUDA plug-in cannot be loaded: %.400s", dlerror());
    const struct ditto_plugin *plugin = dlsym(library, "ditto_plugin");
    if (plugin == NULL)
        return FAIL(ERR_UNSUPPORTED, "%.300s is no plug-in of ditto: %.150s", path, dlerror());
    if (plugin->abi != DEVICE_PLUGIN_ABI || strcmp(plugin->version, DITTO_VERSION) != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%.300s belongs to another ditto (%.20s, ABI %d; this is %s, ABI %d): build both "
                    "together",
                    path, plugin->version, plugin->abi, DITTO_VERSION, DEVICE_PLUGIN_ABI);
    *out = plugin;
    return OK;
}

static enum status load(void)
{
    char path[PATH_MAX];
    const struct ditto_plugin *plugin = NULL;
    TRY(find(path));
    TRY(open_plugin(path, &plugin));
    TRY(plugin->start(&host));
    TRY(device_register(plugin->device));
    for (const struct comm_ops *const *t = plugin->transports; *t != NULL; t++)
        TRY(comm_register(*t));
    return OK;
}

enum status device_plugin_load(void)
{
    static bool is_tried;
    static enum status result;
    static char reason[sizeof((struct failure *)0)->text];
    if (is_tried)
        return result == OK ? OK : FAIL(result, "%s", reason);
    is_tried = true;
    result = load();
    if (result != OK)
        snprintf(reason, sizeof reason, "%s", status_first()->text);
    return result;
}
