/* PNG of a latent beside its reference. */
#include "bench/image.h"

#include "bench/files.h"

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>

enum { GAP = 4, READABLE = 192 };

struct panel {
    const float *values, *minus; /* minus: NULL, or subtracted first */
    double scale;
};

struct picture {
    size_t frames, channels, height, width, shown, zoom;
    const struct panel *panels;
    size_t panel_count;
};

static png_byte shade(double value)
{
    double level = (value + 1.0) * 127.5;
    return (png_byte)lrint(fmin(255.0, fmax(0.0, isnan(level) ? 0.0 : level)));
}

static size_t picture_width(const struct picture *p)
{
    return p->panel_count * p->width * p->zoom + (p->panel_count - 1) * GAP;
}

/* One line of pixels of latent row `row` in `frame`. */
static void paint_row(const struct picture *p, size_t frame, size_t row, png_byte *line)
{
    for (size_t i = 0; i < p->panel_count; i++) {
        const struct panel *panel = &p->panels[i];
        for (size_t x = 0; x < p->width * p->zoom; x++)
            for (size_t c = 0; c < p->shown; c++) {
                size_t at = ((frame * p->channels + c) * p->height + row) * p->width + x / p->zoom;
                double value = panel->values[at] - (panel->minus ? panel->minus[at] : 0.0);
                *line++ = shade(value * panel->scale);
            }
        for (size_t x = 0; x < GAP * p->shown && i + 1 < p->panel_count; x++)
            *line++ = 255;
    }
}

static void write_rows(png_structp png, const struct picture *p, png_byte *line)
{
    for (size_t frame = 0; frame < p->frames; frame++)
        for (size_t row = 0; row < p->height; row++) {
            paint_row(p, frame, row, line);
            for (size_t z = 0; z < p->zoom; z++)
                png_write_row(png, line);
        }
}

static enum status encode(FILE *stream, const struct picture *p, char *comment, png_byte *line)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info || setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        return FAIL(ERR_IO, "cannot write the image");
    }
    png_init_io(png, stream);
    png_set_IHDR(png, info, (png_uint_32)picture_width(p),
                 (png_uint_32)(p->frames * p->height * p->zoom), 8,
                 p->shown == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    char key[] = "Comment";
    png_text text = {.compression = PNG_TEXT_COMPRESSION_NONE, .key = key, .text = comment};
    png_set_text(png, info, &text, 1);
    png_write_info(png, info);
    write_rows(png, p, line);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return OK;
}

static double largest_difference(const float *a, const float *b, size_t n)
{
    double largest = 0.0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)a[i] - (double)b[i]));
    return largest;
}

enum status image_write(const char *path, const struct point *point, const float *result,
                        const float *reference)
{
    const struct problem *problem = &point->problem;
    struct picture p = {.frames = (size_t)problem->frames,
                        .channels = (size_t)problem->shape->channels,
                        .height = (size_t)problem->latent_height,
                        .width = (size_t)problem->latent_width};
    p.shown = p.channels >= 3 ? 3 : 1;
    p.zoom = p.width < READABLE ? (READABLE + p.width - 1) / p.width : 1;
    size_t values = p.frames * p.channels * p.height * p.width;
    double largest = reference ? largest_difference(result, reference, values) : 0.0;
    double scale = largest > 0.0 && isfinite(largest) ? 1.0 / largest : 1.0;
    const struct panel panels[] = {
        {reference, NULL, 1.0}, {result, NULL, 1.0}, {result, reference, scale}};
    p.panels = reference ? panels : panels + 1;
    p.panel_count = reference ? 3 : 1;
    char comment[160];
    snprintf(comment, sizeof comment, "%s", "result");
    if (reference)
        snprintf(comment, sizeof comment, "reference, result, difference times %.6g", scale);
    png_byte *line = malloc(picture_width(&p) * p.shown);
    if (!line)
        return FAIL(ERR_MEMORY, "%s: no memory for a line of pixels", path);
    struct files_output file;
    enum status status = files_create(path, &file);
    if (status == OK)
        status = encode(file.stream, &p, comment, line);
    if (status == OK)
        status = files_commit(&file);
    else
        files_discard(&file);
    free(line);
    return status;
}
