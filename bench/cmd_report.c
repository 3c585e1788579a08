/* bench report: one HTML page from result files. */
#include "bench/cli.h"
#include "bench/files.h"
#include "bench/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct option opt_output = {
    .name = "output", .type = OPTION_TEXT, .fallback = "report.html", .help = "the page to write"};
static const struct option opt_title = {
    .name = "title", .type = OPTION_TEXT, .fallback = "ditto results", .help = "what the page is called"};
static const struct option opt_where = {
    .name = "where", .type = OPTION_TEXT, .fallback = "",
    .help = "only records whose options have these values, as in strategy=tp,resolution=32"};
static const struct option *const report_options[] = {&opt_output, &opt_title, &opt_where, NULL};

static enum status write_page(const struct option_set *options, const struct results *results,
                              const struct report_request *request)
{
    const char *path = option_text(options, &opt_output);
    struct files_output file;
    TRY(files_make_parent(path));
    TRY(files_create(path, &file));
    enum status status = report_write(file.stream, results, request);
    if (status == OK)
        status = files_commit(&file);
    else
        files_discard(&file);
    if (status == OK)
        printf("%s\n", path);
    return status;
}

static enum status make_report(const struct cli *cli, const struct option_set *options,
                               struct results *results)
{
    char folder[FILES_PATH];
    const char *parent = getenv("TMPDIR");
    TRY(results_read_all(cli->operands, cli->operand_count, option_text(options, &opt_where), results));
    snprintf(folder, sizeof folder, "%.*s/ditto-report.XXXXXX", FILES_PATH - 64,
             parent && *parent ? parent : "/tmp");
    if (!mkdtemp(folder))
        return FAIL(ERR_IO, "%s: cannot create: %s; set TMPDIR", folder, strerror(errno));
    const struct report_request request = {.title = option_text(options, &opt_title),
                                           .source = cli->operands[0], .figures = folder};
    enum status status = write_page(options, results, &request);
    rmdir(folder);
    return status;
}

static enum status run(const struct cli *cli)
{
    struct option_set options = {0};
    struct results results = {0};
    enum status status = cli_options(cli, &options);
    if (status == OK)
        status = make_report(cli, &options, &results);
    results_free(&results);
    option_set_free(&options);
    return status;
}

const struct command command_report = {
    .name = "report",
    .summary = "one self-contained HTML page from result files",
    .synopsis = "RESULTS.jsonl... [OPTIONS]",
    .description =
        "Writes a page to send to a colleague: a table that a click on a heading sorts (#sort=8 at the "
        "end of the address links to a view sorted by the ninth column), every figure that the results "
        "have points for, and the images of points run with --image. Everything is inside the one file. "
        "Figures are drawn by gnuplot.",
    .examples = "  bench report results/quickstart.jsonl -o report.html\n"
                "  bench report results/mine.jsonl --title \"Stale TP on my machine\"\n",
    .operands_min = 1,
    .operands_max = 64,
    .options = report_options,
    .run = run,
};
