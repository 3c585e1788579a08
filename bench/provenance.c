/* Facts about host, build and command line. */
#include "bench/provenance.h"

#include "bench/launch.h"
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* What changes speed or results; nothing else of the environment is ever written. */
static const char *const allowed_environment[] = {
    "CUDA_VISIBLE_DEVICES", "DITTO_TEST_DELAY_MS", "DITTO_TEST_FAIL",  "DITTO_TEST_SLOW",
    "DITTO_TEST_STALL",     "DNNL_MAX_CPU_ISA",    "LANG",             "LC_ALL",
    "NCCL_ALGO",            "NCCL_P2P_DISABLE",    "NCCL_PROTO",       "OMP_NUM_THREADS",
    "OMP_PROC_BIND",        "OMP_WAIT_POLICY",     "OPENBLAS_CORETYPE",
};

/* The value of the first "key : value" line of a /proc file, or "". */
static void proc_value(const char *path, const char *key, char *out, size_t size)
{
    char line[512];
    out[0] = '\0';
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *value = strchr(line, ':');
        value = value ? value + 1 + strspn(value + 1, " \t") : "";
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (file)
        fclose(file);
}

static void add_host(cJSON *provenance)
{
    cJSON *host = json_add_object(provenance, "host");
    struct utsname names;
    bool known = uname(&names) == 0;
    json_add_text(host, "name", known ? names.nodename : NULL);
    json_add_text(host, "kernel", known ? names.release : NULL);
    json_add_text(host, "machine", known ? names.machine : NULL);
    char cpu[256];
    proc_value("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    json_add_text(host, "cpu", cpu);
    json_add_i64(host, "cores", sysconf(_SC_NPROCESSORS_ONLN));
    json_add_i64(host, "usable_cores", launch_usable_cores());
    json_add_u64(host, "memory_bytes",
                 (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

static void add_build(cJSON *provenance)
{
    cJSON *build = json_add_object(provenance, "build");
    json_add_text(build, "version", DITTO_VERSION);
    json_add_text(build, "compiler", __VERSION__);
#ifdef __OPTIMIZE__
    json_add_bool(build, "optimized", 1);
#else
    json_add_bool(build, "optimized", 0);
#endif
    json_add_bool(build, "has_dnnl", HAVE_DNNL);
}

void provenance_add(cJSON *record, int argc, char *const *argv, const char *start, const char *end)
{
    cJSON *provenance = json_add_object(record, "provenance");
    add_host(provenance);
    add_build(provenance);
    cJSON *words = json_add_array(provenance, "argv");
    for (int i = 0; i < argc; i++)
        json_add_text(words, NULL, argv[i]);
    json_add_text(provenance, "start", start);
    json_add_text(provenance, "end", end);
    cJSON *environment = json_add_object(provenance, "environment");
    for (size_t i = 0; i < sizeof allowed_environment / sizeof *allowed_environment; i++) {
        const char *value = getenv(allowed_environment[i]);
        if (value)
            json_add_text(environment, allowed_environment[i], value);
    }
}

/* Ranks on the host of `rank`; 0 when an earlier rank has counted them. */
static int host_ranks(int rank, int nranks)
{
    struct launch_place own, other;
    int count = 0;
    launch_place(rank, &own);
    for (int r = 0; r < nranks; r++) {
        launch_place(r, &other);
        if (strcmp(own.host, other.host) != 0)
            continue;
        if (r < rank)
            return 0;
        count++;
    }
    return count;
}

void provenance_add_mpi(cJSON *record, int nranks)
{
    cJSON *mpi = json_add_object(cJSON_GetObjectItemCaseSensitive(record, "provenance"), "mpi");
    json_add_text(mpi, "library", launch_library());
    cJSON *hosts = json_add_array(mpi, "hosts"), *cores = json_add_array(mpi, "cores");
    cJSON *bound = json_add_array(mpi, "bound");
    for (int r = 0; r < nranks; r++) {
        struct launch_place place;
        launch_place(r, &place);
        json_add_text(cores, NULL, place.cores);
        json_add_bool(bound, NULL, place.is_bound);
        int ranks = host_ranks(r, nranks);
        if (ranks == 0)
            continue;
        cJSON *host = json_add_object(hosts, NULL);
        json_add_text(host, "name", place.host);
        json_add_i64(host, "ranks", ranks);
    }
}
