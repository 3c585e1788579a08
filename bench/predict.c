/* A row is a point on a platform. */
#include "bench/predict.h"

#include "bench/emulation.h"
#include "bench/measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The published PipeFusion ran the best of 2 to 32 patches. */
static const int patch_counts[] = {2, 4, 8, 16, 32};

static enum status assign_int(struct option_set *o, const char *name, int value)
{
    char text[32];
    snprintf(text, sizeof text, "%d", value);
    return option_assign(o, name, text);
}

static enum status set_options(struct option_set *o, const struct published_row *row, int steps,
                               int patches)
{
    char resolution[32];
    snprintf(resolution, sizeof resolution, "%.0f", row->resolution);
    for (int i = 0; i < row->setting_count; i++)
        TRY(option_assign(o, row->settings[i].name, row->settings[i].text));
    TRY(option_assign(o, "strategy", row->strategy));
    TRY(option_assign(o, "resolution", resolution));
    TRY(assign_int(o, "gpus", row->gpus));
    if (steps != PREDICT_ALL_STEPS)
        TRY(assign_int(o, "steps", steps));
    return patches > 0 ? assign_int(o, "patches", patches) : OK;
}

static void keep_failure(enum status status, struct prediction *out)
{
    *out = (struct prediction){.status = status, .seconds = NAN};
    snprintf(out->reason, sizeof out->reason, "%.255s", status_first()->text);
    status_clear();
}

static enum status measure(const struct point *point, struct prediction *out)
{
    struct measurement m;
    const struct measure_request request = {0};
    enum status status = measure_point(point, &request, &m);
    *out = (struct prediction){.status = OK};
    if (status == OK)
        out->seconds = m.latency_us[0] * 1e-6;
    for (int r = 0; status == OK && r < m.nranks; r++)
        if (m.ranks[r].memory.peak_total > out->peak_bytes)
            out->peak_bytes = m.ranks[r].memory.peak_total;
    if (status != OK)
        keep_failure(status, out);
    measure_free(&m);
    return OK;
}

static enum status predict_options(const struct platform *p, struct option_set *o,
                                   const struct published_row *row, int steps, int patches,
                                   struct prediction *out)
{
    TRY(set_options(o, row, PREDICT_ALL_STEPS, patches));
    double all_steps = (double)option_int(o, &point_opt_steps);
    if (steps != PREDICT_ALL_STEPS)
        TRY(assign_int(o, "steps", steps));
    struct point point;
    enum status status = point_resolve_on(o, p, NULL, &point);
    if (status == OK)
        status = measure(&point, out);
    else if (status == ERR_UNSUPPORTED || status == ERR_MEMORY)
        keep_failure(status, out), status = OK;
    point_close(&point);
    if (steps != PREDICT_ALL_STEPS)
        out->seconds *= all_steps / steps;
    out->patches = patches;
    return status;
}

static enum status predict_once(const struct platform *p, const struct published_row *row, int steps,
                                int patches, struct prediction *out)
{
    struct option_set options;
    enum status status = point_options_init(&options);
    if (status == OK)
        status = predict_options(p, &options, row, steps, patches, out);
    option_set_free(&options);
    return status;
}

enum status predict_row(const struct platform *platform, bool emulates, const struct published_row *row,
                        int steps, struct prediction *out)
{
    struct platform p = *platform;
    if (emulates)
        emulation_legacy_pytorch(&p, row->strategy);
    if (strcmp(row->strategy, "pipefusion") != 0 || row->has_patches)
        return predict_once(&p, row, steps, 0, out);
    *out = (struct prediction){.status = ERR_UNSUPPORTED, .seconds = NAN};
    for (size_t i = 0; i < sizeof patch_counts / sizeof *patch_counts; i++) {
        struct prediction next;
        TRY(predict_once(&p, row, steps, patch_counts[i], &next));
        if (i == 0 || (next.status == OK && !(next.seconds >= out->seconds)))
            *out = next;
    }
    return OK;
}
