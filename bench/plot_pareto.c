/* Latency against error. */
#include "bench/plot_pareto.h"

#include "bench/plot_left_out.h"
#include "bench/stats.h"
#include "bench/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

/* What is exact stands at its noise floor: a logarithm has no 0. NAN: unknown. */
static double own_error(const cJSON *record)
{
    double error = json_number(record, "error.rel_l2");
    return isfinite(error) ? fmax(error, json_number(record, "error.noise_floor")) : NAN;
}

/* Do two records differ in nothing that an error is compared over? */
static bool is_same_way(const cJSON *a, const cJSON *b)
{
    char x[PLOT_TEXT], y[PLOT_TEXT];
    summary_variant(a, "dtype", x, sizeof x);
    summary_variant(b, "dtype", y, sizeof y);
    return strcmp(x, y) == 0 && json_number(a, "config.gpus") == json_number(b, "config.gpus") &&
           json_number(a, "config.steps") == json_number(b, "config.steps");
}

struct image_error {
    double value; /* NAN: unknown */
    bool is_exact;
};

/* Median over the real runs that went the same way. */
static struct image_error real_error(const cJSON *record, const struct results *errors)
{
    double *found = calloc(errors->count + 1, sizeof *found);
    ASSERT(found != NULL);
    struct image_error error = {.value = NAN, .is_exact = true};
    size_t count = 0;
    for (size_t i = 0; i < errors->count; i++) {
        const cJSON *run = errors->records[i];
        if (!(own_error(run) > 0.0) || !is_same_way(record, run))
            continue;
        found[count++] = own_error(run);
        error.is_exact = error.is_exact && summary_is_exact(run);
    }
    stats_sort(found, count);
    if (count > 0)
        error.value = stats_median(found, count);
    free(found);
    return error;
}

/* "dit-fashion.safetensors at 32 pixels", if all are. */
static void name_errors(const struct results *errors, char out[PLOT_TEXT])
{
    for (size_t i = 0; i < errors->count; i++) {
        const char *resolution = json_text(errors->records[i], "config.resolution");
        char name[PLOT_TEXT];
        snprintf(name, sizeof name, "%.40s at %.12s pixels", summary_model(errors->records[i]),
                 resolution ? resolution : "?");
        if (i > 0 && strcmp(name, out) != 0)
            snprintf(name, sizeof name, "several models or sizes");
        snprintf(out, PLOT_TEXT, "%s", name);
    }
}

static struct image_error error_of(const cJSON *record, const struct plot_context *context,
                                   struct plot_data *data)
{
    if (!summary_is_simulated(record) || !context->errors)
        return (struct image_error){own_error(record), summary_is_exact(record)};
    struct image_error error = real_error(record, context->errors);
    if (!isnan(error.value))
        name_errors(context->errors, data->errors_of);
    return error;
}

/* ---- points ---- */

enum status plot_pareto_add(const cJSON *record, const struct plot_context *context, struct plot_data *data)
{
    char series[PLOT_TEXT];
    struct plot_point *point;
    if (summary_is_oversubscribed(record)) {
        data->oversubscribed++;
        return OK;
    }
    struct image_error error = error_of(record, context, data);
    if (isnan(error.value) && summary_is_simulated(record) && context->errors) {
        data->unmatched++;
        return OK;
    }
    if (plot_left_out_unknown(data, error.value) ||
        plot_left_out_unknown(data, json_number(record, "latency_us.median")))
        return OK;
    if (!(error.value > 0.0)) {
        data->exact++;
        return OK;
    }
    summary_variant(record, "warmup_steps", series, sizeof series);
    TRY(plot_data_add(data, record, context, series, json_number(record, "latency_us.median") / 1e3,
                      error.value, &point));
    if (point) {
        point->is_exact = error.is_exact;
        point->key = json_number(record, "config.gpus");
        snprintf(point->tag, PLOT_TEXT, "%.0f", point->key);
    }
    return OK;
}

/* ---- exact points ---- */

static void level_exact(struct plot_data *data)
{
    double least = INFINITY;
    for (size_t i = 0; i < data->count; i++)
        if (!data->points[i].is_exact)
            least = fmin(least, data->points[i].y);
    if (isinf(least))
        return;
    data->exact_at = least / 10.0;
    for (size_t i = 0; i < data->count; i++)
        if (data->points[i].is_exact)
            data->points[i].y = data->points[i].low = data->points[i].high = data->exact_at;
}

/* ---- the front ---- */

static bool is_dominated(const struct plot_data *data, size_t count, const struct plot_point *point)
{
    for (size_t i = 0; i < count; i++) {
        const struct plot_point *other = &data->points[i];
        if (strcmp(other->panel, point->panel) == 0 && other->x <= point->x && other->y <= point->y &&
            (other->x < point->x || other->y < point->y))
            return true;
    }
    return false;
}

/* A series of the points that no other beats in both, sorted by latency. */
enum status plot_pareto_finish(struct plot_data *data)
{
    level_exact(data);
    size_t count = data->count;
    struct plot_point *grown = realloc(data->points, 2 * count * sizeof *grown);
    if (!grown)
        return FAIL(ERR_MEMORY, "no memory for %zu points of a figure", 2 * count);
    data->points = grown;
    for (size_t i = 0; i < count; i++) {
        if (is_dominated(data, count, &grown[i]))
            continue;
        struct plot_point *front = &grown[data->count++];
        *front = grown[i];
        snprintf(front->series, PLOT_TEXT, "not beaten in both");
        snprintf(front->strategy, PLOT_TEXT, "front");
        front->tag[0] = '\0';
        front->key = front->x;
        front->low = front->high = front->y;
    }
    plot_data_sort(data);
    return OK;
}
