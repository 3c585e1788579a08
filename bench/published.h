/* Published measurements as rows: what the simulator is judged by, and what it is calibrated from.
 *
 * {"source": "...", "platforms": [platform file contents, ...], "rows": [{"platform": "a100-pcie", "gpus": 4,
 *  "strategy": "tp", "resolution": 2048, "seconds": 19.45, ...}, ...]}
 * Optional in a row: sync_steps (our --warmup-steps; warmup_steps, the paper's own, is then ignored),
 * exclude or apart (a reason), fit (false: not used for calibration), and every option of a point by its name
 * with _ for -, such as patches. "defaults" may hold such options for all rows. Lines of ditto's own records
 * are read too. Defaults: PixArt-alpha, 20 steps, fp16, guidance as a batch of two. */
#ifndef BENCH_PUBLISHED_H
#define BENCH_PUBLISHED_H

#include "bench/json.h"
#include "common/platform.h"

#include <stdbool.h>

enum { PUBLISHED_SETTINGS = 16 };

struct published_row {
    char platform[64], strategy[32];
    int gpus;
    double resolution, seconds;
    struct published_setting {
        char name[32], text[64];
    } settings[PUBLISHED_SETTINGS]; /* options of the point */
    int setting_count;
    bool has_patches;       /* else pipefusion takes the best of several */
    bool is_fitted_allowed; /* "fit" is not false */
    char exclude[160], apart[160]; /* reasons; "": none */
};

struct published {
    struct published_row *rows;
    size_t count;
    struct platform *platforms; /* described by the file */
    size_t platform_count;
};

/* ERR_FORMAT: the row and the rule. Free with published_free in every case. */
enum status published_read(const char *path, struct published *out) WARN_UNUSED;
void published_free(struct published *);
/* What a row is called in tables: "tp 4 x 2048 px". */
void published_name(const struct published_row *, char *out, size_t size);

#endif
