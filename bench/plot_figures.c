/* The figures: which points a record gives. Names that end in ", simulated" come from device sim. */
#include "bench/plot_left_out.h"

#include "bench/plot_pareto.h"
#include "bench/plot_video.h"
#include "bench/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_text(const cJSON *record, const char *path, const char *text)
{
    const char *value = json_text(record, path);
    return value && strcmp(value, text) == 0;
}

/* ---- lines ---- */

static enum status add_staleness(const cJSON *record, const struct plot_context *context,
                                 struct plot_data *data)
{
    char variant[PLOT_TEXT - 30], series[PLOT_TEXT];
    struct plot_point *point;
    double error = json_number(record, "error.rel_l2"), gpus = json_number(record, "config.gpus");
    if (!(gpus > 1.0))
        return OK; /* one rank has nobody's old values to use, or the same result as many */
    if (isfinite(json_number(record, "config.staleness")) && plot_left_out_unknown(data, error))
        return OK;
    summary_variant(record, "staleness warmup_steps", variant, sizeof variant);
    if (is_text(record, "config.stale_mode", "all")) /* ranks stay equal: no dependence on N */
        snprintf(series, sizeof series, "%s, any number", variant);
    else
        snprintf(series, sizeof series, "%s, %.0f ranks", variant, gpus);
    return plot_data_add(data, record, context, series, json_number(record, "config.staleness"), error,
                         &point);
}

static enum status add_bytes(const cJSON *record, const struct plot_context *context,
                             struct plot_data *data)
{
    char series[PLOT_TEXT];
    struct plot_point *point;
    double kib = json_number(record, "comm.max_sent_bytes") / json_number(record, "config.steps") / 1024.0;
    if (plot_left_out_unknown(data, kib))
        return OK;
    summary_variant(record, "warmup_steps", series, sizeof series);
    return plot_data_add(data, record, context, series, json_number(record, "config.gpus"), kib, &point);
}

static enum status add_steps(const cJSON *record, const struct plot_context *context,
                             struct plot_data *data)
{
    char series[PLOT_TEXT];
    struct plot_point *point;
    if (json_number(record, "config.gpus") < context->most_gpus ||
        is_text(record, "config.strategy", "serial"))
        return OK;
    if (plot_left_out_unknown(data, json_number(record, "error.rel_l2")))
        return OK;
    if (summary_is_exact(record)) {
        data->exact++;
        return OK;
    }
    summary_variant(record, "warmup_steps", series, sizeof series);
    double step = 1.0;
    const cJSON *errors = json_at(record, "error.per_step_rel_l2");
    for (const cJSON *item = errors ? errors->child : NULL; item; item = item->next, step += 1.0)
        if (cJSON_IsNumber(item))
            TRY(plot_data_add(data, record, context, series, step, item->valuedouble, &point));
    return OK;
}

/* The latency of one rank with the same problem on the same device, serial if there is one, or NAN. */
static double single_latency(const cJSON *record, const struct results *results)
{
    static const char *const same[] = {"model.name",    "config.resolution", "config.device",
                                       "platform.name", "config.dtype",      "config.mode"};
    static const char *const equal[] = {"config.steps", "config.cfg_scale", "config.frames",
                                        "config.threads"};
    double best = NAN;
    for (size_t i = 0; i < results->count; i++) {
        const cJSON *other = results->records[i];
        bool fits = is_text(other, "status", "ok") && json_number(other, "config.gpus") == 1.0;
        for (size_t k = 0; k < sizeof same / sizeof *same && fits; k++) {
            const char *text = json_text(record, same[k]);
            fits = text ? is_text(other, same[k], text) : !json_text(other, same[k]);
        }
        for (size_t k = 0; k < sizeof equal / sizeof *equal && fits; k++)
            fits = json_number(record, equal[k]) == json_number(other, equal[k]);
        if (fits && (isnan(best) || is_text(other, "config.strategy", "serial")))
            best = json_number(other, "latency_us.median");
    }
    return best;
}

static enum status add_efficiency(const cJSON *record, const struct plot_context *context,
                                  struct plot_data *data)
{
    char series[PLOT_TEXT];
    struct plot_point *point;
    if (summary_is_oversubscribed(record)) {
        data->oversubscribed++;
        return OK;
    }
    double gpus = json_number(record, "config.gpus"), single = single_latency(record, context->results);
    if (plot_left_out_unknown(data, json_number(record, "latency_us.median")))
        return OK;
    data->lonely += isnan(single);
    summary_variant(record, "warmup_steps", series, sizeof series);
    return plot_data_add(data, record, context, series, gpus,
                         100.0 * single / (gpus * json_number(record, "latency_us.median")), &point);
}

static enum status settle(struct plot_data *data)
{
    plot_left_out_settle(data);
    return OK;
}

/* ---- bars ---- */

static enum status place_beside(struct plot_data *data)
{
    plot_data_place_bars(data, false);
    plot_left_out_settle(data);
    return OK;
}

static enum status place_stacked(struct plot_data *data)
{
    plot_data_place_bars(data, true);
    return OK;
}

static enum status add_latency(const cJSON *record, const struct plot_context *context,
                               struct plot_data *data)
{
    char series[PLOT_TEXT];
    struct plot_point *point;
    if (summary_is_oversubscribed(record)) {
        data->oversubscribed++;
        return OK;
    }
    double gpus = json_number(record, "config.gpus"), latency = json_number(record, "latency_us.median");
    if (plot_left_out_unknown(data, latency))
        return OK;
    summary_variant(record, "warmup_steps", series, sizeof series);
    TRY(plot_data_add(data, record, context, series, gpus, latency / 1e3, &point));
    snprintf(point->tag, PLOT_TEXT, "%.0f", gpus);
    const cJSON *ci = json_at(record, "latency_us.ci95");
    if (cJSON_IsArray(ci) && cJSON_GetArraySize(ci) == 2) {
        point->low = cJSON_GetArrayItem(ci, 0)->valuedouble / 1e3;
        point->high = cJSON_GetArrayItem(ci, 1)->valuedouble / 1e3;
    }
    return OK;
}

/* A part of a stack; the bar is the variant, the parts are the series. */
static enum status add_part(struct plot_data *data, const cJSON *record,
                            const struct plot_context *context, const char *part, double value)
{
    struct plot_point *point;
    char variant[PLOT_TEXT - 16];
    TRY(plot_data_add(data, record, context, part, 0.0, value, &point));
    if (!point)
        return OK;
    summary_variant(record, "warmup_steps", variant, sizeof variant);
    snprintf(point->tag, PLOT_TEXT, "%s", variant);
    snprintf(point->strategy, PLOT_TEXT, "part");
    return OK;
}

/* Only bars of the largest number of ranks, and serial beside them. */
static bool is_largest(const cJSON *record, const struct plot_context *context)
{
    return json_number(record, "config.gpus") == context->most_gpus ||
           is_text(record, "config.strategy", "serial");
}

static int largest_rank(const cJSON *array, const char *key)
{
    int index = 0, at = 0;
    double most = -1.0;
    for (const cJSON *item = array ? array->child : NULL; item; item = item->next, at++)
        if (json_number(item, key) > most) {
            most = json_number(item, key);
            index = at;
        }
    return index;
}

static bool same_kind(const cJSON *a, const cJSON *b)
{
    const char *traffic = json_text(b, "traffic"), *phase = json_text(b, "phase");
    return traffic && phase && is_text(a, "traffic", traffic) && is_text(a, "phase", phase);
}

static bool is_first_of_kind(const cJSON *kinds, const cJSON *kind)
{
    const cJSON *other = kinds->child;
    while (!same_kind(other, kind))
        other = other->next;
    return other == kind;
}

/* Over all operations that carry this kind. */
static double sent_of_kind(const cJSON *kinds, const cJSON *kind, int rank)
{
    double sum = 0.0;
    for (const cJSON *other = kinds->child; other; other = other->next)
        if (same_kind(other, kind))
            sum += json_number(cJSON_GetArrayItem(json_at(other, "sent_bytes"), rank), "");
    return sum;
}

static enum status add_kinds(const cJSON *record, const struct plot_context *context,
                             struct plot_data *data)
{
    const cJSON *kinds = json_at(record, "comm.kinds");
    if (!is_largest(record, context))
        return OK;
    if (!kinds) {
        data->unknown++;
        return OK;
    }
    int rank = largest_rank(json_at(record, "comm.sent_bytes"), "");
    double per_step = 1024.0 * json_number(record, "config.steps");
    for (const cJSON *kind = kinds->child; kind; kind = kind->next) {
        char part[PLOT_TEXT];
        if (!same_kind(kind, kind) || !is_first_of_kind(kinds, kind))
            continue;
        snprintf(part, sizeof part, "%s, %s steps", json_text(kind, "traffic"), json_text(kind, "phase"));
        TRY(add_part(data, record, context, part, sent_of_kind(kinds, kind, rank) / per_step));
    }
    return OK;
}

static enum status add_purposes(const cJSON *record, const struct plot_context *context,
                                struct plot_data *data)
{
    static const char *const purposes[] = {"weights", "activations", "stale", "workspace"};
    const cJSON *ranks = json_at(record, "memory_bytes.per_rank");
    if (!is_largest(record, context) || !ranks)
        return OK;
    const cJSON *rank = cJSON_GetArrayItem(ranks, largest_rank(ranks, "peak"));
    for (size_t i = 0; i < sizeof purposes / sizeof *purposes; i++)
        TRY(add_part(data, record, context, purposes[i], json_number(rank, purposes[i]) / 1048576.0));
    return OK;
}

const struct figure plot_figures[] = {
    {.name = "error-vs-staleness", .add = add_staleness,
     .summary = "error of the image over staleness, per mode and number of ranks"},
    {.name = "bytes-vs-gpus", .add = add_bytes, .mark = plot_left_out_mark, .finish = settle,
     .summary = "bytes a rank sends per step over the number of ranks"},
    {.name = "error-per-step", .add = add_steps,
     .summary = "error of the latent after every step, at the largest number of ranks"},
    {.name = "latency-vs-gpus", .add = add_latency, .mark = plot_left_out_mark, .finish = place_beside,
     .has_categories = true,
     .summary = "latency of an image by number of ranks, with the 95% interval of the median"},
    {.name = "scaling-efficiency", .add = add_efficiency, .mark = plot_left_out_mark, .finish = settle,
     .summary = "T(1) / (N T(N)) over the number of ranks N, T(1) being serial's latency"},
    {.name = "bytes-by-kind", .add = add_kinds, .finish = place_stacked, .has_categories = true,
     .summary = "what the bytes sent per step are, at the largest number of ranks"},
    {.name = "memory-by-purpose", .add = add_purposes, .finish = place_stacked, .has_categories = true,
     .summary = "what the rank that holds most holds, at the largest number of ranks"},
    {.name = "pareto", .add = plot_pareto_add, .finish = plot_pareto_finish,
     .summary = "latency against error, and which points no other beats in both"},
    {.name = "pair-bytes-vs-gpus", .add = plot_video_pair_bytes, .mark = plot_video_mark, .finish = settle,
     .summary = "bytes a rank sends per pair of blocks of a video model, over the number of ranks"},
    {.name = "pair-bytes-vs-frames", .add = plot_video_frames_bytes, .is_over_frames = true,
     .summary = "the same over the number of frames, at the largest number of ranks"},
    {.name = "latency-vs-frames", .add = plot_video_frames_latency, .is_over_frames = true,
     .summary = "latency of a video over its frames, at the largest number of ranks"},
    {.name = NULL},
};
