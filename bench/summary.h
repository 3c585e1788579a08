/* Records summed up for tables: what differs in seed or class only is one row, with medians and ranges. */
#ifndef BENCH_SUMMARY_H
#define BENCH_SUMMARY_H

#include "bench/results.h"
#include <stdbool.h>

enum { SUMMARY_TEXT = 96 };

/* A number over the records of a row; NAN where none has it. */
struct summary_value {
    double median, low, high;
};

struct summary_row {
    const cJSON *record;             /* one that is ok, else the first */
    char group[3 * SUMMARY_TEXT];    /* what is the same for a comparison: model, pixels, steps, device */
    char variant[SUMMARY_TEXT];      /* "tp-stale peers s=2" */
    double gpus, pixels;
    size_t count, failed;            /* records; those of them that are not ok */
    struct summary_value latency_ms; /* median of an image, slowest rank */
    struct summary_value sent_kib;   /* per step, of the rank that sends most */
    struct summary_value memory_mib, stale_mib; /* peak of the rank that holds most; of it, stale */
    struct summary_value error;      /* relative L2 of the final latent */
    bool is_exact;                   /* within 5 x the noise floor */
    bool is_oversubscribed, is_simulated;
};

struct summary {
    struct summary_row *rows; /* sorted by pixels, group, variant, gpus */
    size_t count;
};

/* The records stay the caller's and must outlive the rows. Free with summary_free in every case. */
enum status summary_build(const struct results *, struct summary *out) WARN_UNUSED;
void summary_free(struct summary *);
/* A strategy with what sets it apart from its variants: "tp-stale peers s=2". Options named in `without`
 * (as in config, separated by spaces; NULL: none) are left out. */
void summary_variant(const cJSON *record, const char *without, char *out, size_t size);
/* The name of a record's model without its folder. */
const char *summary_model(const cJSON *record);
/* Of device sim: the time is a model's, not a clock's. */
bool summary_is_simulated(const cJSON *record);
/* Its error is within 5 x the noise floor. */
bool summary_is_exact(const cJSON *record);
/* More ranks than cores: the latency says nothing about the strategy. */
bool summary_is_oversubscribed(const cJSON *record);

#endif
