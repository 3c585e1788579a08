/* Data and script, written whole, then drawn. */
#include "bench/plot_figure.h"

#include "bench/plot_gnuplot.h"

#include <stdlib.h>
#include <string.h>

static enum status fill_script(FILE *out, const char *name, const struct plot_data *data,
                               bool has_categories, const char *page)
{
    fprintf(out, "# Remake with: gnuplot -e \"format='pdf'\" %s.gp\nname = '%s'\ndata = '%s.dat'\n"
                 "if (!exists(\"page\")) page = '%s'\n", name, name, name, page);
    plot_data_write_variables(out, data, has_categories);
    TRY(plot_gnuplot_append(out, "style"));
    return plot_gnuplot_append(out, name);
}

static enum status write_script(const char *name, const struct plot_data *data, bool has_categories,
                                const char *page, const char *path)
{
    struct files_output file;
    TRY(files_create(path, &file));
    enum status status = fill_script(file.stream, name, data, has_categories, page);
    if (status == OK)
        return files_commit(&file);
    files_discard(&file);
    return status;
}

static enum status write_data(const struct plot_data *data, const char *path)
{
    struct files_output file;
    TRY(files_create(path, &file));
    plot_data_write(file.stream, data);
    return files_commit(&file);
}

static enum status draw_formats(const char *name, const struct plot_request *request)
{
    char *copy = strdup(request->formats), *rest = copy, *format;
    if (!copy)
        return FAIL(ERR_MEMORY, "--format: no memory");
    enum status status = OK;
    while (status == OK && (format = strsep(&rest, ",")) != NULL) {
        status = plot_gnuplot_draw(request->folder, name, format);
        if (status == OK && !request->is_silent)
            printf("%s/%s.%s\n", request->folder, name, format);
    }
    free(copy);
    return status;
}

enum status plot_figure_write(const char *name, const struct plot_data *data, bool has_categories,
                              const struct plot_request *request)
{
    char script[FILES_PATH], dat[FILES_PATH];
    TRY(plot_gnuplot_place(request->folder, name, "dat", dat));
    TRY(plot_gnuplot_place(request->folder, name, "gp", script));
    TRY(write_data(data, dat));
    TRY(write_script(name, data, has_categories, request->page, script));
    return draw_formats(name, request);
}

enum status plot_figure_make(const struct figure *figure, const struct results *results,
                             const struct plot_request *request, bool *drawn)
{
    struct plot_data data;
    enum status status = plot_data_collect(figure, results, request->errors, &data);
    *drawn = status == OK && plot_data_has_values(&data);
    if (*drawn)
        status = plot_figure_write(figure->name, &data, figure->has_categories, request);
    plot_data_free(&data);
    return status;
}
