/* Video models: pairs of blocks, frames. */
#include "bench/plot_video.h"

#include "bench/plot_left_out.h"
#include "bench/summary.h"

#include <math.h>
#include <string.h>

static bool is_video(const cJSON *record)
{
    const char *kind = json_text(record, "model.kind");
    return kind && strcmp(kind, "video") == 0;
}

/* Of rank `rank`, in the blocks, over all steps. */
static double sent_in_blocks(const cJSON *kinds, int rank)
{
    double sum = 0.0;
    for (const cJSON *kind = kinds->child; kind; kind = kind->next) {
        const char *traffic = json_text(kind, "traffic");
        if (traffic && strcmp(traffic, "latent") != 0 && strcmp(traffic, "cfg") != 0)
            sum += json_number(cJSON_GetArrayItem(json_at(kind, "sent_bytes"), rank), "");
    }
    return sum;
}

/* MiB that the rank with most sends per pair and step; NAN: unknown. */
static double pair_mib(const cJSON *record)
{
    const cJSON *kinds = json_at(record, "comm.kinds");
    double most = NAN, pairs = json_number(record, "model.blocks") / 2.0;
    if (!kinds)
        return NAN;
    for (int rank = 0; rank < (int)json_number(record, "config.gpus"); rank++)
        most = fmax(most, sent_in_blocks(kinds, rank));
    return most / (pairs * json_number(record, "config.steps") * 1048576.0);
}

static enum status add(const cJSON *record, const struct plot_context *context, struct plot_data *data,
                       const char *series, double x, double y)
{
    struct plot_point *point;
    return plot_left_out_unknown(data, y) ? OK : plot_data_add(data, record, context, series, x, y, &point);
}

enum status plot_video_pair_bytes(const cJSON *record, const struct plot_context *context,
                                  struct plot_data *data)
{
    char series[PLOT_TEXT];
    if (!is_video(record))
        return OK;
    summary_variant(record, NULL, series, sizeof series);
    return add(record, context, data, series, json_number(record, "config.gpus"), pair_mib(record));
}

enum status plot_video_mark(const cJSON *record, const struct plot_context *context, struct plot_data *data)
{
    return is_video(record) ? plot_left_out_mark(record, context, data) : OK;
}

/* Over frames, at the largest number of ranks, which the series names. */
static enum status add_at_frames(const cJSON *record, const struct plot_context *context,
                                 struct plot_data *data, double y)
{
    char variant[PLOT_TEXT - 30], series[PLOT_TEXT];
    summary_variant(record, NULL, variant, sizeof variant);
    snprintf(series, sizeof series, "%s, %.0f ranks", variant, context->most_gpus);
    return add(record, context, data, series, json_number(record, "config.frames"), y);
}

static bool is_at_largest(const cJSON *record, const struct plot_context *context)
{
    return is_video(record) && json_number(record, "config.gpus") == context->most_gpus;
}

enum status plot_video_frames_bytes(const cJSON *record, const struct plot_context *context,
                                    struct plot_data *data)
{
    if (!is_at_largest(record, context))
        return OK;
    return add_at_frames(record, context, data, pair_mib(record));
}

enum status plot_video_frames_latency(const cJSON *record, const struct plot_context *context,
                                      struct plot_data *data)
{
    if (!is_at_largest(record, context))
        return OK;
    if (summary_is_oversubscribed(record)) {
        data->oversubscribed++;
        return OK;
    }
    return add_at_frames(record, context, data, json_number(record, "latency_us.median") / 1e3);
}
