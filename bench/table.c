/* Formats records for people. */
#include "bench/table.h"

#include "bench/stats.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { VARIANT = 96, MANY = 4096 };

struct row {
    const cJSON *record;
    char variant[VARIANT], group[2 * VARIANT];
    double gpus, pixels;
};

/* Settings that make another variant, and how they are shortened; those at their default are left out. */
static const struct {
    const char *path, *format, *usual;
} marks[] = {
    {"config.stale_mode", " %s", NULL},      {"config.staleness", " s=%s", NULL},
    {"config.warmup_steps", " W=%s", NULL},  {"config.patches", " M=%s", NULL},
    {"config.refresh", " r=%s", "0"},        {"config.stale_transport", " %s", "allreduce"},
    {"config.stale_halves", " %s", "both"},  {"config.stale_blocks", " blocks %s", "all"},
    {"config.extrapolate", " c=%s", "0"},    {"config.cfg_degree", " cfg=%s", "1"},
    {"config.dtype", " %s", "fp32"},         {"config.mode", " mode %s", "full"},
};

static void value_text(const cJSON *value, char *out, size_t size)
{
    if (cJSON_IsNumber(value))
        snprintf(out, size, "%.10g", value->valuedouble);
    else
        snprintf(out, size, "%s", cJSON_IsString(value) ? value->valuestring : "");
}

void table_variant(const cJSON *record, const char *without, char *out, size_t size)
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

/* What stands above a block: everything that is the same for a comparison. */
static void group_text(const cJSON *record, double warmup_steps, char *out, size_t size)
{
    const char *model = json_text(record, "model.name"), *device = json_text(record, "config.device");
    const char *resolution = json_text(record, "config.resolution");
    const char *base = model ? strrchr(model, '/') : NULL;
    size_t used = (size_t)snprintf(out, size, "%.40s, %s px, %.0f steps, device %s",
                                   base ? base + 1 : model ? model : "?", resolution ? resolution : "?",
                                   json_number(record, "config.steps"), device ? device : "?");
    if (!isnan(warmup_steps) && used < size)
        snprintf(out + used, size - used, ", %.0f warm-up steps where stale", warmup_steps);
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = (x->pixels > y->pixels) - (x->pixels < y->pixels);
    if (order == 0)
        order = strcmp(x->group, y->group);
    if (order == 0)
        order = strcmp(x->variant, y->variant);
    return order ? order : (x->gpus > y->gpus) - (x->gpus < y->gpus);
}

static bool same_row(const struct row *x, const struct row *y)
{
    return strcmp(x->group, y->group) == 0 && strcmp(x->variant, y->variant) == 0 &&
           x->gpus == y->gpus;
}

/* Median over the rows that are one; NAN when none has the number. low, high: NULL or the range. */
static double median_of(const struct row *rows, size_t n, const char *path, double *low, double *high)
{
    double values[MANY];
    size_t count = 0;
    for (size_t i = 0; i < n && count < MANY; i++) {
        double value = json_number(rows[i].record, path);
        if (!isnan(value))
            values[count++] = value;
    }
    stats_sort(values, count);
    if (low && high && count > 0) {
        *low = values[0];
        *high = values[count - 1];
    }
    return stats_median(values, count);
}

static void print_cell(FILE *out, int width, const char *format, double value)
{
    char text[32] = "-";
    if (!isnan(value))
        snprintf(text, sizeof text, format, value);
    fprintf(out, " %*s", width, text);
}

static bool is_true(const cJSON *record, const char *path)
{
    return cJSON_IsTrue(json_at(record, path));
}

static void print_error(FILE *out, const struct row *rows, size_t n)
{
    double low = NAN, high = NAN;
    double error = median_of(rows, n, "error.rel_l2", &low, &high);
    double floor = median_of(rows, n, "error.noise_floor", NULL, NULL);
    if (isnan(error))
        fprintf(out, "           -");
    else if (error <= 5.0 * floor || error == 0.0)
        fprintf(out, "       exact");
    else
        print_cell(out, 11, "%.2e", error);
    if (!isnan(error) && high > low && n > 1 && error > 5.0 * floor)
        fprintf(out, "  (%.1e to %.1e over %zu)", low, high, n);
}

static void print_row(FILE *out, const struct row *rows, size_t n, bool *noted)
{
    const cJSON *record = rows[0].record;
    const char *status = json_text(record, "status");
    fprintf(out, "  %-28s %4.0f", rows[0].variant, rows[0].gpus);
    if (!status || strcmp(status, "ok") != 0) {
        const char *reason = json_text(record, "reason");
        fprintf(out, "  %s: %.120s\n", status ? status : "?", reason ? reason : "");
        return;
    }
    double steps = json_number(record, "config.steps");
    bool crowded = is_true(record, "latency_us.oversubscribed");
    *noted = *noted || crowded;
    print_cell(out, 9, "%.1f", median_of(rows, n, "latency_us.median", NULL, NULL) / 1e3);
    fputc(crowded ? '*' : ' ', out);
    print_cell(out, 11, "%.1f",
               median_of(rows, n, "comm.max_sent_bytes", NULL, NULL) / steps / 1024.0);
    print_cell(out, 9, "%.2f", median_of(rows, n, "memory_bytes.peak", NULL, NULL) / 1048576.0);
    print_cell(out, 9, "%.2f", median_of(rows, n, "memory_bytes.stale", NULL, NULL) / 1048576.0);
    print_error(out, rows, n);
    fputc('\n', out);
}

static void print_heading(FILE *out, const char *group)
{
    fprintf(out, "\n%s\n  %-28s %4s %9s  %11s %9s %9s %11s\n", group, "strategy", "gpus", "latency",
            "sent", "memory", "of it", "error");
    fprintf(out, "  %-28s %4s %9s  %11s %9s %9s %11s\n", "", "", "ms", "KiB/step", "MiB", "stale MiB",
            "rel. L2");
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

static void fill_row(struct row *row, const cJSON *record, double warmup_steps)
{
    row->record = record;
    table_variant(record, isnan(warmup_steps) ? NULL : "warmup_steps", row->variant,
                  sizeof row->variant);
    group_text(record, warmup_steps, row->group, sizeof row->group);
    row->gpus = json_number(record, "config.gpus");
    row->pixels = json_number(record, "config.latent.height") *
                  json_number(record, "config.latent.width");
}

enum status table_print(FILE *out, const struct results *results)
{
    struct row *rows = calloc(results->count + 1, sizeof *rows);
    if (!rows)
        return FAIL(ERR_MEMORY, "no memory for a table of %zu rows", results->count);
    double warmup_steps = shared_warmup(results);
    for (size_t i = 0; i < results->count; i++)
        fill_row(&rows[i], results->records[i], warmup_steps);
    qsort(rows, results->count, sizeof *rows, compare_rows);
    bool noted = false;
    for (size_t i = 0, n; i < results->count; i += n) {
        if (i == 0 || strcmp(rows[i].group, rows[i - 1].group) != 0)
            print_heading(out, rows[i].group);
        for (n = 1; i + n < results->count && same_row(&rows[i], &rows[i + n]); n++)
            continue;
        print_row(out, rows + i, n, &noted);
    }
    fprintf(out, "\nlatency: median of a whole image, slowest rank. sent, memory: of the rank with most. "
                 "error: of the final\nlatent against serial; exact: within 5 x the noise floor.\n");
    if (noted)
        fprintf(out, "* more ranks than cores: this latency says nothing about the strategy.\n");
    free(rows);
    return OK;
}
