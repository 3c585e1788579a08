/* Ratios, order, and rows that look odd. */
#include "bench/validate.h"

#include "bench/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAIR_APART 1.1    /* strategies nearer than that have no order */
#define FAST_GROWTH 1.5   /* times serial's growth between two resolutions */

static bool is_strategy(const struct published_row *row, const char *name)
{
    return strcmp(row->strategy, name) == 0;
}

/* ---- odd rows ---- */

static const struct published_row *serial_at(const struct published *p, const char *platform,
                                             double resolution)
{
    for (size_t i = 0; i < p->count; i++)
        if (is_strategy(&p->rows[i], "serial") && strcmp(p->rows[i].platform, platform) == 0 &&
            p->rows[i].resolution == resolution)
            return &p->rows[i];
    return NULL;
}

static bool is_same_series(const struct published_row *a, const struct published_row *b)
{
    return strcmp(a->platform, b->platform) == 0 && a->gpus == b->gpus && is_strategy(a, b->strategy) &&
           a->setting_count == b->setting_count &&
           memcmp(a->settings, b->settings, sizeof a->settings) == 0;
}

/* The row of the same series at the next smaller resolution. */
static const struct published_row *smaller(const struct published *p, const struct published_row *row)
{
    const struct published_row *best = NULL;
    for (size_t i = 0; i < p->count; i++)
        if (is_same_series(&p->rows[i], row) && p->rows[i].resolution < row->resolution &&
            (best == NULL || p->rows[i].resolution > best->resolution))
            best = &p->rows[i];
    return best;
}

static void find_oddity(const struct published *p, const struct published_row *row, char out[160])
{
    const struct published_row *serial = serial_at(p, row->platform, row->resolution);
    const struct published_row *before = smaller(p, row);
    const struct published_row *serial_before =
        before ? serial_at(p, row->platform, before->resolution) : NULL;
    out[0] = '\0';
    if (row->gpus > 1 && serial && row->seconds > serial->seconds)
        snprintf(out, 160, "slower than one GPU");
    else if (serial && serial_before && row->gpus > 1 &&
             row->seconds / before->seconds > FAST_GROWTH * serial->seconds / serial_before->seconds)
        snprintf(out, 160, "grows %.1f times as fast as serial from %g px",
                 row->seconds / before->seconds / (serial->seconds / serial_before->seconds),
                 before->resolution);
}

/* ---- one row ---- */

enum status validate_calibrate(const struct platform *p, const struct published *published,
                               struct validate_platform *out)
{
    out->emulated = out->own = *p;
    TRY(fit_platform(&out->emulated, true, published, &out->emulated_fit));
    return fit_platform(&out->own, false, published, &out->own_fit);
}

static enum validate_use use_of(const struct published_row *row)
{
    if (row->exclude[0])
        return VALIDATE_EXCLUDED;
    if (row->apart[0] || row->resolution < FIT_FROM_RESOLUTION)
        return VALIDATE_APART;
    return is_strategy(row, "serial") || is_strategy(row, "tp") ? VALIDATE_FITTED : VALIDATE_JUDGED;
}

enum status validate_predict(const struct validate_platform *p, const struct published *published,
                             const struct published_row *row, struct validate_row *out)
{
    *out = (struct validate_row){.row = row, .use = use_of(row)};
    TRY(predict_row(&p->emulated, true, row, PREDICT_ALL_STEPS, &out->emulated));
    TRY(predict_row(&p->own, false, row, PREDICT_ALL_STEPS, &out->own));
    if (out->emulated.status != OK)
        out->use = VALIDATE_FAILED;
    find_oddity(published, row, out->suspect);
    return OK;
}

/* ---- all rows ---- */

static double ratio_of(const struct validate_row *r, bool is_emulated)
{
    return (is_emulated ? r->emulated.seconds : r->own.seconds) / r->row->seconds;
}

static double median_off(const struct validate_row *rows, size_t count, bool is_emulated, bool all,
                         int *n)
{
    double *off = calloc(count + 1, sizeof *off);
    ASSERT(off != NULL);
    *n = 0;
    for (size_t i = 0; i < count; i++)
        if (rows[i].use == VALIDATE_JUDGED && (all || !is_strategy(rows[i].row, "pipefusion")))
            off[(*n)++] = fabs(ratio_of(&rows[i], is_emulated) - 1);
    double median = *n > 0 ? stats_median(off, (size_t)*n) : NAN;
    free(off);
    return median;
}

static bool is_pair(const struct validate_row *a, const struct validate_row *b)
{
    bool counts = (a->use == VALIDATE_JUDGED || is_strategy(a->row, "tp")) &&
                  (b->use == VALIDATE_JUDGED || is_strategy(b->row, "tp"));
    double x = a->row->seconds, y = b->row->seconds;
    return counts && a->use <= VALIDATE_FITTED && b->use <= VALIDATE_FITTED &&
           strcmp(a->row->platform, b->row->platform) == 0 && a->row->gpus == b->row->gpus &&
           a->row->resolution == b->row->resolution && !is_strategy(a->row, b->row->strategy) &&
           fmax(x, y) > PAIR_APART * fmin(x, y);
}

struct validate_score validate_score(const struct validate_row *rows, size_t count, bool is_emulated)
{
    struct validate_score s = {.worst = 1};
    s.median_off = median_off(rows, count, is_emulated, true, &s.rows);
    s.median_off_other = median_off(rows, count, is_emulated, false, &s.other_rows);
    for (size_t i = 0; i < count; i++) {
        double ratio = ratio_of(&rows[i], is_emulated);
        if (rows[i].use == VALIDATE_JUDGED)
            s.worst = fmax(s.worst, fmax(ratio, 1 / ratio));
        for (size_t j = 0; j < i; j++) {
            if (!is_pair(&rows[i], &rows[j]))
                continue;
            double published = rows[i].row->seconds - rows[j].row->seconds;
            double predicted = ratio * rows[i].row->seconds -
                               ratio_of(&rows[j], is_emulated) * rows[j].row->seconds;
            s.pairs++;
            s.pairs_in_order += published * predicted > 0;
        }
    }
    return s;
}
