/* One self-contained HTML page. */
#include "bench/report.h"

#include "bench/html.h"
#include "bench/plot_figure.h"
#include "bench/plot_gnuplot.h"
#include "bench/summary.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static const char style[] =
    "body{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;"
    "color:#222}h1{font-size:1.5em}h2{font-size:1.2em;margin-top:2em}table{border-collapse:collapse;"
    "font-size:13px;font-variant-numeric:tabular-nums}th,td{padding:.25em .6em;text-align:right;"
    "border-bottom:1px solid #ddd;white-space:nowrap}th:nth-child(-n+2),td:nth-child(-n+2),td:last-child,th:last-child"
    "{text-align:left}th{cursor:pointer;border-bottom:2px solid #888}"
    "th[aria-sort=ascending]::after{content:' \\25B2'}th[aria-sort=descending]::after{content:' \\25BC'}"
    "td:last-child{white-space:normal;min-width:9em}.scroll{overflow-x:auto}figure{margin:1.5em 0}figure svg,figure img{max-width:100%;height:auto}"
    "figcaption{color:#555;font-size:13px}img{image-rendering:pixelated}";

/* Sorts by the data-v of a column's cells, numbers before texts before nothing; "#sort=3" in the address
 * sorts on loading, "#sort=-3" downwards, so that a view can be linked to. */
static const char script[] =
    "const table=document.getElementById('results'),heads=[...table.tHead.rows[0].cells];"
    "function key(row,i){const v=row.cells[i].dataset.v;"
    "return v===''?[2,0]:isNaN(v)?[1,v]:[0,+v]}"
    "function sort(i,down){const body=table.tBodies[0];"
    "[...body.rows].sort((a,b)=>{const x=key(a,i),y=key(b,i);"
    "if(x[0]!==y[0])return x[0]-y[0];const o=x[1]<y[1]?-1:x[1]>y[1]?1:0;return down?-o:o})"
    ".forEach(row=>body.append(row));heads.forEach((h,k)=>k===i?"
    "h.setAttribute('aria-sort',down?'descending':'ascending'):h.removeAttribute('aria-sort'))}"
    "heads.forEach((h,i)=>h.addEventListener('click',()=>"
    "sort(i,h.getAttribute('aria-sort')==='ascending')));"
    "const wish=/^#sort=(-?)(\\d+)$/.exec(location.hash);"
    "if(wish&&heads[wish[2]])sort(+wish[2],wish[1]==='-');";

/* ---- head ---- */

static void write_fact(FILE *out, const char *name, const char *value)
{
    if (!value)
        return;
    fprintf(out, "<br>%s: ", name);
    html_text(out, value);
}

static void write_head(FILE *out, const struct results *results, const struct report_request *request)
{
    const cJSON *first = results->records[0], *last = results->records[results->count - 1];
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>", out);
    html_text(out, request->title);
    fprintf(out, "</title>\n<style>%s</style></head>\n<body>\n<h1>", style);
    html_text(out, request->title);
    fprintf(out, "</h1>\n<p>%zu records of ditto", results->count);
    html_text(out, " ");
    html_text(out, json_text(first, "provenance.build.version"));
    write_fact(out, "Host", json_text(first, "provenance.host.name"));
    write_fact(out, "Processor", json_text(first, "provenance.host.cpu"));
    write_fact(out, "First point", json_text(first, "provenance.start"));
    write_fact(out, "Last point", json_text(last, "provenance.end"));
    fputs("</p>\n", out);
}

/* ---- table ---- */

/* A cell with what it is sorted by; text may be NULL: nothing known. */
static void write_cell(FILE *out, const char *text, double value)
{
    if (isnan(value))
        fprintf(out, "<td data-v=\"\">%s", text ? "" : "-");
    else
        fprintf(out, "<td data-v=\"%.17g\">", value);
    html_text(out, text);
    fputs("</td>", out);
}

static void write_number(FILE *out, const char *format, double value)
{
    char text[40];
    snprintf(text, sizeof text, format, value);
    write_cell(out, isnan(value) ? NULL : text, value);
}

static void write_name(FILE *out, const char *text)
{
    fputs("<td data-v=\"", out);
    html_text(out, text);
    fputs("\">", out);
    html_text(out, text);
    fputs("</td>", out);
}

static void write_interval(FILE *out, const struct summary_row *row)
{
    const cJSON *ci = json_at(row->record, "latency_us.ci95");
    char text[80] = "-";
    if (row->count == 1 && cJSON_IsArray(ci) && cJSON_GetArraySize(ci) == 2)
        snprintf(text, sizeof text, "%.1f to %.1f", cJSON_GetArrayItem(ci, 0)->valuedouble / 1e3,
                 cJSON_GetArrayItem(ci, 1)->valuedouble / 1e3);
    else if (row->latency_ms.high > row->latency_ms.low)
        snprintf(text, sizeof text, "%.1f to %.1f over %zu", row->latency_ms.low, row->latency_ms.high,
                 row->count - row->failed);
    write_cell(out, text, row->latency_ms.high - row->latency_ms.low);
}

static void write_error(FILE *out, const struct summary_row *row)
{
    char text[80];
    snprintf(text, sizeof text, "%.2e", row->error.median);
    if (row->is_exact)
        snprintf(text, sizeof text, "exact");
    else if (row->error.high > row->error.low)
        snprintf(text, sizeof text, "%.2e (%.1e to %.1e)", row->error.median, row->error.low,
                 row->error.high);
    write_cell(out, isnan(row->error.median) ? NULL : text, row->error.median);
}

static void write_note(FILE *out, const struct summary_row *row)
{
    char text[240] = "";
    const char *status = json_text(row->record, "status"), *reason = json_text(row->record, "reason");
    if (row->failed == row->count)
        snprintf(text, sizeof text, "%s: %.200s", status ? status : "?", reason ? reason : "");
    else if (row->failed > 0)
        snprintf(text, sizeof text, "%zu of %zu failed", row->failed, row->count);
    else
        snprintf(text, sizeof text, "%s%s", row->is_simulated ? "simulated" : "",
                 row->is_oversubscribed ? "more ranks than cores: ignore the latency" : "");
    write_name(out, text);
}

static enum status write_table(FILE *out, const struct results *results)
{
    static const char *const heads[] = {"problem", "strategy", "ranks", "latency (ms)",
                                        "interval or range (ms)", "sent (KiB/step)", "memory (MiB)",
                                        "of it stale (MiB)", "error (rel. L2)", "note"};
    struct summary summary;
    TRY(summary_build(results, &summary));
    fputs("<h2>Results</h2>\n<div class=\"scroll\"><table id=\"results\"><thead><tr>", out);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        fprintf(out, "<th scope=\"col\" title=\"click to sort\">%s</th>", heads[i]);
    fputs("</tr></thead><tbody>\n", out);
    for (size_t i = 0; i < summary.count; i++) {
        const struct summary_row *row = &summary.rows[i];
        fputs("<tr>", out);
        write_name(out, row->group);
        write_name(out, row->variant);
        write_number(out, "%.0f", row->gpus);
        write_number(out, "%.1f", row->latency_ms.median);
        write_interval(out, row);
        write_number(out, "%.1f", row->sent_kib.median);
        write_number(out, "%.2f", row->memory_mib.median);
        write_number(out, "%.2f", row->stale_mib.median);
        write_error(out, row);
        write_note(out, row);
        fputs("</tr>\n", out);
    }
    summary_free(&summary);
    fputs("</tbody></table></div>\n<p>Latency: median of a whole image, slowest rank; interval: 95% of the "
          "median by order statistics, or the range over seeds and classes. Sent, memory: of the rank with "
          "most. Error: of the final latent against serial; exact: within 5 times the noise floor.</p>\n",
          out);
    return OK;
}

/* ---- figures ---- */

static enum status embed_figure(FILE *out, const struct figure *figure, const char *folder)
{
    char path[FILES_PATH];
    TRY(plot_gnuplot_place(folder, figure->name, "svg", path));
    fprintf(out, "<figure id=\"figure-%s\">", figure->name);
    enum status status = html_svg(out, path, figure->name);
    fputs("<figcaption>", out);
    html_text(out, figure->summary);
    fputs("</figcaption></figure>\n", out);
    return status;
}

static void remove_files(const char *folder, const char *name)
{
    static const char *const endings[] = {"svg", "dat", "gp"};
    char path[FILES_PATH];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        int n = snprintf(path, sizeof path, "%s/%s.%s", folder, name, endings[i]);
        if (n < FILES_PATH)
            unlink(path);
    }
}

static enum status write_figures(FILE *out, const struct results *results, const char *folder)
{
    const struct plot_request request = {.folder = folder, .formats = "svg", .page = "auto",
                                         .is_silent = true};
    fputs("<h2>Figures</h2>\n", out);
    enum status status = OK;
    for (const struct figure *f = plot_figures; f->name && status == OK; f++) {
        bool drawn = false;
        status = plot_figure_make(f, results, &request, &drawn);
        if (status == OK && drawn)
            status = embed_figure(out, f, folder);
        remove_files(folder, f->name);
    }
    return status;
}

/* ---- images ---- */

/* The value of --image in the command line that made the record, or NULL. */
static const char *image_of(const cJSON *record)
{
    const cJSON *argv = json_at(record, "provenance.argv");
    for (const cJSON *word = argv ? argv->child : NULL; word; word = word->next) {
        const char *text = cJSON_IsString(word) ? word->valuestring : "";
        if (strcmp(text, "--image") == 0 && word->next && cJSON_IsString(word->next))
            return word->next->valuestring;
        if (strncmp(text, "--image=", 8) == 0)
            return text + 8;
    }
    return NULL;
}

/* As given, or beside the result file. */
static void find_image(const char *name, const char *source, char out[FILES_PATH])
{
    const char *slash = strrchr(source, '/');
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    snprintf(out, FILES_PATH, "%s", name);
    if (access(out, R_OK) != 0 && slash)
        snprintf(out, FILES_PATH, "%.*s/%s", (int)(slash - source), source, base);
    else if (access(out, R_OK) != 0)
        snprintf(out, FILES_PATH, "%s", base);
}

static void write_image(FILE *out, const cJSON *record, const char *name, const char *source)
{
    char path[FILES_PATH], variant[SUMMARY_TEXT], label[2 * SUMMARY_TEXT];
    summary_variant(record, NULL, variant, sizeof variant);
    snprintf(label, sizeof label, "%s, %.0f ranks, error %.3g", variant,
             json_number(record, "config.gpus"), json_number(record, "error.rel_l2"));
    find_image(name, source, path);
    fputs("<figure class=\"image\">", out);
    if (html_png(out, path, label) != OK) {
        status_clear();
        fputs("<p>The image is not there any more: ", out);
        html_text(out, name);
        fputs("</p>", out);
    }
    fputs("<figcaption>", out);
    html_text(out, label);
    fputs(": reference, result, amplified difference</figcaption></figure>\n", out);
}

static void write_images(FILE *out, const struct results *results, const char *source)
{
    bool any = false;
    for (size_t i = 0; i < results->count; i++) {
        const char *name = image_of(results->records[i]);
        if (!name)
            continue;
        if (!any)
            fputs("<h2>Images</h2>\n", out);
        any = true;
        write_image(out, results->records[i], name, source);
    }
}

enum status report_write(FILE *out, const struct results *results, const struct report_request *request)
{
    write_head(out, results, request);
    TRY(write_table(out, results));
    TRY(write_figures(out, results, request->figures));
    write_images(out, results, request->source);
    fprintf(out, "<script>%s</script>\n</body></html>\n", script);
    return OK;
}
