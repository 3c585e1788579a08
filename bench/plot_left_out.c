/* Marks and the note. */
#include "bench/plot_left_out.h"

#include "bench/summary.h"

#include <math.h>
#include <string.h>

enum status plot_left_out_mark(const cJSON *record, const struct plot_context *context,
                               struct plot_data *data)
{
    char series[PLOT_TEXT];
    struct plot_point *point;
    const char *status = json_text(record, "status");
    double gpus = json_number(record, "config.gpus");
    if (!status || !isfinite(gpus) || !isfinite(json_number(record, "config.latent.height"))) {
        data->failed++;
        return OK;
    }
    summary_variant(record, "warmup_steps", series, sizeof series);
    TRY(plot_data_add(data, record, context, series, gpus, 0.0, &point));
    snprintf(point->tag, PLOT_TEXT, "%.0f", gpus);
    snprintf(point->mark, PLOT_TEXT, "%s", strcmp(status, "unsupported") == 0 ? "refused" : status);
    return OK;
}

static bool same_mark_place(const struct plot_point *a, const struct plot_point *b)
{
    return *a->mark && *b->mark && a->x == b->x && strcmp(a->panel, b->panel) == 0;
}

/* "2 refused" */
static size_t add_reason(char *text, size_t used, const struct plot_point *mark, size_t count)
{
    if (used >= PLOT_TEXT)
        return used;
    const char *separator = used ? ", " : "";
    return used + (size_t)snprintf(text + used, PLOT_TEXT - used, "%s%zu %s", separator, count, mark->mark);
}

/* The first mark comes to say what all of its place say; returns how many they are. */
static size_t join_place(struct plot_point *first, size_t n)
{
    char text[PLOT_TEXT] = "";
    size_t used = 0, at = 0, same;
    for (; at < n && same_mark_place(first, &first[at]); at += same) {
        for (same = 1; at + same < n && same_mark_place(first, &first[at + same]); same++)
            if (strcmp(first[at].mark, first[at + same].mark) != 0)
                break;
        used = add_reason(text, used, &first[at], same);
    }
    if (at == 1)
        snprintf(text, sizeof text, "%.40s %.40s", first->strategy, first->mark);
    snprintf(first->mark, PLOT_TEXT, "%s", text);
    snprintf(first->strategy, PLOT_TEXT, "mark");
    return at;
}

void plot_left_out_settle(struct plot_data *data)
{
    for (size_t i = 0; i < data->count; i++) {
        struct plot_point *point = &data->points[i];
        if (!*point->mark)
            continue;
        snprintf(point->series, PLOT_TEXT, "refused or failed");
        point->is_simulated = false;
    }
    plot_data_sort(data);
    size_t kept = 0;
    for (size_t i = 0, n; i < data->count; i += n) {
        n = *data->points[i].mark ? join_place(&data->points[i], data->count - i) : 1;
        data->points[kept++] = data->points[i];
    }
    data->count = kept;
}

bool plot_left_out_unknown(struct plot_data *data, double value)
{
    bool is_unknown = !isfinite(value);
    data->unknown += is_unknown;
    return is_unknown;
}

void plot_left_out_write(FILE *out, const struct plot_data *data)
{
    const struct {
        size_t count;
        const char *why;
    } reasons[] = {
        {data->oversubscribed, "more ranks than cores"},
        {data->exact, "exact, within 5 x the noise floor"},
        {data->lonely, "no point of one rank to compare with"},
        {data->unmatched, "no real run of as many ranks and steps to take the error from"},
        {data->unknown, "not measured, or not finite"},
        {data->failed, "refused or failed"},
    };
    size_t lines = 0;
    fprintf(out, "note = \"");
    if (data->errors_of[0])
        lines += (size_t)(fprintf(out, "Latency: predicted. Error: of real runs of %s.", data->errors_of) > 0);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].count > 0)
            fprintf(out, "%s%zu left out: %s", lines++ ? "\\n" : "", reasons[i].count, reasons[i].why);
    fprintf(out, "\"\nnote_lines = %zu\n", lines);
}
