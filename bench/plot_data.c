/* Records to series. */
#include "bench/plot_data.h"

#include "bench/plot_left_out.h"
#include "bench/stats.h"
#include "bench/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- points ---- */

/* What makes another problem of a record. */
static const struct {
    const char *path, *format;
} facts[PLOT_FACTS] = {[PLOT_STEPS] = {"config.steps", ", %g steps"},
                       [PLOT_CFG_SCALE] = {"config.cfg_scale", ", cfg scale %g"},
                       [PLOT_FRAMES] = {"config.frames", ", %g frames"}};

static void panel_of(const cJSON *record, const struct plot_context *context, char out[PLOT_TEXT])
{
    const char *resolution = json_text(record, "config.resolution");
    const char *platform = json_text(record, "platform.name");
    size_t used = 0;
    if (context->has_many_models)
        used = (size_t)snprintf(out, PLOT_TEXT, "%.30s, ", summary_model(record));
    used += (size_t)snprintf(out + used, PLOT_TEXT - used, "%.16s pixels", resolution ? resolution : "?");
    for (size_t i = 0; i < PLOT_FACTS && used < PLOT_TEXT; i++)
        if (context->varies[i])
            used += (size_t)snprintf(out + used, PLOT_TEXT - used, facts[i].format,
                                     json_number(record, facts[i].path));
    if (platform && used < PLOT_TEXT)
        snprintf(out + used, PLOT_TEXT - used, ", %.30s", platform);
}

enum status plot_data_add(struct plot_data *data, const cJSON *record, const struct plot_context *context,
                          const char *series, double x, double y, struct plot_point **out)
{
    *out = NULL;
    if (!isfinite(x) || !isfinite(y))
        return OK;
    struct plot_point *grown = realloc(data->points, (data->count + 1) * sizeof *grown);
    if (!grown)
        return FAIL(ERR_MEMORY, "no memory for %zu points of a figure", data->count + 1);
    data->points = grown;
    struct plot_point *point = &grown[data->count++];
    *point = (struct plot_point){.key = x, .x = x, .y = y, .low = y, .high = y, .left = x, .right = x,
                                 .is_simulated = summary_is_simulated(record)};
    const char *strategy = json_text(record, "config.strategy");
    snprintf(point->series, PLOT_TEXT, "%.70s%s", series, point->is_simulated ? ", simulated" : "");
    snprintf(point->strategy, PLOT_TEXT, "%s", strategy ? strategy : "?");
    panel_of(record, context, point->panel);
    point->panel_order = json_number(record, "config.latent.height") *
                         json_number(record, "config.latent.width") *
                         (context->varies[PLOT_FRAMES] ? json_number(record, "config.frames") : 1.0);
    *out = point;
    return OK;
}

/* ---- order ---- */

static int compare_keys(const struct plot_point *x, const struct plot_point *y)
{
    int order = (x->key > y->key) - (x->key < y->key);
    return order ? order : strcmp(x->tag, y->tag);
}

/* Marks come last, those at one place together. */
static int compare_marks(const struct plot_point *x, const struct plot_point *y)
{
    int order = (*x->mark != '\0') - (*y->mark != '\0');
    if (order == 0 && *x->mark)
        order = (x->x > y->x) - (x->x < y->x);
    return order ? order : strcmp(x->mark, y->mark);
}

static int compare_points(const void *a, const void *b)
{
    const struct plot_point *x = a, *y = b;
    int order = (x->panel_order > y->panel_order) - (x->panel_order < y->panel_order);
    if (order == 0)
        order = strcmp(x->panel, y->panel);
    if (order == 0)
        order = strcmp(x->series, y->series);
    if (order == 0)
        order = compare_keys(x, y);
    if (order == 0)
        order = compare_marks(x, y);
    return order ? order : (x->y > y->y) - (x->y < y->y);
}

void plot_data_sort(struct plot_data *data)
{
    if (data->count > 0)
        qsort(data->points, data->count, sizeof *data->points, compare_points);
}

static bool starts_panel(const struct plot_data *data, size_t i)
{
    return i == 0 || strcmp(data->points[i].panel, data->points[i - 1].panel) != 0;
}

static bool starts_series(const struct plot_data *data, size_t i)
{
    return starts_panel(data, i) || strcmp(data->points[i].series, data->points[i - 1].series) != 0;
}

/* ---- merging ---- */

static bool same_place(const struct plot_data *data, size_t i, size_t k)
{
    const struct plot_point *a = &data->points[i], *b = &data->points[k];
    return !starts_series(data, k) && !*a->mark && !*b->mark && compare_keys(a, b) == 0;
}

static double median_x(const struct plot_point *points, size_t n)
{
    double *x = calloc(n, sizeof *x);
    ASSERT(x != NULL);
    for (size_t i = 0; i < n; i++)
        x[i] = points[i].x;
    stats_sort(x, n);
    double median = stats_median(x, n);
    free(x);
    return median;
}

/* Points at one place are sorted by y, so the middle one is the median. */
static struct plot_point merge(const struct plot_point *points, size_t n)
{
    struct plot_point merged = points[n / 2];
    if (n == 1)
        return merged;
    if (n % 2 == 0)
        merged.y = 0.5 * (points[n / 2 - 1].y + points[n / 2].y);
    merged.x = median_x(points, n);
    merged.low = points[0].y;
    merged.high = points[n - 1].y;
    return merged;
}

static void merge_points(struct plot_data *data)
{
    struct plot_point *merged = calloc(data->count + 1, sizeof *merged);
    ASSERT(merged != NULL);
    size_t kept = 0;
    for (size_t i = 0, n; i < data->count; i += n) {
        for (n = 1; i + n < data->count && same_place(data, i, i + n); n++)
            continue;
        merged[kept++] = merge(&data->points[i], n);
    }
    free(data->points);
    data->points = merged;
    data->count = kept;
}

/* ---- bars ---- */

/* Distinct categories of a panel, in order, as the first points that have them. */
static size_t list_categories(const struct plot_point *points, size_t n,
                              const struct plot_point **categories)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < count && compare_keys(categories[at], &points[i]) < 0)
            at++;
        if (at < count && compare_keys(categories[at], &points[i]) == 0)
            continue;
        memmove(&categories[at + 1], &categories[at], (count - at) * sizeof(const struct plot_point *));
        categories[at] = &points[i];
        count++;
    }
    return count;
}

static void stack(struct plot_point *points, size_t i)
{
    double bottom = 0.0;
    for (size_t k = 0; k < i; k++)
        if (compare_keys(&points[k], &points[i]) == 0)
            bottom += points[k].y;
    points[i].low = bottom;
    points[i].high = bottom + points[i].y;
}

static void place_panel(struct plot_data *data, size_t first, size_t n, bool is_stacked)
{
    const struct plot_point **categories = calloc(n + 1, sizeof *categories);
    ASSERT(categories != NULL);
    struct plot_point *points = &data->points[first];
    size_t count = list_categories(points, n, categories), series = 0, number = 0;
    for (size_t i = 0; i < n; i++)
        series += starts_series(data, first + i);
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        number += i > 0 && starts_series(data, first + i);
        while (at < count && compare_keys(categories[at], &points[i]) != 0)
            at++;
        double width = is_stacked ? 0.7 : 0.8 / (double)series;
        double shift = is_stacked ? 0.0 : ((double)number - 0.5 * (double)(series - 1)) * width;
        points[i].x = (double)at + shift;
        points[i].left = points[i].x - 0.5 * width;
        points[i].right = points[i].x + 0.5 * width;
        if (is_stacked)
            stack(points, i);
    }
    free(categories);
}

void plot_data_place_bars(struct plot_data *data, bool is_stacked)
{
    for (size_t i = 0, n; i < data->count; i += n) {
        for (n = 1; i + n < data->count && !starts_panel(data, i + n); n++)
            continue;
        place_panel(data, i, n, is_stacked);
    }
}

/* ---- collecting ---- */

static bool is_ok(const cJSON *record)
{
    const char *status = json_text(record, "status");
    return status && strcmp(status, "ok") == 0;
}

static struct plot_context look_around(const struct results *results)
{
    struct plot_context context = {.results = results};
    for (size_t i = 0; i < results->count; i++) {
        const cJSON *record = results->records[i];
        if (is_ok(record))
            context.most_gpus = fmax(context.most_gpus, json_number(record, "config.gpus"));
        if (strcmp(summary_model(record), summary_model(results->records[0])) != 0)
            context.has_many_models = true;
        for (size_t k = 0; k < PLOT_FACTS; k++)
            if (json_number(record, facts[k].path) != json_number(results->records[0], facts[k].path))
                context.varies[k] = true;
    }
    return context;
}

enum status plot_data_collect(const struct figure *figure, const struct results *results,
                              const struct results *errors, struct plot_data *out)
{
    *out = (struct plot_data){0};
    struct plot_context context = look_around(results);
    context.errors = errors;
    context.varies[PLOT_FRAMES] = context.varies[PLOT_FRAMES] && !figure->is_over_frames;
    for (size_t i = 0; i < results->count; i++) {
        if (is_ok(results->records[i]))
            TRY(figure->add(results->records[i], &context, out));
        else if (figure->mark)
            TRY(figure->mark(results->records[i], &context, out));
        else
            out->failed++;
    }
    plot_data_sort(out);
    merge_points(out);
    return figure->finish && out->count > 0 ? figure->finish(out) : OK;
}

bool plot_data_has_values(const struct plot_data *data)
{
    for (size_t i = 0; i < data->count; i++)
        if (!*data->points[i].mark)
            return true;
    return false;
}

void plot_data_free(struct plot_data *data)
{
    free(data->points);
    *data = (struct plot_data){0};
}

/* ---- writing ---- */

void plot_data_write(FILE *out, const struct plot_data *data)
{
    for (size_t i = 0; i < data->count; i++) {
        const struct plot_point *p = &data->points[i];
        if (starts_series(data, i))
            fprintf(out, "%s# %s\n\"%s\"\n", i ? "\n\n" : "", p->panel, p->series);
        fprintf(out, "%.10g %.10g %.10g %.10g %.10g %.10g \"%s\"\n", p->x, p->y, p->low, p->high, p->left,
                p->right, *p->mark ? p->mark : p->tag);
    }
}

/* A number for the series' name that is the same in every panel: its place among its strategy's names. */
static size_t series_number(const struct plot_data *data, const struct plot_point *point)
{
    const char *last = "";
    for (size_t place = 1;; place++) {
        const char *next = NULL;
        for (size_t i = 0; i < data->count; i++) {
            const struct plot_point *p = &data->points[i];
            if (starts_series(data, i) && strcmp(p->strategy, point->strategy) == 0 &&
                strcmp(p->series, last) > 0 && (!next || strcmp(p->series, next) < 0))
                next = p->series;
        }
        ASSERT(next != NULL);
        if (strcmp(next, point->series) == 0)
            return place;
        last = next;
    }
}

static void begin_array(FILE *out, const char *name, const struct plot_data *data,
                        bool (*starts)(const struct plot_data *, size_t))
{
    size_t count = 0;
    for (size_t i = 0; i < data->count; i++)
        count += starts(data, i);
    fprintf(out, "array %s[%zu] = [", name, count);
}

/* First or last block of every panel. */
static void write_panel_blocks(FILE *out, const char *name, const struct plot_data *data, bool last)
{
    size_t block = 0;
    const char *separator = "";
    begin_array(out, name, data, starts_panel);
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

/* The tics of bars as gnuplot reads them, how many each panel has, and the letters of the longest. */
static void write_tics(FILE *out, const struct plot_data *data)
{
    const struct plot_point **categories = calloc(data->count + 1, sizeof *categories);
    ASSERT(categories != NULL);
    char *counts = NULL;
    size_t longest = 0, bytes = 0;
    FILE *numbers = open_memstream(&counts, &bytes);
    ASSERT(numbers != NULL);
    begin_array(out, "panel_tics", data, starts_panel);
    begin_array(numbers, "panel_bars", data, starts_panel);
    for (size_t i = 0, n; i < data->count; i += n) {
        for (n = 1; i + n < data->count && !starts_panel(data, i + n); n++)
            continue;
        size_t count = list_categories(&data->points[i], n, categories);
        fprintf(numbers, "%s%zu", i ? ", " : "", count);
        fprintf(out, "%s\"", i ? ", " : "");
        for (size_t c = 0; c < count; c++) {
            fprintf(out, "%s'%s' %zu", c ? ", " : "", categories[c]->tag, c);
            longest = strlen(categories[c]->tag) > longest ? strlen(categories[c]->tag) : longest;
        }
        fprintf(out, "\"");
    }
    fclose(numbers);
    fprintf(out, "]\n%s]\ntic_letters = %zu\n", counts, longest);
    free(counts);
    free(categories);
}

void plot_data_write_variables(FILE *out, const struct plot_data *data, bool has_categories)
{
    begin_array(out, "panel_title", data, starts_panel);
    for (size_t i = 0; i < data->count; i++)
        if (starts_panel(data, i))
            fprintf(out, "%s\"%s\"", i ? ", " : "", data->points[i].panel);
    fprintf(out, "]\n");
    write_panel_blocks(out, "panel_first", data, false);
    write_panel_blocks(out, "panel_last", data, true);
    begin_array(out, "strategy", data, starts_series);
    for (size_t i = 0; i < data->count; i++)
        if (starts_series(data, i))
            fprintf(out, "%s\"%s\"", i ? ", " : "", data->points[i].strategy);
    fprintf(out, "]\n");
    begin_array(out, "variant", data, starts_series);
    for (size_t i = 0; i < data->count; i++)
        if (starts_series(data, i))
            fprintf(out, "%s%zu", i ? ", " : "", series_number(data, &data->points[i]));
    fprintf(out, "]\n");
    begin_array(out, "simulated", data, starts_series);
    for (size_t i = 0; i < data->count; i++)
        if (starts_series(data, i))
            fprintf(out, "%s%d", i ? ", " : "", data->points[i].is_simulated);
    fprintf(out, "]\n");
    if (has_categories)
        write_tics(out, data);
    fprintf(out, "exact_at = %.10g\n", data->exact_at);
    plot_left_out_write(out, data);
}
