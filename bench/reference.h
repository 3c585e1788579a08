/* What errors are measured against: `serial` on the same device, dtype, seed and noise, computed here,
 * taken from a sweep's cache, or a file that the user names. */
#ifndef BENCH_REFERENCE_H
#define BENCH_REFERENCE_H

#include "bench/error.h"
#include "bench/measure.h"

struct reference {
    float *x0;         /* [frames, channels, height, width] */
    float *trajectory; /* [steps, ...x0]; NULL: the file has none */
    size_t values;     /* of x0 */
    size_t steps;      /* of the trajectory */
    double noise_floor; /* rel_l2 of serial against serial with every inner dimension split in two */
    const char *noise_floor_reason; /* where noise_floor is NAN */
    char source[256];  /* "serial", or the file's name */
};

struct error_report {
    struct error_metrics metrics;
    double *per_step; /* rel_l2 of the latent after each step */
    size_t steps;
    double noise_floor;
    const char *noise_floor_reason;
    const char *reference; /* the reference's source */
};

/* Computes `serial` for the point in this process, twice: the second time for the noise floor. `own` is
 * the point's own measurement: where the point is serial itself it serves as the first. With a cache
 * folder, a valid file there is taken instead, and what was computed is kept there; with a warning where it
 * cannot be. Free with reference_free in every case. */
enum status reference_serial(const struct point *, const struct measurement *own, const char *cache,
                             struct reference *out) WARN_UNUSED;
/* A file with F32 tensors x_0 and trajectory (as --dump writes; one of them may be missing). ERR_USAGE:
 * another shape than the point's. */
enum status reference_file(const struct point *, const char *path, struct reference *out) WARN_UNUSED;
void reference_free(struct reference *);

/* Hex name of the point's reference in a cache; out holds 33 bytes. */
enum status reference_id(const struct point *, char out[33]) WARN_UNUSED;
/* Compares the point's output with the reference. Free with error_report_free in every case. */
enum status reference_compare(const struct reference *, const struct point *,
                              const struct measurement *, struct error_report *out) WARN_UNUSED;
void error_report_free(struct error_report *);

/* Writes x_0 and trajectory with metadata (NULL-terminated pairs, or NULL). */
enum status reference_dump(const char *path, const struct point *, const float *x0,
                           const float *trajectory, size_t steps, const char *const *metadata)
    WARN_UNUSED;

#endif
