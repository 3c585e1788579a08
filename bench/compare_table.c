/* Words and columns of a comparison. Every ratio is NEW / BASE and says what it is of. */
#include "bench/compare_table.h"

#include "bench/summary.h"

#include <math.h>
#include <string.h>

enum { LABEL = 52, CELL = 40 };

static void label_of(const struct compare_case *c, char *out, size_t size)
{
    const cJSON *record = c->base ? c->base : c->now;
    const char *resolution = json_text(record, "config.resolution");
    summary_variant(record, NULL, out, size);
    size_t used = strlen(out);
    used += (size_t)snprintf(out + used, size - used, ", %.0f gpus, %s px",
                             json_number(record, "config.gpus"), resolution ? resolution : "?");
    static const char *const keys[] = {"seed", "class"};
    for (size_t i = 0; i < 2 && used < size; i++) {
        char path[24];
        snprintf(path, sizeof path, "config.%s", keys[i]);
        double value = json_number(record, path);
        if (value > 0.0)
            used += (size_t)snprintf(out + used, size - used, ", %s %.0f", keys[i], value);
    }
}

static const char *mark_of(const struct compare_change *change)
{
    return change->is_regression ? " !" : "";
}

static void latency_text(const struct compare_case *c, char out[CELL + 24])
{
    const struct compare_change *change = &c->of[COMPARE_LATENCY];
    const char *word = change->verdict == COMPARE_SAME   ? "same"
                       : change->verdict == COMPARE_MORE ? "NEW slower"
                                                         : "NEW faster";
    if (change->verdict == COMPARE_UNKNOWN)
        snprintf(out, CELL + 24, "-");
    else if (change->verdict == COMPARE_UNJUDGED)
        snprintf(out, CELL + 24, "not judged: %s", change->why);
    else if (c->is_simulated)
        snprintf(out, CELL + 24, "%.4f simulated %s%s", 1.0 + change->change, word, mark_of(change));
    else if (c->ratio.has_ci)
        snprintf(out, CELL + 24, "%.3f [%.3f, %.3f] %s%s", c->ratio.ratio, c->ratio.low, c->ratio.high,
                 word, mark_of(change));
    else
        snprintf(out, CELL + 24, "%.3f %s%s", c->ratio.ratio, word, mark_of(change));
}

static void bytes_text(const struct compare_change *change, char out[CELL])
{
    double difference = change->now - change->base;
    if (change->verdict == COMPARE_UNKNOWN)
        snprintf(out, CELL, "-");
    else if (change->verdict == COMPARE_UNJUDGED)
        snprintf(out, CELL, "not judged");
    else if (change->verdict == COMPARE_SAME)
        snprintf(out, CELL, "same");
    else
        snprintf(out, CELL, "%+.0f B (%+.2f%%)%s", difference, 100.0 * change->change, mark_of(change));
}

static void error_text(const struct compare_change *change, char out[CELL])
{
    if (change->verdict == COMPARE_UNKNOWN)
        snprintf(out, CELL, "-");
    else if (change->verdict == COMPARE_UNJUDGED)
        snprintf(out, CELL, "%s", change->why);
    else if (change->verdict == COMPARE_SAME)
        snprintf(out, CELL, "same");
    else if (isinf(change->change))
        snprintf(out, CELL, "0 -> %.2e%s", change->now, mark_of(change));
    else
        snprintf(out, CELL, "%+.1f%%%s", 100.0 * change->change, mark_of(change));
}

static void print_case(FILE *out, const struct compare_case *c)
{
    char label[LABEL + 40], latency[CELL + 24], bytes[CELL], memory[CELL], error[CELL];
    label_of(c, label, sizeof label);
    latency_text(c, latency);
    bytes_text(&c->of[COMPARE_BYTES], bytes);
    bytes_text(&c->of[COMPARE_MEMORY], memory);
    error_text(&c->of[COMPARE_ERROR], error);
    fprintf(out, "%-44s  %-36s  %-20s  %-20s  %s\n", label, latency, bytes, memory, error);
}

static const char *status_of(const cJSON *record)
{
    const char *status = record ? json_text(record, "status") : "absent";
    return status ? status : "?";
}

/* Points without a row above: on one side only, or not ok on one. */
static void print_odd(FILE *out, const struct compare_case *c, const char *base, const char *now)
{
    char label[LABEL + 40];
    const char *reason = c->now ? json_text(c->now, "reason") : NULL;
    label_of(c, label, sizeof label);
    fprintf(out, "%-44s  %s: %s, %s: %s%s%.120s%s\n", label, base, status_of(c->base), now,
            status_of(c->now), reason ? ", " : "", reason ? reason : "", c->is_lost ? " !" : "");
}

static bool has_row(const struct compare_case *c)
{
    return strcmp(status_of(c->base), "ok") == 0 && strcmp(status_of(c->now), "ok") == 0;
}

void compare_table_print(FILE *out, const struct comparison *comparison, const char *base,
                         const char *now)
{
    fprintf(out, "%-44s  %-36s  %-20s  %-20s  %s\n", "point", "time, NEW / BASE", "bytes sent",
            "memory", "error");
    for (size_t i = 0; i < comparison->count; i++)
        if (has_row(&comparison->cases[i]))
            print_case(out, &comparison->cases[i]);
    for (size_t i = 0; i < comparison->count; i++)
        if (!has_row(&comparison->cases[i]))
            print_odd(out, &comparison->cases[i], base, now);
    fprintf(out, "\nBASE: %s   NEW: %s\ntime: below 1, NEW is faster; in brackets its 95%% interval; same: "
                 "no difference shown. bytes sent,\nmemory: of the rank that grew most. !: over the limit "
                 "of --fail-on.\n%zu points on both sides, %zu only in NEW, %zu lost (ok in BASE, not in "
                 "NEW), %zu over a limit.\n",
            base, now, comparison->joined, comparison->added, comparison->lost, comparison->regressed);
}
