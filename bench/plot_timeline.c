/* A Chrome trace as bars: one row a lane of a rank. */
#include "bench/plot_figure.h"

#include "bench/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 256 };

/* A lane of a rank, as the trace announces it. */
struct row {
    double rank, lane; /* pid and tid */
    const char *name;
};

struct timeline {
    struct row rows[MOST_ROWS];
    size_t row_count;
    struct plot_data data;
    size_t room;
};

static bool is_event(const cJSON *event, const char *type)
{
    const char *phase = json_text(event, "ph");
    return phase && strcmp(phase, type) == 0;
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = (x->rank > y->rank) - (x->rank < y->rank);
    return order ? order : (x->lane > y->lane) - (x->lane < y->lane);
}

static enum status find_rows(struct timeline *t, const cJSON *events)
{
    for (const cJSON *event = events->child; event; event = event->next) {
        const char *what = json_text(event, "name"), *name = json_text(event, "args.name");
        if (!is_event(event, "M") || !what || strcmp(what, "thread_name") != 0 || !name)
            continue;
        if (t->row_count == MOST_ROWS)
            return FAIL(ERR_UNSUPPORTED, "more than %d lanes do not fit into a figure", MOST_ROWS);
        t->rows[t->row_count++] =
            (struct row){json_number(event, "pid"), json_number(event, "tid"), name};
    }
    qsort(t->rows, t->row_count, sizeof *t->rows, compare_rows);
    return OK;
}

static enum status add_bar(struct timeline *t, size_t row, double begin_ms, double end_ms)
{
    struct plot_data *data = &t->data;
    if (data->count == t->room) {
        t->room = 2 * t->room + 256;
        struct plot_point *grown = realloc(data->points, t->room * sizeof *grown);
        if (!grown)
            return FAIL(ERR_MEMORY, "no memory for %zu intervals", t->room);
        data->points = grown;
    }
    struct plot_point *point = &data->points[data->count++];
    double y = (double)(t->row_count - 1 - row); /* rank 0 on top */
    *point = (struct plot_point){.key = begin_ms, .x = 0.5 * (begin_ms + end_ms), .y = y,
                                 .low = y - 0.4, .high = y + 0.4, .left = begin_ms, .right = end_ms};
    const char *lane = t->rows[row].name;
    snprintf(point->series, PLOT_TEXT, "%.*s", (int)strcspn(lane, " "), lane); /* "send 3": a link */
    snprintf(point->panel, PLOT_TEXT, "Last timed run");
    snprintf(point->strategy, PLOT_TEXT, "lane");
    return OK;
}

static enum status add_bars(struct timeline *t, const cJSON *events)
{
    for (const cJSON *event = events->child; event; event = event->next) {
        double begin = json_number(event, "ts") / 1e3, length = json_number(event, "dur") / 1e3;
        if (!is_event(event, "X") || isnan(begin) || isnan(length))
            continue;
        for (size_t row = 0; row < t->row_count; row++)
            if (t->rows[row].rank == json_number(event, "pid") &&
                t->rows[row].lane == json_number(event, "tid"))
                TRY(add_bar(t, row, begin, begin + length));
    }
    plot_data_sort(&t->data);
    return OK;
}

/* Tics are rows here; the template reads them from a file of its own kind: name and height. */
static enum status write_rows(const struct timeline *t, const struct plot_request *request)
{
    char path[FILES_PATH];
    struct files_output file;
    if (snprintf(path, sizeof path, "%s/timeline-rows.dat", request->folder) >= FILES_PATH)
        return FAIL(ERR_USAGE, "--output %.80s...: the path is too long", request->folder);
    TRY(files_create(path, &file));
    for (size_t row = 0; row < t->row_count; row++)
        fprintf(file.stream, "%zu \"rank %.0f %s\"\n", t->row_count - 1 - row, t->rows[row].rank,
                t->rows[row].name);
    return files_commit(&file);
}

static enum status draw(struct timeline *t, const char *trace, const cJSON *root,
                        const struct plot_request *request)
{
    const cJSON *events = json_at(root, "traceEvents");
    if (!cJSON_IsArray(events))
        return FAIL(ERR_FORMAT, "%s: not a trace of bench run --trace", trace);
    TRY(find_rows(t, events));
    TRY(add_bars(t, events));
    if (t->data.count == 0)
        return FAIL(ERR_FORMAT, "%s: the trace has no intervals", trace);
    TRY(write_rows(t, request));
    return plot_figure_write("timeline", &t->data, false, request);
}

enum status plot_timeline_make(const char *trace, const struct plot_request *request)
{
    char *text = NULL;
    size_t bytes = 0;
    cJSON *root = NULL;
    struct timeline timeline = {.row_count = 0};
    TRY(json_read_file(trace, &text, &bytes));
    enum status status = json_parse(trace, text, bytes, &root);
    free(text);
    if (status == OK)
        status = draw(&timeline, trace, root, request);
    cJSON_Delete(root);
    plot_data_free(&timeline.data);
    return status;
}
