/* Records to series. */
#include "bench/plot_data.h"

#include "bench/stats.h"
#include "bench/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- points ---- */

static enum status add_point(struct plot_data *data, const cJSON *record, const char *series, double x,
                             double y, double low, double high)
{
    if (!isfinite(x) || !isfinite(y))
        return OK;
    struct plot_point *grown = realloc(data->points, (data->count + 1) * sizeof *grown);
    if (!grown)
        return FAIL(ERR_MEMORY, "no memory for %zu points of a figure", data->count + 1);
    data->points = grown;
    struct plot_point *point = &grown[data->count++];
    *point = (struct plot_point){.x = x, .y = y, .low = low, .high = high};
    const char *strategy = json_text(record, "config.strategy");
    const char *resolution = json_text(record, "config.resolution");
    snprintf(point->series, PLOT_TEXT, "%s", series);
    snprintf(point->strategy, PLOT_TEXT, "%s", strategy ? strategy : "?");
    snprintf(point->panel, PLOT_TEXT, "%.40s pixels", resolution ? resolution : "?");
    point->panel_order = json_number(record, "config.latent.height") *
                         json_number(record, "config.latent.width");
    return OK;
}

/* ---- figures ---- */

static enum status add_staleness(const cJSON *record, double most_gpus, struct plot_data *data)
{
    (void)most_gpus;
    char variant[PLOT_TEXT - 16], series[PLOT_TEXT];
    double error = json_number(record, "error.rel_l2"), gpus = json_number(record, "config.gpus");
    if (!(gpus > 1.0))
        return OK; /* one rank has nobody's old values to use, or the same result as many */
    table_variant(record, "staleness warmup_steps", variant, sizeof variant);
    const char *mode = json_text(record, "config.stale_mode");
    if (mode && strcmp(mode, "all") == 0) /* all ranks stay equal: the result does not depend on N */
        snprintf(series, sizeof series, "%s, any number", variant);
    else
        snprintf(series, sizeof series, "%s, %.0f ranks", variant, gpus);
    return add_point(data, record, series, json_number(record, "config.staleness"), error, error, error);
}

static enum status add_bytes(const cJSON *record, double most_gpus, struct plot_data *data)
{
    (void)most_gpus;
    char series[PLOT_TEXT];
    double kib = json_number(record, "comm.max_sent_bytes") / json_number(record, "config.steps") / 1024.0;
    table_variant(record, "warmup_steps", series, sizeof series);
    return add_point(data, record, series, json_number(record, "config.gpus"), kib, kib, kib);
}

static enum status add_steps(const cJSON *record, double most_gpus, struct plot_data *data)
{
    char series[PLOT_TEXT];
    const char *strategy = json_text(record, "config.strategy");
    if (json_number(record, "config.gpus") < most_gpus || !strategy || strcmp(strategy, "serial") == 0)
        return OK;
    if (json_number(record, "error.rel_l2") <= 5.0 * json_number(record, "error.noise_floor")) {
        data->exact++;
        return OK;
    }
    table_variant(record, "warmup_steps", series, sizeof series);
    double step = 1.0;
    const cJSON *errors = json_at(record, "error.per_step_rel_l2");
    for (const cJSON *item = errors ? errors->child : NULL; item; item = item->next, step += 1.0)
        if (cJSON_IsNumber(item))
            TRY(add_point(data, record, series, step, item->valuedouble, item->valuedouble,
                          item->valuedouble));
    return OK;
}

static enum status add_latency(const cJSON *record, double most_gpus, struct plot_data *data)
{
    (void)most_gpus;
    char series[PLOT_TEXT];
    if (cJSON_IsTrue(json_at(record, "latency_us.oversubscribed"))) {
        data->oversubscribed++;
        return OK;
    }
    double median = json_number(record, "latency_us.median") / 1e3, low = median, high = median;
    const cJSON *ci = json_at(record, "latency_us.ci95");
    if (cJSON_IsArray(ci) && cJSON_GetArraySize(ci) == 2) {
        low = cJSON_GetArrayItem(ci, 0)->valuedouble / 1e3;
        high = cJSON_GetArrayItem(ci, 1)->valuedouble / 1e3;
    }
    table_variant(record, "warmup_steps", series, sizeof series);
    return add_point(data, record, series, json_number(record, "config.gpus"), median, low, high);
}

const struct figure plot_figures[] = {
    {"error-vs-staleness", "error of the image over staleness, per mode and number of ranks",
     add_staleness},
    {"bytes-vs-gpus", "bytes a rank sends per step over the number of ranks", add_bytes},
    {"error-per-step", "error of the latent after every step, at the largest number of ranks; exact "
                       "points, within 5 x the noise floor, are left out", add_steps},
    {"latency-vs-gpus", "latency of an image over the number of ranks", add_latency},
    {NULL, NULL, NULL},
};

/* ---- collecting ---- */

static int compare_points(const void *a, const void *b)
{
    const struct plot_point *x = a, *y = b;
    int order = (x->panel_order > y->panel_order) - (x->panel_order < y->panel_order);
    if (order == 0)
        order = strcmp(x->panel, y->panel);
    if (order == 0)
        order = strcmp(x->series, y->series);
    if (order == 0)
        order = (x->x > y->x) - (x->x < y->x);
    return order ? order : (x->y > y->y) - (x->y < y->y);
}

static bool same_place(const struct plot_point *a, const struct plot_point *b)
{
    return strcmp(a->panel, b->panel) == 0 && strcmp(a->series, b->series) == 0 && a->x == b->x;
}

/* Points at one place become their median; sorted by y, so the middle one is it. */
static void merge_points(struct plot_data *data)
{
    size_t kept = 0;
    for (size_t i = 0, n; i < data->count; i += n) {
        for (n = 1; i + n < data->count && same_place(&data->points[i], &data->points[i + n]); n++)
            continue;
        struct plot_point merged = data->points[i + n / 2];
        if (n % 2 == 0)
            merged.y = 0.5 * (data->points[i + n / 2 - 1].y + data->points[i + n / 2].y);
        if (n > 1) {
            merged.low = data->points[i].y;
            merged.high = data->points[i + n - 1].y;
        }
        data->points[kept++] = merged;
    }
    data->count = kept;
}

enum status plot_data_collect(const struct figure *figure, const struct results *results,
                              struct plot_data *out)
{
    *out = (struct plot_data){0};
    double most_gpus = 0.0;
    for (size_t i = 0; i < results->count; i++)
        most_gpus = fmax(most_gpus, json_number(results->records[i], "config.gpus"));
    for (size_t i = 0; i < results->count; i++) {
        const char *status = json_text(results->records[i], "status");
        if (status && strcmp(status, "ok") == 0)
            TRY(figure->add(results->records[i], most_gpus, out));
        else
            out->failed++;
    }
    if (out->count > 0)
        qsort(out->points, out->count, sizeof *out->points, compare_points);
    merge_points(out);
    return OK;
}

void plot_data_free(struct plot_data *data)
{
    free(data->points);
    *data = (struct plot_data){0};
}

/* ---- writing ---- */

static bool starts_series(const struct plot_data *data, size_t i)
{
    return i == 0 || strcmp(data->points[i].series, data->points[i - 1].series) != 0 ||
           strcmp(data->points[i].panel, data->points[i - 1].panel) != 0;
}

static bool starts_panel(const struct plot_data *data, size_t i)
{
    return i == 0 || strcmp(data->points[i].panel, data->points[i - 1].panel) != 0;
}

void plot_data_write(FILE *out, const struct plot_data *data)
{
    for (size_t i = 0; i < data->count; i++) {
        const struct plot_point *p = &data->points[i];
        if (starts_series(data, i))
            fprintf(out, "%s# %s\n\"%s\"\n", i ? "\n\n" : "", p->panel, p->series);
        fprintf(out, "%.10g %.10g %.10g %.10g\n", p->x, p->y, p->low, p->high);
    }
}

/* A number for the series' name that is the same in every panel: its place among all names. */
static size_t series_number(const struct plot_data *data, const struct plot_point *point)
{
    size_t smaller = 0;
    for (size_t i = 0; i < data->count; i++) {
        bool is_first = true;
        for (size_t k = 0; k < i && is_first; k++)
            is_first = strcmp(data->points[k].series, data->points[i].series) != 0;
        smaller += is_first && strcmp(data->points[i].strategy, point->strategy) == 0 &&
                   strcmp(data->points[i].series, point->series) < 0;
    }
    return smaller;
}

static void write_text_array(FILE *out, const char *name, const struct plot_data *data,
                             bool (*starts)(const struct plot_data *, size_t), bool panel)
{
    const char *separator = "";
    size_t count = 0;
    for (size_t i = 0; i < data->count; i++)
        count += starts(data, i);
    fprintf(out, "array %s[%zu] = [", name, count);
    for (size_t i = 0; i < data->count; i++)
        if (starts(data, i)) {
            fprintf(out, "%s\"%s\"", separator,
                    panel ? data->points[i].panel : data->points[i].strategy);
            separator = ", ";
        }
    fprintf(out, "]\n");
}

/* First (offset 0) or last (offset 1) block of every panel. */
static void write_panel_blocks(FILE *out, const char *name, const struct plot_data *data, bool last)
{
    size_t panels = 0, block = 0;
    for (size_t i = 0; i < data->count; i++)
        panels += starts_panel(data, i);
    fprintf(out, "array %s[%zu] = [", name, panels);
    const char *separator = "";
    for (size_t i = 0; i < data->count; i++) {
        block += i > 0 && starts_series(data, i);
        bool is_edge = last ? i + 1 == data->count || starts_panel(data, i + 1) : starts_panel(data, i);
        if (is_edge) {
            fprintf(out, "%s%zu", separator, block);
            separator = ", ";
        }
    }
    fprintf(out, "]\n");
}

void plot_data_write_variables(FILE *out, const struct plot_data *data)
{
    write_text_array(out, "panel_title", data, starts_panel, true);
    write_panel_blocks(out, "panel_first", data, false);
    write_panel_blocks(out, "panel_last", data, true);
    write_text_array(out, "strategy", data, starts_series, false);
    const char *separator = "";
    size_t blocks = 0;
    for (size_t i = 0; i < data->count; i++)
        blocks += starts_series(data, i);
    fprintf(out, "array variant[%zu] = [", blocks);
    for (size_t i = 0; i < data->count; i++)
        if (starts_series(data, i)) {
            fprintf(out, "%s%zu", separator, series_number(data, &data->points[i]) + 1);
            separator = ", ";
        }
    fprintf(out, "]\nnote = \"");
    if (data->oversubscribed > 0)
        fprintf(out, "%zu points with more ranks than cores are left out. ", data->oversubscribed);
    if (data->exact > 0)
        fprintf(out, "%zu exact points (within 5 x the noise floor) are left out. ", data->exact);
    if (data->failed > 0)
        fprintf(out, "%zu points that were refused or failed are left out.", data->failed);
    fprintf(out, "\"\n");
}
