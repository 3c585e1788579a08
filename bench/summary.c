/* Grouping of records. */
#include "bench/summary.h"

#include "bench/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Settings that make another variant, and how they are shortened; those at their default are left out. */
static const struct {
    const char *path, *format, *usual;
} marks[] = {
    {"config.stale_mode", " %s", NULL},      {"config.staleness", " s=%s", NULL},
    {"config.warmup_steps", " W=%s", NULL},  {"config.patches", " M=%s", NULL},
    {"config.refresh", " r=%s", "0"},        {"config.stale_transport", " %s", "allreduce"},
    {"config.stale_halves", " %s", "both"},  {"config.stale_blocks", " blocks %s", "all"},
    {"config.extrapolate", " c=%s", "0"},    {"config.extrapolate_in", " in %s", "steps"},
    {"config.repair", " repair=%s", "0"},    {"config.own_change", " g=%s", "1"},
    {"config.code_bits", " bits=%s", "4"},   {"config.cfg_degree", " cfg=%s", "1"},
    {"config.ulysses_degree", " U=%s", ""},  {"config.dtype", " %s", "fp32"},
    {"config.mode", " mode %s", "full"},     {"config.threads", " threads=%s", "1"},
};

static void value_text(const cJSON *value, char *out, size_t size)
{
    if (cJSON_IsNumber(value))
        snprintf(out, size, "%.10g", value->valuedouble);
    else
        snprintf(out, size, "%s", cJSON_IsString(value) ? value->valuestring : "");
}

void summary_variant(const cJSON *record, const char *without, char *out, size_t size)
{
    const char *strategy = json_text(record, "config.strategy");
    size_t used = (size_t)snprintf(out, size, "%s", strategy ? strategy : "?");
    for (size_t i = 0; i < sizeof marks / sizeof *marks && used < size; i++) {
        char text[40], mark[64];
        value_text(json_at(record, marks[i].path), text, sizeof text);
        if (without && strstr(without, strchr(marks[i].path, '.') + 1))
            continue;
        if (!*text || (marks[i].usual && strcmp(text, marks[i].usual) == 0))
            continue;
        const char *at = strstr(marks[i].format, "%s");
        snprintf(mark, sizeof mark, "%.*s%s%s", (int)(at - marks[i].format), marks[i].format, text,
                 at + 2);
        used += (size_t)snprintf(out + used, size - used, "%s", mark);
    }
}

const char *summary_model(const cJSON *record)
{
    const char *model = json_text(record, "model.name");
    const char *base = model ? strrchr(model, '/') : NULL;
    return base && base[1] ? base + 1 : model ? model : "?";
}

bool summary_is_simulated(const cJSON *record)
{
    const char *device = json_text(record, "config.device");
    return device && strcmp(device, "sim") == 0;
}

bool summary_is_exact(const cJSON *record)
{
    return json_number(record, "error.rel_l2") <= 5.0 * json_number(record, "error.noise_floor");
}

bool summary_is_oversubscribed(const cJSON *record)
{
    return cJSON_IsTrue(json_at(record, "latency_us.oversubscribed"));
}

static bool is_ok(const cJSON *record)
{
    const char *status = json_text(record, "status");
    return status && strcmp(status, "ok") == 0;
}

/* What stands above a block: everything that is the same for a comparison. */
static void group_text(const cJSON *record, double warmup_steps, char *out, size_t size)
{
    const char *device = json_text(record, "config.device");
    const char *resolution = json_text(record, "config.resolution");
    const char *platform = json_text(record, "platform.name");
    double frames = json_number(record, "config.frames");
    double scale = json_number(record, "config.cfg_scale");
    size_t used = (size_t)snprintf(out, size, "%.40s, %s px", summary_model(record),
                                   resolution ? resolution : "?");
    if (frames > 1.0 && used < size)
        used += (size_t)snprintf(out + used, size - used, ", %.0f frames", frames);
    if (scale != 1.0 && !isnan(scale) && used < size)
        used += (size_t)snprintf(out + used, size - used, ", cfg scale %g", scale);
    if (used < size)
        used += (size_t)snprintf(out + used, size - used, ", %.0f steps, device %s%s%.40s",
                                 json_number(record, "config.steps"), device ? device : "?",
                                 platform ? " " : "", platform ? platform : "");
    if (!isnan(warmup_steps) && used < size)
        snprintf(out + used, size - used, ", %.0f warm-up steps where stale", warmup_steps);
}

/* The warm-up that all records share, or NAN: then it belongs to the rows. */
static double shared_warmup(const struct results *results)
{
    double shared = NAN;
    for (size_t i = 0; i < results->count; i++) {
        double steps = json_number(results->records[i], "config.warmup_steps");
        if (!isnan(shared) && !isnan(steps) && steps != shared)
            return NAN;
        shared = isnan(steps) ? shared : steps;
    }
    return shared;
}

/* Ok records of a row come first. */
static int compare_rows(const void *a, const void *b)
{
    const struct summary_row *x = a, *y = b;
    int order = (x->pixels > y->pixels) - (x->pixels < y->pixels);
    if (order == 0)
        order = strcmp(x->group, y->group);
    if (order == 0)
        order = strcmp(x->variant, y->variant);
    if (order == 0)
        order = (x->gpus > y->gpus) - (x->gpus < y->gpus);
    return order ? order : is_ok(y->record) - is_ok(x->record);
}

static bool same_row(const struct summary_row *x, const struct summary_row *y)
{
    return strcmp(x->group, y->group) == 0 && strcmp(x->variant, y->variant) == 0 &&
           x->gpus == y->gpus;
}

/* Over the rows that become one. */
static struct summary_value value_of(const struct summary_row *rows, size_t n, const char *path,
                                     double scale)
{
    struct summary_value value = {NAN, NAN, NAN};
    double *values = calloc(n + 1, sizeof *values);
    ASSERT(values != NULL);
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        double number = json_number(rows[i].record, path);
        if (!isnan(number) && is_ok(rows[i].record))
            values[count++] = number / scale;
    }
    stats_sort(values, count);
    if (count > 0)
        value = (struct summary_value){stats_median(values, count), values[0], values[count - 1]};
    free(values);
    return value;
}

static bool any_oversubscribed(const struct summary_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (summary_is_oversubscribed(rows[i].record))
            return true;
    return false;
}

static void merge(struct summary_row *rows, size_t n, struct summary_row *out)
{
    struct summary_row row = rows[0];
    double steps = json_number(row.record, "config.steps");
    row.count = n;
    for (size_t i = 0; i < n; i++)
        row.failed += !is_ok(rows[i].record);
    row.latency_ms = value_of(rows, n, "latency_us.median", 1e3);
    row.sent_kib = value_of(rows, n, "comm.max_sent_bytes", steps * 1024.0);
    row.memory_mib = value_of(rows, n, "memory_bytes.peak", 1048576.0);
    row.stale_mib = value_of(rows, n, "memory_bytes.stale", 1048576.0);
    row.error = value_of(rows, n, "error.rel_l2", 1.0);
    struct summary_value floor = value_of(rows, n, "error.noise_floor", 1.0);
    row.is_exact = row.error.median == 0.0 || row.error.median <= 5.0 * floor.median;
    row.is_oversubscribed = any_oversubscribed(rows, n);
    row.is_simulated = summary_is_simulated(row.record);
    *out = row;
}

static void fill_row(struct summary_row *row, const cJSON *record, double warmup_steps)
{
    row->record = record;
    summary_variant(record, isnan(warmup_steps) ? NULL : "warmup_steps", row->variant,
                    sizeof row->variant);
    group_text(record, warmup_steps, row->group, sizeof row->group);
    row->gpus = json_number(record, "config.gpus");
    row->pixels = json_number(record, "config.latent.height") *
                  json_number(record, "config.latent.width");
}

enum status summary_build(const struct results *results, struct summary *out)
{
    *out = (struct summary){0};
    struct summary_row *rows = calloc(results->count + 1, sizeof *rows);
    if (!rows)
        return FAIL(ERR_MEMORY, "no memory for a table of %zu rows", results->count);
    double warmup_steps = shared_warmup(results);
    for (size_t i = 0; i < results->count; i++)
        fill_row(&rows[i], results->records[i], warmup_steps);
    qsort(rows, results->count, sizeof *rows, compare_rows);
    out->rows = rows;
    for (size_t i = 0, n; i < results->count; i += n) {
        for (n = 1; i + n < results->count && same_row(&rows[i], &rows[i + n]); n++)
            continue;
        merge(rows + i, n, &rows[out->count++]);
    }
    return OK;
}

void summary_free(struct summary *summary)
{
    free(summary->rows);
    *summary = (struct summary){0};
}
