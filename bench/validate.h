/* Judging the simulator by published rows: which rows count, how far off they are, whether the strategies
 * come out in the published order. docs/simulator.md has the rules. */
#ifndef BENCH_VALIDATE_H
#define BENCH_VALIDATE_H

#include "bench/fit.h"
#include "bench/predict.h"

enum validate_use {
    VALIDATE_JUDGED,    /* predicted, at 2048 px and up */
    VALIDATE_FITTED,    /* serial and tp: what the platform is calibrated on; in the order of pairs */
    VALIDATE_APART,     /* below 2048 px, or marked so */
    VALIDATE_EXCLUDED,
    VALIDATE_FAILED,    /* no prediction */
};

struct validate_row {
    const struct published_row *row;
    enum validate_use use;
    struct prediction emulated, own; /* with and without the published code's copies */
    char suspect[160];               /* why the published figure looks odd; "": it does not */
};

struct validate_score {
    int rows, other_rows;            /* judged; of them not pipefusion */
    double median_off, median_off_other, worst; /* median of |ratio - 1|; largest of ratio and 1/ratio */
    int pairs, pairs_in_order;
};

struct validate_platform {
    struct platform emulated, own; /* calibrated with and without emulation */
    struct fit_report emulated_fit, own_fit;
};

/* Calibrates the platform both ways. `p`: as it ships. */
enum status validate_calibrate(const struct platform *p, const struct published *,
                               struct validate_platform *out) WARN_UNUSED;
/* Predicts one of the platform's rows. */
enum status validate_predict(const struct validate_platform *, const struct published *,
                             const struct published_row *, struct validate_row *out) WARN_UNUSED;
/* is_emulated: of the predictions with emulation, else of the others. */
struct validate_score validate_score(const struct validate_row *rows, size_t count, bool is_emulated);

#endif
