/* One table of numbers gives reading, range checks and writing. */
#include "bench/platform_file.h"

#include "bench/files.h"

#include <math.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
    "a100-nvlink", "a100-pcie", "h100-nvlink", "h200-nvlink", "l40-pcie",
    "l20-pcie",    "t4-pcie",   "l40-pcie-100gbe", "h100-ib400", NULL};

const char *const *platform_names(void)
{
    return names;
}

/* A number at a path of the file, in the file's unit; `unit` makes it SI. */
static const struct number {
    const char *path;
    size_t offset; /* of a double in struct platform */
    double unit, min, max;
    bool is_optional; /* absent: 0 */
} numbers[] = {
#define AT(field) offsetof(struct platform, field)
    {"gpu.peak_tflops.fp32", AT(gpu.peak_flops[DTYPE_FP32]), 1e12, 1e-6, 1e6, true},
    {"gpu.peak_tflops.bf16", AT(gpu.peak_flops[DTYPE_BF16]), 1e12, 1e-6, 1e6, true},
    {"gpu.peak_tflops.fp16", AT(gpu.peak_flops[DTYPE_FP16]), 1e12, 1e-6, 1e6, true},
    {"gpu.memory_gb_per_s", AT(gpu.memory_bandwidth), 1e9, 1e-3, 1e6, false},
    {"gpu.gemm_ceiling", AT(gpu.gemm_ceiling), 1, 1e-4, 1, false},
    {"gpu.attention_ceiling", AT(gpu.attention_ceiling), 1, 1e-4, 1, false},
    {"gpu.gemm_memory_ceiling", AT(gpu.gemm_memory_ceiling), 1, 1e-4, 1, false},
    {"gpu.memory_ceiling", AT(gpu.memory_ceiling), 1, 1e-4, 1, false},
    {"gpu.launch_us", AT(gpu.launch_s), 1e-6, 0, 1e6, false},
    {"gpu.overlap_cost", AT(gpu.overlap_cost), 1, 0, 1, false},
    {"gpu.host_op_us", AT(gpu.host_op_s), 1e-6, 0, 1e6, true},
    {"node.bus_gb_per_s", AT(node.bus), 1e9, 1e-6, 1e6, false},
    {"node.all_to_all_gb_per_s", AT(node.all_to_all), 1e9, 1e-6, 1e6, true},
    {"node.ll_cap_gb_per_s", AT(node.ll_cap), 1e9, 1e-6, 1e6, true},
    {"node.latency_us", AT(node.latency_s), 1e-6, 0, 1e6, true},
    {"network.nic_gb_per_s", AT(network.bus), 1e9, 1e-6, 1e6, true},
    {"network.ll_cap_gb_per_s", AT(network.ll_cap), 1e9, 1e-6, 1e6, true},
    {"network.latency_us", AT(network.latency_s), 1e-6, 0, 1e6, true},
    {"message_us", AT(message_s), 1e-6, 0, 1e6, true},
#undef AT
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static double *number_of(struct platform *p, const struct number *n)
{
    return (double *)((char *)p + n->offset);
}

/* ---- reading ---- */

static enum status read_number(const char *what, const cJSON *root, const struct number *n,
                               struct platform *p)
{
    const cJSON *at = json_at(root, n->path);
    if (at == NULL && n->is_optional)
        return OK;
    if (!cJSON_IsNumber(at) || !(at->valuedouble >= n->min && at->valuedouble <= n->max))
        return FAIL(ERR_FORMAT, "%s: %s must be a number from %g to %g", what, n->path, n->min, n->max);
    *number_of(p, n) = at->valuedouble * n->unit;
    return OK;
}

static enum status read_count(const char *what, const cJSON *root, const char *path, int fallback,
                              int *out)
{
    const cJSON *at = json_at(root, path);
    *out = fallback;
    if (at == NULL)
        return OK;
    double value = cJSON_IsNumber(at) ? at->valuedouble : -1;
    if (value < 0 || value > 1e6 || value != floor(value))
        return FAIL(ERR_FORMAT, "%s: %s must be a whole number from 0 to 1000000", what, path);
    *out = (int)value;
    return OK;
}

static enum status read_text(const char *what, const cJSON *root, const char *path, char *out,
                             size_t size)
{
    const char *text = json_text(root, path);
    if (text == NULL || strlen(text) >= size)
        return FAIL(ERR_FORMAT, "%s: %s must be a text of at most %zu bytes", what, path, size - 1);
    snprintf(out, size, "%s", text);
    return OK;
}

static enum status read_choice(const char *what, const cJSON *root, const char *path,
                               const char *const choices[2], int *out)
{
    const char *text = json_text(root, path);
    for (*out = 0; *out < 2; (*out)++)
        if (text != NULL && strcmp(text, choices[*out]) == 0)
            return OK;
    return FAIL(ERR_FORMAT, "%s: %s must be \"%s\" or \"%s\"", what, path, choices[0], choices[1]);
}

static const char *const protocols[2] = {"nccl", "alpha-beta"}, *const links[2] = {"nvlink", "pcie"};

static enum status read_structure(const char *what, const cJSON *root, struct platform *p)
{
    int protocol, link;
    double gib = json_number(root, "gpu.memory_gib");
    TRY(read_text(what, root, "name", p->name, sizeof p->name));
    TRY(read_text(what, root, "summary", p->summary, sizeof p->summary));
    TRY(read_choice(what, root, "protocol", protocols, &protocol));
    TRY(read_choice(what, root, "node.link", links, &link));
    TRY(read_count(what, root, "gpu.sms", 0, &p->gpu.sms));
    TRY(read_count(what, root, "node.gpus", 0, &p->node_ranks));
    TRY(read_count(what, root, "node.gpus_per_port", 1, &p->port_ranks));
    TRY(read_count(what, root, "network.nics", 0, &p->nics));
    p->protocol = (enum platform_protocol)protocol;
    p->link = (enum platform_link)link;
    if (!isnan(gib) && !(gib > 0 && gib < 1e6))
        return FAIL(ERR_FORMAT, "%s: gpu.memory_gib must be positive", what);
    p->gpu.memory_bytes = isnan(gib) ? 0 : (uint64_t)(gib * 1073741824.0);
    return OK;
}

/* What one field means depends on others. */
static enum status check(const char *what, struct platform *p)
{
    double peak = 0;
    for (int t = 0; t < DTYPE_COUNT; t++)
        peak += p->gpu.peak_flops[t];
    if (peak == 0)
        return FAIL(ERR_FORMAT, "%s: gpu.peak_tflops names no dtype", what);
    if (p->node_ranks > 0 && (p->nics < 1 || p->network.bus == 0))
        return FAIL(ERR_FORMAT, "%s: nodes of %d need network.nics and network.nic_gb_per_s", what,
                    p->node_ranks);
    if (p->protocol == PROTOCOL_NCCL && p->node.ll_cap == 0)
        return FAIL(ERR_FORMAT, "%s: protocol nccl needs node.ll_cap_gb_per_s", what);
    if (p->protocol == PROTOCOL_NCCL && p->node_ranks > 0 && p->network.ll_cap == 0)
        return FAIL(ERR_FORMAT, "%s: protocol nccl needs network.ll_cap_gb_per_s", what);
    if (p->node.all_to_all == 0)
        p->node.all_to_all = p->node.bus;
    return OK;
}

enum status platform_read(const char *what, const cJSON *root, const char *text, size_t bytes,
                          struct platform *out)
{
    struct platform p = {0};
    SHA2_CTX hash;
    const char *schema = json_text(root, "schema");
    if (schema == NULL || strcmp(schema, PLATFORM_SCHEMA) != 0)
        return FAIL(ERR_FORMAT, "%s: schema must be \"" PLATFORM_SCHEMA "\"", what);
    TRY(read_structure(what, root, &p));
    for (int i = 0; i < NUMBERS; i++)
        TRY(read_number(what, root, &numbers[i], &p));
    TRY(check(what, &p));
    SHA256Init(&hash);
    SHA256Update(&hash, (const uint8_t *)text, bytes);
    SHA256End(&hash, p.sha256);
    *out = p;
    return OK;
}

static bool is_known(const char *name)
{
    for (const char *const *n = names; *n != NULL; n++)
        if (strcmp(*n, name) == 0)
            return true;
    return false;
}

static enum status find_file(const char *name, char path[FILES_PATH])
{
    char shipped[128];
    if (is_known(name)) {
        snprintf(shipped, sizeof shipped, "bench/platforms/%s.json", name);
        return files_find_data(shipped, path);
    }
    if (access(name, R_OK) != 0)
        return FAIL(ERR_USAGE, "--platform %.200s: neither a platform (bench list platforms) nor a "
                               "file that can be read", name);
    snprintf(path, FILES_PATH, "%s", name);
    return OK;
}

enum status platform_load(const char *name, struct platform *out)
{
    char path[FILES_PATH], *text;
    size_t bytes;
    cJSON *root = NULL;
    TRY(find_file(name, path));
    TRY(json_read_file(path, &text, &bytes));
    enum status status = json_parse(name, text, bytes, &root);
    if (status == OK)
        status = platform_read(name, root, text, bytes, out);
    cJSON_Delete(root);
    free(text);
    return status;
}

/* ---- writing ---- */

/* The object that a dotted path's last part belongs into, made on the way. */
static cJSON *parent_of(cJSON *root, const char *path, const char **last)
{
    const char *dot;
    while ((dot = strchr(path, '.')) != NULL) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        cJSON *child = cJSON_GetObjectItemCaseSensitive(root, key);
        root = child != NULL ? child : json_add_object(root, key);
        path = dot + 1;
    }
    *last = path;
    return root;
}

static void put_number(cJSON *root, const char *path, double value)
{
    const char *key;
    cJSON *parent = parent_of(root, path, &key);
    json_add_number(parent, key, value, "");
}

static void put_count(cJSON *root, const char *path, int value)
{
    const char *key;
    cJSON *parent = parent_of(root, path, &key);
    json_add_i64(parent, key, value);
}

/* Six digits: what a fit knows, and no rounding error of a change of units. */
static double rounded(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    return strtod(text, NULL);
}

cJSON *platform_json(const struct platform *p, const char *how)
{
    cJSON *root = cJSON_CreateObject();
    ASSERT(root != NULL);
    json_add_text(root, "schema", PLATFORM_SCHEMA);
    json_add_text(root, "name", p->name);
    json_add_text(root, "summary", p->summary);
    if (how != NULL)
        json_add_text(root, "calibration", how);
    json_add_text(root, "protocol", protocols[p->protocol]);
    put_count(root, "gpu.sms", p->gpu.sms);
    if (p->gpu.memory_bytes > 0)
        put_number(root, "gpu.memory_gib", rounded((double)p->gpu.memory_bytes / 1073741824.0));
    put_count(root, "node.gpus", p->node_ranks);
    put_count(root, "node.gpus_per_port", p->port_ranks);
    json_add_text(cJSON_GetObjectItemCaseSensitive(root, "node"), "link", links[p->link]);
    if (p->nics > 0)
        put_count(root, "network.nics", p->nics);
    for (int i = 0; i < NUMBERS; i++) {
        double value = *number_of((struct platform *)p, &numbers[i]);
        if (value != 0 || !numbers[i].is_optional)
            put_number(root, numbers[i].path, rounded(value / numbers[i].unit));
    }
    return root;
}

enum status platform_write(const char *path, const struct platform *p, const char *how)
{
    struct files_output file = {0};
    TRY(files_create(path, &file));
    cJSON *root = platform_json(p, how);
    char *text = cJSON_Print(root);
    bool is_written = text != NULL && fprintf(file.stream, "%s\n", text) > 0;
    free(text);
    cJSON_Delete(root);
    if (is_written)
        return files_commit(&file);
    files_discard(&file);
    return FAIL(ERR_IO, "%s: cannot write the platform", path);
}
