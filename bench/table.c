/* Formats a summary for people. */
#include "bench/table.h"

#include "bench/summary.h"

#include <math.h>
#include <string.h>

static void print_cell(FILE *out, int width, const char *format, double value)
{
    char text[32] = "-";
    if (!isnan(value))
        snprintf(text, sizeof text, format, value);
    fprintf(out, " %*s", width, text);
}

static void print_error(FILE *out, const struct summary_row *row)
{
    const struct summary_value *error = &row->error;
    if (isnan(error->median))
        fprintf(out, "           -");
    else if (row->is_exact)
        fprintf(out, "       exact");
    else
        print_cell(out, 11, "%.2e", error->median);
    size_t good = row->count - row->failed;
    if (!isnan(error->median) && !row->is_exact && error->high > error->low && good > 1)
        fprintf(out, "  (%.1e to %.1e over %zu)", error->low, error->high, good);
    if (row->failed > 0)
        fprintf(out, "  %zu of %zu failed", row->failed, row->count);
}

static void print_row(FILE *out, const struct summary_row *row)
{
    fprintf(out, "  %-28s %4.0f", row->variant, row->gpus);
    if (row->failed == row->count) {
        const char *status = json_text(row->record, "status");
        const char *reason = json_text(row->record, "reason");
        fprintf(out, "  %s: %.120s\n", status ? status : "?", reason ? reason : "");
        return;
    }
    print_cell(out, 9, "%.1f", row->latency_ms.median);
    fputc(row->is_oversubscribed ? '*' : ' ', out);
    print_cell(out, 11, "%.1f", row->sent_kib.median);
    print_cell(out, 9, "%.2f", row->memory_mib.median);
    print_cell(out, 9, "%.2f", row->stale_mib.median);
    print_error(out, row);
    fputc('\n', out);
}

static void print_heading(FILE *out, const char *group)
{
    fprintf(out, "\n%s\n  %-28s %4s %9s  %11s %9s %9s %11s\n", group, "strategy", "gpus", "latency",
            "sent", "memory", "of it", "error");
    fprintf(out, "  %-28s %4s %9s  %11s %9s %9s %11s\n", "", "", "ms", "KiB/step", "MiB", "stale MiB",
            "rel. L2");
}

enum status table_print(FILE *out, const struct results *results)
{
    struct summary summary;
    TRY(summary_build(results, &summary));
    bool crowded = false, simulated = false;
    for (size_t i = 0; i < summary.count; i++) {
        const struct summary_row *row = &summary.rows[i];
        if (i == 0 || strcmp(row->group, row[-1].group) != 0)
            print_heading(out, row->group);
        print_row(out, row);
        crowded = crowded || row->is_oversubscribed;
        simulated = simulated || row->is_simulated;
    }
    summary_free(&summary);
    fprintf(out, "\nlatency: median of a whole image, slowest rank. sent, memory: of the rank with most. "
                 "error: of the final\nlatent against serial; exact: within 5 x the noise floor.\n");
    if (crowded)
        fprintf(out, "* more ranks than cores: this latency says nothing about the strategy.\n");
    if (simulated)
        fprintf(out, "device sim: latencies are computed from a platform's description, not measured.\n");
    return OK;
}
