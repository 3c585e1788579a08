/* A point: one combination of options, resolved into a model, a problem, a strategy, a device and a
 * transport. `run` has one point, `sweep` many; everything else is built on this. */
#ifndef BENCH_POINT_H
#define BENCH_POINT_H

#include "common/option.h"
#include "common/platform.h"
#include "kernels/device.h"
#include "strategies/strategy.h"

/* The options of a point that do not belong to a strategy. */
extern const struct option point_opt_model, point_opt_resolution, point_opt_frames, point_opt_steps,
    point_opt_class, point_opt_cfg_scale, point_opt_seed, point_opt_init, point_opt_strategy,
    point_opt_gpus, point_opt_cfg_degree, point_opt_device, point_opt_transport, point_opt_platform,
    point_opt_dtype, point_opt_threads, point_opt_mode, point_opt_heads, point_opt_patch,
    point_opt_vae_factor, point_opt_classes, point_opt_kind, point_opt_warmup_runs, point_opt_repeat,
    point_opt_timeout, point_opt_reference;

/* A set with all of them and every registered strategy's options, at their defaults. */
enum status point_options_init(struct option_set *set) WARN_UNUSED;
/* Does this point have a use for the option? (false: it does not multiply a sweep's points, is not part
 * of case_id and not echoed) */
bool point_uses(const struct option_set *set, const struct option *option);

/* By name; "": the first device, the first transport that reaches the device's memory. Loads the plug-in
 * where it brings the device. ERR_USAGE lists the known ones; ERR_UNSUPPORTED: the plug-in says what is
 * missing. */
enum status point_find_device(const char *name, const struct device_ops **out) WARN_UNUSED;
enum status point_find_transport(const char *name, const struct device_ops *,
                                 const struct comm_ops **out) WARN_UNUSED;

struct point {
    const struct option_set *options; /* the caller's */
    const struct strategy *strategy;
    const struct device_ops *device;
    const struct comm_ops *transport;
    struct model *model;
    struct problem problem;
    struct layout layout;
    float *noise;            /* owns problem.noise */
    const char *known_sha256; /* of the model, by point_resolve_known; the caller's */
    struct platform platform; /* what device sim simulates; name "" on other devices */
    char init_sha256[65];    /* "" without --init */
    int nranks, threads;
    int warmup_runs, repeat;
    double timeout_s;
    bool runs_mode[3];       /* by enum run_mode: which are timed */
    struct reason refusal;   /* why status was ERR_UNSUPPORTED */
};

/* Loads the model and checks everything. ERR_USAGE: a value or a contradiction the user must mend.
 * ERR_IO, ERR_FORMAT: a file. ERR_UNSUPPORTED: the strategy, device or model refuses (point->refusal
 * says why; the point is filled as far as it goes). free with point_close in every case. */
enum status point_resolve(const struct option_set *options, struct point *point) WARN_UNUSED;
/* The same on device sim with a platform that is not a file's. model_sha256: of the model's file where it
 * was hashed before, else NULL. */
enum status point_resolve_on(const struct option_set *options, const struct platform *platform,
                             const char *model_sha256, struct point *point) WARN_UNUSED;
/* point_resolve on a rank that need not hash or check the model's file, because rank 0 did. */
enum status point_resolve_known(const struct option_set *, const char *model_sha256,
                                struct point *point) WARN_UNUSED;
void point_close(struct point *point);
/* The same problem for `serial` on the same device: what errors are measured against. `point` borrows
 * the model and noise of `of`. */
void point_reference(const struct point *of, struct point *point);

#endif
