/* Points in this process, from a line of text; golden cases from their manifest. */
#include "tests/run_point.h"

#include "common/safetensors.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *root(void)
{
    const char *path = getenv("DITTO_TEST_ROOT");
    return path ? path : ".";
}

/* Values that name files of the source tree become absolute. */
static void expand(const char *value, char *out, size_t size)
{
    bool is_file = strncmp(value, "tests/", 6) == 0 || strncmp(value, "models/", 7) == 0;
    snprintf(out, size, "%s%s%s", is_file ? root() : "", is_file ? "/" : "", value);
}

static enum status assign(struct option_set *options, char *line)
{
    char *rest = NULL, value[1024];
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        if (!equals)
            return FAIL(ERR_USAGE, "run_point: %s has no value", word);
        *equals = 0;
        expand(equals + 1, value, sizeof value);
        TRY(option_assign(options, word, value));
    }
    return OK;
}

static enum status resolve_and_measure(struct run_point *run, char *line)
{
    char defaults[] = "repeat=1 warmup-runs=0";
    struct measure_request request = {.want_output = true};
    TRY(point_options_init(&run->options));
    TRY(assign(&run->options, defaults));
    TRY(assign(&run->options, line));
    TRY(point_resolve(&run->options, &run->point));
    return measure_point(&run->point, &request, &run->measured);
}

void run_point(struct run_point *run, const char *arguments, ...)
{
    char line[4096];
    va_list args;
    va_start(args, arguments);
    vsnprintf(line, sizeof line, arguments, args);
    va_end(args);
    *run = (struct run_point){0};
    status_clear();
    run->status = resolve_and_measure(run, line);
    run->failure = *status_first();
    status_clear();
}

void run_point_free(struct run_point *run)
{
    measure_free(&run->measured);
    point_close(&run->point);
    option_set_free(&run->options);
}

double run_point_distance(const struct run_point *run, const float *values, size_t count)
{
    double difference = 0, norm = 0;
    if (count != run->measured.values || !run->measured.x0)
        return INFINITY;
    for (size_t i = 0; i < count; i++) {
        double d = (double)run->measured.x0[i] - (double)values[i];
        difference += d * d;
        norm += (double)values[i] * (double)values[i];
    }
    double distance = sqrt(difference / norm);
    return isfinite(distance) ? distance : (double)INFINITY;
}

double run_point_distance_to(const struct run_point *run, const struct run_point *reference)
{
    return run_point_distance(run, reference->measured.x0, reference->measured.values);
}

uint64_t run_point_sent(const struct run_point *run, int rank, enum comm_op op, enum traffic traffic)
{
    const struct comm_counts *counts = &run->measured.ranks[rank].counts;
    return counts->of[PHASE_SYNC][op][traffic].sent_bytes +
           counts->of[PHASE_STALE][op][traffic].sent_bytes;
}

uint64_t run_point_sent_all(const struct run_point *run, int rank)
{
    uint64_t bytes = 0;
    for (int op = 0; op < COMM_OPS; op++)
        for (int traffic = 0; traffic < TRAFFIC_KINDS; traffic++)
            bytes += run_point_sent(run, rank, (enum comm_op)op, (enum traffic)traffic);
    return bytes;
}

static const char *check_kind(const struct run_point *run, int rank, int phase, int op, int traffic)
{
    static char text[256];
    const struct rank_result *result = &run->measured.ranks[rank];
    unsigned long long counted = result->counts.of[phase][op][traffic].sent_bytes;
    unsigned long long claimed = result->claim.sent_bytes[phase][op][traffic];
    if (counted == claimed)
        return NULL;
    snprintf(text, sizeof text, "rank %d, %s of %s, %s steps: %llu bytes counted, %llu claimed", rank,
             comm_op_name((enum comm_op)op), traffic_name((enum traffic)traffic),
             phase == PHASE_SYNC ? "sync" : "stale", counted, claimed);
    return text;
}

static const char *check_rank(const struct run_point *run, int rank)
{
    static char text[256];
    const struct rank_result *result = &run->measured.ranks[rank];
    for (int phase = 0; phase < STEP_PHASES; phase++)
        for (int op = 0; op < COMM_OPS; op++)
            for (int traffic = 0; traffic < TRAFFIC_KINDS; traffic++) {
                const char *wrong = check_kind(run, rank, phase, op, traffic);
                if (wrong)
                    return wrong;
            }
    if (result->moved_bytes != run_point_sent_all(run, rank)) {
        snprintf(text, sizeof text, "rank %d: %llu bytes moved, %llu counted", rank,
                 (unsigned long long)result->moved_bytes,
                 (unsigned long long)run_point_sent_all(run, rank));
        return text;
    }
    if (result->memory.peak[MEMORY_STALE] != result->claim.stale_bytes) {
        snprintf(text, sizeof text, "rank %d: %llu stale bytes held, %llu claimed", rank,
                 (unsigned long long)result->memory.peak[MEMORY_STALE],
                 (unsigned long long)result->claim.stale_bytes);
        return text;
    }
    return NULL;
}

const char *run_point_check_bytes(const struct run_point *run)
{
    for (int rank = 0; rank < run->measured.nranks; rank++) {
        const char *wrong = check_rank(run, rank);
        if (wrong)
            return wrong;
    }
    return NULL;
}

void run_point_well(struct run_point *run, const char *arguments, ...)
{
    char line[4096];
    va_list args;
    va_start(args, arguments);
    vsnprintf(line, sizeof line, arguments, args);
    va_end(args);
    run_point(run, "%s", line);
    if (run->status != OK)
        fail_msg("%s: %s", line, run->failure.text);
    const char *wrong = run->measured.repeat > 0 ? run_point_check_bytes(run) : NULL;
    if (wrong)
        fail_msg("%s: %s", line, wrong);
}

void run_point_expect_equal(const char *a, const char *b, double tolerance)
{
    struct run_point left, right;
    run_point_well(&left, "%s", a);
    run_point_well(&right, "%s", b);
    double distance = run_point_distance_to(&left, &right);
    if (!(distance <= tolerance))
        fail_msg("%s against %s: relative L2 %g > %g", a, b, distance, tolerance);
    run_point_free(&left);
    run_point_free(&right);
}

/* ---- golden cases ---- */

/* Manifest keys that are options, beside steps, class, cfg_scale and frames. */
static const char *const option_keys[] = {"steps",        "class",        "cfg_scale",
                                          "frames",       "stale_mode",   "warmup_steps",
                                          "staleness",    "refresh",      "patches",
                                          "stale_halves", "stale_blocks", "extrapolate"};

static void append(char *line, size_t size, const char *key, const cJSON *value)
{
    size_t used = strlen(line);
    if (cJSON_IsString(value))
        snprintf(line + used, size - used, " %s=%s", key, value->valuestring);
    else
        snprintf(line + used, size - used, " %s=%.17g", key, value->valuedouble);
    for (char *c = line + used + 1; *c && *c != '='; c++)
        *c = *c == '_' ? '-' : *c;
}

static const char *text_of(const cJSON *entry, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(entry, key);
    return cJSON_IsString(value) ? value->valuestring : "";
}

static int int_of(const cJSON *entry, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(entry, key);
    return cJSON_IsNumber(value) ? value->valueint : 0;
}

static bool load_latent(struct golden_case *g)
{
    char path[512];
    struct safetensors *file;
    snprintf(path, sizeof path, "%s/tests/golden/%s", root(), g->file);
    if (safetensors_open(path, &file) != OK)
        return false;
    const struct safetensors_tensor *t = safetensors_find(file, "trajectory");
    const struct safetensors_tensor *x = safetensors_find(file, "x_T");
    bool is_read = false;
    if (t && x && (g->x0 = malloc(x->elements * sizeof *g->x0)) != NULL) {
        g->count = x->elements;
        is_read = safetensors_read_floats(file, t, t->elements - g->count, g->count, g->x0) == OK;
        size_t used = strlen(g->arguments);
        snprintf(g->arguments + used, sizeof g->arguments - used, " resolution=%llux%llu",
                 (unsigned long long)x->shape[x->dims - 2], (unsigned long long)x->shape[x->dims - 1]);
    }
    safetensors_close(file);
    return is_read;
}

static bool read_case(const cJSON *entry, struct golden_case *g)
{
    snprintf(g->file, sizeof g->file, "%s", text_of(entry, "file"));
    snprintf(g->model, sizeof g->model, "%s", text_of(entry, "model"));
    snprintf(g->strategy, sizeof g->strategy, "%s", text_of(entry, "strategy"));
    g->gpus = int_of(entry, "gpus");
    g->frames = int_of(entry, "frames");
    g->is_peers = strcmp(text_of(entry, "stale_mode"), "peers") == 0;
    snprintf(g->arguments, sizeof g->arguments, "model=tests/models/%s init=tests/golden/%s", g->model,
             g->file);
    for (size_t i = 0; i < sizeof option_keys / sizeof *option_keys; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(entry, option_keys[i]);
        if (value)
            append(g->arguments, sizeof g->arguments, option_keys[i], value);
    }
    return load_latent(g);
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = calloc(1, 1 << 20);
    if (text && fread(text, 1, (1 << 20) - 1, file) == 0)
        text[0] = 0;
    fclose(file);
    return text;
}

struct golden_case *golden_load(size_t *count)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/manifest.json", root());
    char *text = read_text(path);
    cJSON *manifest = text ? cJSON_Parse(text) : NULL;
    size_t n = (size_t)cJSON_GetArraySize(manifest);
    struct golden_case *cases = n ? calloc(n, sizeof *cases) : NULL;
    bool is_good = cases != NULL;
    *count = 0;
    for (const cJSON *entry = manifest ? manifest->child : NULL; is_good && entry; entry = entry->next)
        is_good = read_case(entry, &cases[(*count)++]);
    cJSON_Delete(manifest);
    free(text);
    if (is_good)
        return cases;
    golden_free(cases, *count);
    return NULL;
}

void golden_free(struct golden_case *cases, size_t count)
{
    for (size_t i = 0; cases && i < count; i++)
        free(cases[i].x0);
    free(cases);
}
