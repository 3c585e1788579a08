/* For tests: runs points in this process, and reads the golden cases. */
#ifndef TESTS_RUN_POINT_H
#define TESTS_RUN_POINT_H

#include "bench/measure.h"

/* A point and what it measured. Free with run_point_free, also after a failure. */
struct run_point {
    struct option_set options;
    struct point point;
    struct measurement measured;
    enum status status;      /* of resolving or measuring */
    struct failure failure;  /* its text */
};

/* `arguments`: "strategy=tp gpus=2 model=tests/models/tiny.safetensors resolution=16 repeat=0", option
 * names without dashes; file names are relative to the source root. Later arguments win. Measures one
 * timed run without warm-up and the error run unless repeat and warmup-runs are given. */
void run_point(struct run_point *run, const char *arguments, ...) PRINTF_LIKE(2, 3);
/* The same; fails the test unless it ends well and the bytes are right (run_point_check_bytes). */
void run_point_well(struct run_point *run, const char *arguments, ...) PRINTF_LIKE(2, 3);
void run_point_free(struct run_point *run);
/* Relative L2 distance of two final latents; INFINITY when sizes differ or a value is not finite. */
double run_point_distance(const struct run_point *run, const float *values, size_t count);
double run_point_distance_to(const struct run_point *run, const struct run_point *reference);
/* Fails the test unless both points end well and their last latents are within the tolerance; 0: the same
 * bits. */
void run_point_expect_equal(const char *a, const char *b, double tolerance);
/* Bytes sent by a rank in one timed run: of one op and traffic over both phases; of all. */
uint64_t run_point_sent(const struct run_point *run, int rank, enum comm_op op, enum traffic traffic);
uint64_t run_point_sent_all(const struct run_point *run, int rank);
/* NULL, or what is wrong: counted bytes of each rank, op, traffic and phase must equal the claim, their
 * sum the transport's own count, and held stale bytes the claim's. The text is static. */
const char *run_point_check_bytes(const struct run_point *run);

/* One golden case of tests/golden/manifest.json. */
struct golden_case {
    char file[128], model[128], strategy[32];
    int gpus;              /* 0: free */
    int frames;            /* 0: an image */
    bool is_peers;
    char arguments[1024];  /* of run_point, all but strategy, gpus and device */
    float *x0;             /* the last latent of the trajectory */
    size_t count;
};
/* All cases; NULL without a manifest. */
struct golden_case *golden_load(size_t *count);
void golden_free(struct golden_case *cases, size_t count);

#endif
