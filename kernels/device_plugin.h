/* The CUDA back end as a plug-in: found, loaded and registered at run time, so that the program starts
 * fast and runs where CUDA's libraries are not. The plug-in links against nothing of the program; what
 * it needs comes in a table. Both sides include this header.
 *
 * Searched: $DITTO_CUDA_PLUGIN (alone when set), the program's own folder, the plug-in folder of the
 * installation. */
#ifndef KERNELS_DEVICE_PLUGIN_H
#define KERNELS_DEVICE_PLUGIN_H

#include "common/comm.h"
#include "kernels/device.h"

/* Raised whenever a struct changes that both sides use. The versions must be equal as well. */
enum { DEVICE_PLUGIN_ABI = 2 };

/* What the program lends to a plug-in: its functions of the same names. */
struct ditto_host {
    int abi;
    enum status (*status_fail)(enum status code, const char *file, int line, const char *format, ...)
        PRINTF_LIKE(4, 5);
    void (*status_assert_failed)(const char *file, int line, const char *text, long long a, long long b);
    const struct failure *(*status_first)(void);
    void (*log_info)(const char *format, ...) PRINTF_LIKE(1, 2);
    int64_t (*clock_ps)(void);
    enum status (*team_gather)(struct team *, int root, const void *send, size_t bytes, void *recv);
    enum status (*team_broadcast)(struct team *, int root, void *data, size_t bytes);
    enum status (*team_barrier)(struct team *);
    void (*team_abort)(struct team *, enum status why);
    enum status (*team_status)(struct team *);
    enum status (*team_peer_failed)(struct team *);
    void (*team_heartbeat)(struct team *);
    struct team_deadline (*team_deadline_start)(struct team *);
    bool (*team_deadline_passed)(struct team *, struct team_deadline *);
};

/* The plug-in's one symbol: `const struct ditto_plugin ditto_plugin`. */
struct ditto_plugin {
    int abi;
    const char *version; /* of ditto */
    /* Keeps the table. ERR_UNSUPPORTED: this machine has no GPU, no driver, or one too old. */
    enum status (*start)(const struct ditto_host *);
    const struct device_ops *device;
    const struct comm_ops *const *transports; /* NULL-terminated */
};

/* Whether the plug-in brings the device of this name. */
bool device_plugin_brings(const char *device);
/* Loads and registers the plug-in, once; later calls give the first one's result. Before ranks start.
 * ERR_UNSUPPORTED says what is missing and what to do. */
enum status device_plugin_load(void) WARN_UNUSED;

#endif
