/* Writes measured events as Chrome trace JSON. Times are integers until printed: no rounding, no locale. */
#include "bench/trace.h"

#include "bench/files.h"
#include "common/log.h"

#include <inttypes.h>
#include <string.h>

/* A row of a rank: a lane, or a link to a peer. */
struct row {
    const char *lane;
    int rank, peer;
};
enum { MAX_ROWS = 4096 };

static void print_us(FILE *out, int64_t ps)
{
    fprintf(out, "%s%" PRId64 ".%06" PRId64, ps < 0 ? "-" : "", (ps < 0 ? -ps : ps) / 1000000,
            (ps < 0 ? -ps : ps) % 1000000);
}

static void print_row_name(FILE *out, const struct row *row, size_t index)
{
    fprintf(out, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}},\n",
            row->rank, row->rank);
    fprintf(out, "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%zu,\"args\":{\"name\":\"%s",
            row->rank, index, row->lane);
    if (row->peer >= 0)
        fprintf(out, " %d", row->peer);
    fprintf(out, "\"}},\n");
}

/* The row of an event; a new one is announced first. */
static size_t row_of(FILE *out, struct row *rows, size_t *count, const struct trace_event *event)
{
    for (size_t i = 0; i < *count; i++)
        if (rows[i].rank == event->rank && rows[i].peer == event->peer &&
            strcmp(rows[i].lane, event->lane) == 0)
            return i;
    if (*count == MAX_ROWS)
        return MAX_ROWS - 1;
    rows[*count] = (struct row){event->lane, event->rank, event->peer};
    print_row_name(out, &rows[*count], *count);
    return (*count)++;
}

static void print_place(FILE *out, const char *key, int value, const char **separator)
{
    if (value < 0)
        return;
    fprintf(out, "%s\"%s\":%d", *separator, key, value);
    *separator = ",";
}

static void print_event(FILE *out, const struct trace_event *event, size_t row)
{
    fprintf(out, "{\"name\":\"%s", event->name);
    if (event->layer >= 0)
        fprintf(out, " layer %d", event->layer);
    if (event->patch >= 0)
        fprintf(out, " patch %d", event->patch);
    fprintf(out, "\",\"ph\":\"X\",\"pid\":%d,\"tid\":%zu,\"ts\":", event->rank, row);
    print_us(out, event->begin_ps);
    fprintf(out, ",\"dur\":");
    print_us(out, event->end_ps - event->begin_ps);
    const char *separator = "";
    fprintf(out, ",\"args\":{");
    print_place(out, "step", event->step, &separator);
    print_place(out, "layer", event->layer, &separator);
    print_place(out, "patch", event->patch, &separator);
    fprintf(out, "}}");
}

enum status trace_write(const char *path, const struct measurement *m)
{
    static struct row rows[MAX_ROWS];
    if (m->dropped_events > 0)
        log_warn("--trace: %zu events did not fit and are missing; use fewer --steps",
                 m->dropped_events);
    size_t row_count = 0;
    struct files_output file;
    TRY(files_create(path, &file));
    fprintf(file.stream, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (size_t i = 0; i < m->event_count; i++) {
        size_t row = row_of(file.stream, rows, &row_count, &m->events[i]);
        print_event(file.stream, &m->events[i], row);
        fprintf(file.stream, "%s\n", i + 1 < m->event_count ? "," : "");
    }
    fprintf(file.stream, "]}\n");
    return files_commit(&file);
}
