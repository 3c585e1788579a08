/* CSV, JSON and LaTeX. */
#include "bench/export.h"

#include "bench/summary.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 160 };

/* ---- CSV ---- */

/* Paths to single values, in order of appearance. */
struct columns {
    char (*paths)[PATH];
    size_t count;
};

static enum status add_column(struct columns *columns, const char *path)
{
    for (size_t i = 0; i < columns->count; i++)
        if (strcmp(columns->paths[i], path) == 0)
            return OK;
    char(*grown)[PATH] = realloc(columns->paths, (columns->count + 1) * sizeof *grown);
    if (!grown)
        return FAIL(ERR_MEMORY, "no memory for %zu columns", columns->count + 1);
    columns->paths = grown;
    snprintf(grown[columns->count++], PATH, "%s", path);
    return OK;
}

static bool is_interval(const char *path)
{
    return strcmp(path, "latency_us.ci95") == 0;
}

static enum status add_columns(struct columns *columns, const cJSON *value, const char *path)
{
    if (!cJSON_IsObject(value) && !cJSON_IsArray(value) && !is_interval(path))
        return add_column(columns, path);
    if (!cJSON_IsObject(value) && !is_interval(path))
        return OK;
    if (!cJSON_IsObject(value)) {
        TRY(add_column(columns, "latency_us.ci95.0"));
        return add_column(columns, "latency_us.ci95.1");
    }
    for (const cJSON *item = value->child; item; item = item->next) {
        char below[PATH];
        snprintf(below, sizeof below, "%.100s%s%.50s", path, *path ? "." : "", item->string);
        TRY(add_columns(columns, item, below));
    }
    return OK;
}

static const cJSON *value_at(const cJSON *record, const char *path)
{
    static const char *const ends[] = {"latency_us.ci95.0", "latency_us.ci95.1"};
    for (int i = 0; i < 2; i++)
        if (strcmp(path, ends[i]) == 0)
            return cJSON_GetArrayItem(json_at(record, "latency_us.ci95"), i);
    return json_at(record, path);
}

static void write_quoted(FILE *out, const char *text)
{
    if (!text[strcspn(text, ",\"\r\n")]) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void write_field(FILE *out, const cJSON *value)
{
    if (cJSON_IsString(value)) {
        write_quoted(out, value->valuestring);
    } else if (cJSON_IsNumber(value)) {
        char digits[JSON_NUMBER];
        json_number_text(value->valuedouble, digits);
        fputs(digits, out);
    } else if (cJSON_IsBool(value)) {
        fputs(cJSON_IsTrue(value) ? "true" : "false", out);
    }
}

enum status export_csv(FILE *out, const struct results *results)
{
    struct columns columns = {0};
    enum status status = OK;
    for (size_t i = 0; i < results->count && status == OK; i++)
        status = add_columns(&columns, results->records[i], "");
    for (size_t c = 0; c < columns.count && status == OK; c++)
        fprintf(out, "%s%s", c ? "," : "", columns.paths[c]);
    fputc('\n', out);
    for (size_t i = 0; i < results->count && status == OK; i++) {
        for (size_t c = 0; c < columns.count; c++) {
            fputs(c ? "," : "", out);
            write_field(out, value_at(results->records[i], columns.paths[c]));
        }
        fputc('\n', out);
    }
    free(columns.paths);
    return status;
}

/* ---- JSON ---- */

enum status export_json(FILE *out, const struct results *results)
{
    fputs("[", out);
    for (size_t i = 0; i < results->count; i++) {
        json_make_exact(results->records[i]);
        char *text = json_print(results->records[i]);
        fprintf(out, "%s\n%s", i ? "," : "", text);
        free(text);
    }
    fputs("\n]\n", out);
    return OK;
}

/* ---- LaTeX ---- */

static void write_latex_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("&%$#_{}", *text))
            fprintf(out, "\\%c", *text);
        else if (*text == '~' || *text == '^')
            fprintf(out, "\\%c{}", *text);
        else if (*text == '\\')
            fputs("\\textbackslash{}", out);
        else
            fputc(*text, out);
    }
}

static void write_cell(FILE *out, const char *format, double value)
{
    fputs(" & ", out);
    if (isnan(value))
        fputs("--", out);
    else
        fprintf(out, format, value);
}

/* 1.2e-3 as $1.2\cdot10^{-3}$ */
static void write_power(FILE *out, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.2e", value);
    const char *e = strchr(text, 'e');
    fprintf(out, "$%.*s\\cdot10^{%d}$", (int)(e - text), text, atoi(e + 1));
}

static void write_error(FILE *out, const struct summary_row *row)
{
    fputs(" & ", out);
    if (isnan(row->error.median)) {
        fputs("--", out);
    } else if (row->is_exact) {
        fputs("exact", out);
    } else {
        write_power(out, row->error.median);
        if (row->error.high > row->error.low && row->error.low > 0.0) {
            fputs(" (", out);
            write_power(out, row->error.low);
            fputs("--", out);
            write_power(out, row->error.high);
            fputc(')', out);
        }
    }
}

static void write_latex_row(FILE *out, const struct summary_row *row)
{
    write_latex_text(out, row->variant);
    fprintf(out, " & %.0f", row->gpus);
    if (row->failed == row->count) {
        const char *status = json_text(row->record, "status");
        fprintf(out, " & \\multicolumn{4}{l}{%s} \\\\\n", status ? status : "?");
        return;
    }
    write_cell(out, "%.1f", row->latency_ms.median);
    fprintf(out, "%s%s", row->is_oversubscribed ? "$^*$" : "", row->is_simulated ? "$^\\dagger$" : "");
    write_cell(out, "%.1f", row->sent_kib.median);
    write_cell(out, "%.2f", row->memory_mib.median);
    write_error(out, row);
    fputs(" \\\\\n", out);
}

enum status export_latex(FILE *out, const struct results *results)
{
    struct summary summary;
    TRY(summary_build(results, &summary));
    bool crowded = false, simulated = false;
    fputs("% needs \\usepackage{booktabs}\n\\begin{tabular}{lrrrrr}\n\\toprule\n"
          "strategy & ranks & latency (ms) & sent (KiB/step) & memory (MiB) & error (rel.\\ L2) \\\\\n",
          out);
    for (size_t i = 0; i < summary.count; i++) {
        const struct summary_row *row = &summary.rows[i];
        if (i == 0 || strcmp(row->group, row[-1].group) != 0) {
            fputs("\\midrule\n\\multicolumn{6}{l}{\\emph{", out);
            write_latex_text(out, row->group);
            fputs("}} \\\\\n", out);
        }
        write_latex_row(out, row);
        crowded = crowded || row->is_oversubscribed;
        simulated = simulated || row->is_simulated;
    }
    fputs("\\bottomrule\n\\end{tabular}\n", out);
    if (crowded)
        fputs("% $^*$ more ranks than cores: says nothing about the strategy\n", out);
    if (simulated)
        fputs("% $^\\dagger$ simulated, not measured\n", out);
    summary_free(&summary);
    return OK;
}
