/* Golden sections over one parameter at a time; a robust loss, so that a bad row does not bend the rest. */
#include "bench/fit.h"

#include "bench/predict.h"
#include "common/log.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 4, SECTIONS = 16, BISECTIONS = 24 };
#define LOSS_SCALE 0.05 /* of a log ratio: about the noise of published figures */

struct fit {
    struct platform *platform;
    const struct published *published;
    bool emulates;
};

bool fit_uses(const struct published_row *row, const char *platform)
{
    bool is_tp = strcmp(row->strategy, "tp") == 0;
    if (strcmp(row->platform, platform) != 0 || !row->is_fitted_allowed || row->exclude[0])
        return false;
    if (row->apart[0])
        return false;
    return strcmp(row->strategy, "serial") == 0 || (is_tp && row->resolution >= FIT_FROM_RESOLUTION);
}

static bool is_bus_row(const struct published_row *row, const char *platform)
{
    return fit_uses(row, platform) && strcmp(row->strategy, "tp") == 0;
}

/* The steps of serial and tp are all alike: one is enough. NAN: no prediction. */
static enum status log_ratio(const struct fit *f, const struct published_row *row, double *out)
{
    struct prediction p;
    TRY(predict_row(f->platform, f->emulates, row, 1, &p));
    *out = p.status == OK ? log(p.seconds / row->seconds) : NAN;
    return OK;
}

static enum status total_loss(const struct fit *f, double *out)
{
    *out = 0;
    for (size_t i = 0; i < f->published->count; i++) {
        double r;
        if (!fit_uses(&f->published->rows[i], f->platform->name))
            continue;
        TRY(log_ratio(f, &f->published->rows[i], &r));
        if (!isnan(r))
            *out += log(1 + r * r / (LOSS_SCALE * LOSS_SCALE));
    }
    return OK;
}

/* The value between low and high (logarithmic) at which the loss is least. */
static enum status minimise(const struct fit *f, double *parameter, double low, double high)
{
    const double golden = 0.6180339887498949;
    double a = log(low), b = log(high), loss_c, loss_d;
    double c = b - golden * (b - a), d = a + golden * (b - a);
    *parameter = exp(c);
    TRY(total_loss(f, &loss_c));
    *parameter = exp(d);
    TRY(total_loss(f, &loss_d));
    for (int i = 0; i < SECTIONS; i++) {
        bool is_left = loss_c < loss_d;
        if (is_left)
            b = d, d = c, loss_d = loss_c, c = b - golden * (b - a);
        else
            a = c, c = d, loss_c = loss_d, d = a + golden * (b - a);
        *parameter = exp(is_left ? c : d);
        TRY(total_loss(f, is_left ? &loss_c : &loss_d));
    }
    *parameter = exp((a + b) / 2);
    return OK;
}

static enum status fit_ceilings(const struct fit *f)
{
    struct platform_gpu *gpu = &f->platform->gpu;
    for (int round = 0; round < ROUNDS; round++) {
        TRY(minimise(f, &gpu->attention_ceiling, gpu->attention_ceiling * 0.7,
                     fmin(1, gpu->attention_ceiling * 1.4)));
        TRY(minimise(f, &gpu->gemm_ceiling, gpu->gemm_ceiling * 0.7,
                     fmin(1, gpu->gemm_ceiling * 1.4)));
    }
    return OK;
}

static void set_bus(struct platform *p, double bus)
{
    if (p->node.all_to_all == p->node.bus)
        p->node.all_to_all = bus;
    p->node.bus = bus;
}

/* The bandwidth at which the row comes out as published; 0: none does. */
static enum status implied_bus(const struct fit *f, const struct published_row *row, double *out)
{
    struct platform trial = *f->platform;
    struct fit at = {.platform = &trial, .published = f->published, .emulates = f->emulates};
    double low = f->platform->node.bus / 64, high = f->platform->node.bus * 16, r;
    set_bus(&trial, high);
    TRY(log_ratio(&at, row, &r));
    *out = 0;
    if (!(r < 0))
        return OK;
    for (int i = 0; i < BISECTIONS; i++) {
        double middle = sqrt(low * high);
        set_bus(&trial, middle);
        TRY(log_ratio(&at, row, &r));
        if (r < 0)
            high = middle;
        else
            low = middle;
    }
    *out = sqrt(low * high);
    return OK;
}

/* The bus at which the rows' log ratios lose least, if they agree about it at all. */
static enum status fit_bus(const struct fit *f, double table, struct fit_report *report)
{
    report->bus_rows = 0;
    report->least_bus = INFINITY;
    report->most_bus = 0;
    for (size_t i = 0; i < f->published->count; i++) {
        double bus;
        if (!is_bus_row(&f->published->rows[i], f->platform->name))
            continue;
        TRY(implied_bus(f, &f->published->rows[i], &bus));
        if (bus == 0)
            continue;
        report->bus_rows++;
        report->least_bus = fmin(report->least_bus, bus);
        report->most_bus = fmax(report->most_bus, bus);
    }
    report->is_bus_fitted =
        report->bus_rows > 0 && report->most_bus <= FIT_BUS_SPREAD * report->least_bus;
    if (!report->is_bus_fitted) {
        set_bus(f->platform, table);
        return OK;
    }
    bool is_same = f->platform->node.all_to_all == f->platform->node.bus;
    if (report->most_bus > report->least_bus)
        TRY(minimise(f, &f->platform->node.bus, report->least_bus, report->most_bus));
    else
        f->platform->node.bus = report->least_bus;
    if (is_same)
        f->platform->node.all_to_all = f->platform->node.bus;
    return OK;
}

enum status fit_platform(struct platform *p, bool emulates, const struct published *published,
                         struct fit_report *out)
{
    const struct fit f = {.platform = p, .published = published, .emulates = emulates};
    double table = p->node.bus;
    *out = (struct fit_report){0};
    int serial_rows = 0;
    for (size_t i = 0; i < published->count; i++) {
        const struct published_row *row = &published->rows[i];
        out->rows += fit_uses(row, p->name);
        serial_rows += fit_uses(row, p->name) && strcmp(row->strategy, "serial") == 0;
    }
    if (out->rows == 0)
        return OK;
    if (serial_rows == 0)
        log_warn("%s: no serial row: tp rows alone do not tell computing from communicating; add one", p->name);
    TRY(fit_ceilings(&f));
    for (int round = 0; round < 2; round++) {
        TRY(fit_bus(&f, table, out));
        TRY(fit_ceilings(&f));
    }
    return OK;
}
