/* References: computing, caching, reading, comparing. */
#include "bench/reference.h"

#include "bench/record.h"
#include "common/log.h"
#include "common/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const no_floor = "the reference is a file without one";

void reference_free(struct reference *reference)
{
    free(reference->x0);
    free(reference->trajectory);
    *reference = (struct reference){0};
}

static size_t point_values(const struct point *point)
{
    const struct problem *problem = &point->problem;
    return (size_t)problem->frames * (size_t)problem->shape->channels *
           (size_t)problem->latent_height * (size_t)problem->latent_width;
}

/* ---- files ---- */

/* Shape of one latent: [C, h, w], or [T, C, h, w] for video. */
static int latent_shape(const struct point *point, uint64_t shape[4])
{
    const struct problem *problem = &point->problem;
    int dims = 0;
    if (problem->shape->kind == MODEL_VIDEO)
        shape[dims++] = (uint64_t)problem->frames;
    shape[dims++] = (uint64_t)problem->shape->channels;
    shape[dims++] = (uint64_t)problem->latent_height;
    shape[dims++] = (uint64_t)problem->latent_width;
    return dims;
}

enum status reference_dump(const char *path, const struct point *point, const float *x0,
                           const float *trajectory, size_t steps, const char *const *metadata)
{
    struct safetensors_output tensors[2] = {{.name = "x_0", .data = x0},
                                            {.name = "trajectory", .data = trajectory}};
    tensors[0].dims = latent_shape(point, tensors[0].shape);
    tensors[1].dims = tensors[0].dims + 1;
    tensors[1].shape[0] = steps;
    memcpy(tensors[1].shape + 1, tensors[0].shape, 4 * sizeof *tensors[0].shape);
    return safetensors_write(path, tensors, trajectory ? 2 : 1, metadata);
}

/* The tensor as floats; absent: *out = NULL. `steps` latents of `values` values each. */
static enum status read_latents(const struct safetensors *file, const char *name, size_t values,
                                size_t steps, float **out)
{
    const struct safetensors_tensor *tensor = safetensors_find(file, name);
    *out = NULL;
    if (!tensor)
        return OK;
    if (tensor->elements != values * steps)
        return FAIL(ERR_USAGE, "%s: %s has %" PRIu64 " values, the point has %zu",
                    safetensors_path(file), name, tensor->elements, values * steps);
    float *data = malloc(values * steps * sizeof *data);
    if (!data)
        return FAIL(ERR_MEMORY, "%s: no memory for %s", safetensors_path(file), name);
    enum status status = safetensors_read_floats(file, tensor, 0, values * steps, data);
    if (status == OK)
        *out = data;
    else
        free(data);
    return status;
}

static enum status read_tensors(const struct safetensors *file, const struct point *point,
                                struct reference *out)
{
    out->values = point_values(point);
    out->steps = (size_t)point->problem.steps;
    TRY(read_latents(file, "x_0", out->values, 1, &out->x0));
    TRY(read_latents(file, "trajectory", out->values, out->steps, &out->trajectory));
    if (!out->x0 && !out->trajectory)
        return FAIL(ERR_USAGE, "%s: has neither x_0 nor trajectory; write one with bench run --dump",
                    safetensors_path(file));
    if (out->x0)
        return OK;
    out->x0 = malloc(out->values * sizeof *out->x0);
    if (!out->x0)
        return FAIL(ERR_MEMORY, "%s: no memory for x_0", safetensors_path(file));
    memcpy(out->x0, out->trajectory + (out->steps - 1) * out->values, out->values * sizeof *out->x0);
    return OK;
}

enum status reference_file(const struct point *point, const char *path, struct reference *out)
{
    *out = (struct reference){.noise_floor = NAN, .noise_floor_reason = no_floor};
    snprintf(out->source, sizeof out->source, "%s", path);
    struct safetensors *file = NULL;
    TRY(safetensors_open(path, &file));
    enum status status = read_tensors(file, point, out);
    safetensors_close(file);
    return status;
}

/* ---- the cache of a sweep ---- */

enum status reference_id(const struct point *point, char out[33])
{
    static const struct {
        const struct option *option;
        const char *text;
    } of_serial[] = {
        {&point_opt_strategy, "serial"}, {&point_opt_gpus, "1"}, {&point_opt_cfg_degree, "1"}};
    struct option_set options;
    TRY(option_set_copy(&options, point->options));
    enum status status = OK;
    for (size_t i = 0; i < sizeof of_serial / sizeof *of_serial && status == OK; i++)
        status = option_assign(&options, of_serial[i].option->name, of_serial[i].text);
    if (status == OK)
        record_case_id(point, &options, out);
    option_set_free(&options);
    return status;
}

static void hash_reference(const struct reference *reference, const char *id, const char *floor,
                           char out[SHA256_DIGEST_STRING_LENGTH])
{
    SHA2_CTX hash;
    SHA256Init(&hash);
    SHA256Update(&hash, (const uint8_t *)id, strlen(id) + 1);
    SHA256Update(&hash, (const uint8_t *)floor, strlen(floor) + 1);
    size_t bytes = reference->values * sizeof(float);
    SHA256Update(&hash, (const uint8_t *)reference->x0, bytes);
    if (reference->trajectory)
        SHA256Update(&hash, (const uint8_t *)reference->trajectory, bytes * reference->steps);
    SHA256End(&hash, out);
}

static bool is_verified(const struct safetensors *file, const char *id, struct reference *reference)
{
    const char *floor = safetensors_metadata(file, "noise_floor");
    const char *stored = safetensors_metadata(file, "sha256");
    char hex[SHA256_DIGEST_STRING_LENGTH];
    if (!floor || !stored || !reference->trajectory)
        return false;
    hash_reference(reference, id, floor, hex);
    if (strcmp(hex, stored) != 0)
        return false;
    union option_value value;
    static const struct option real = {
        .name = "noise_floor", .type = OPTION_REAL, .fallback = "", .min = 0.0, .max = 1e300};
    if (option_parse(&real, floor, &value) != OK) {
        status_clear();
        return false;
    }
    reference->noise_floor = value.r;
    return true;
}

/* A cached file that cannot be trusted is as good as none: it is computed again. */
static bool load_cached(const struct point *point, const char *path, const char *id,
                        struct reference *out)
{
    if (access(path, R_OK) != 0)
        return false;
    struct safetensors *file = NULL;
    bool good = reference_file(point, path, out) == OK && safetensors_open(path, &file) == OK &&
                is_verified(file, id, out);
    safetensors_close(file);
    if (!good) {
        log_warn("%s: does not hold what it should; computing the reference again", path);
        status_clear();
        reference_free(out);
    }
    return good;
}

static enum status store_cached(const struct point *point, const char *folder, const char *path,
                                const char *id, const struct reference *reference)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return FAIL(ERR_IO, "%s: cannot create: %s", folder, strerror(errno));
    char floor[32], hex[SHA256_DIGEST_STRING_LENGTH];
    snprintf(floor, sizeof floor, "%.17g", reference->noise_floor);
    hash_reference(reference, id, floor, hex);
    const char *const metadata[] = {"noise_floor", floor, "sha256", hex, "case_id", id, NULL};
    return reference_dump(path, point, reference->x0, reference->trajectory, reference->steps,
                          metadata);
}

/* ---- computing ---- */

static enum status take_output(const struct measurement *m, struct reference *out)
{
    out->values = m->values;
    out->steps = (size_t)m->steps;
    out->x0 = malloc(m->values * sizeof *out->x0);
    out->trajectory = malloc(m->values * out->steps * sizeof *out->trajectory);
    if (!out->x0 || !out->trajectory)
        return FAIL(ERR_MEMORY, "no memory for a reference of %zu values", m->values);
    memcpy(out->x0, m->x0, m->values * sizeof *out->x0);
    memcpy(out->trajectory, m->trajectory, m->values * out->steps * sizeof *out->trajectory);
    return OK;
}

static enum status measure_serial(const struct point *serial, bool splits_inner,
                                  struct measurement *out)
{
    const struct measure_request request = {.want_output = true, .splits_inner = splits_inner};
    return measure_point(serial, &request, out);
}

static enum status compute(const struct point *point, const struct measurement *own,
                           struct reference *out)
{
    struct point serial;
    point_reference(point, &serial);
    serial.warmup_runs = serial.repeat = 0;
    struct measurement plain = {0}, split = {0};
    enum status status = OK;
    if (!own || point->strategy != serial.strategy)
        status = measure_serial(&serial, false, &plain);
    if (status == OK)
        status = take_output(plain.x0 ? &plain : own, out);
    if (status == OK)
        status = measure_serial(&serial, true, &split);
    if (status == OK)
        out->noise_floor = error_rel_l2(split.x0, out->x0, out->values);
    out->noise_floor_reason = "serial gives values that are not finite";
    measure_free(&plain);
    measure_free(&split);
    return status;
}

enum status reference_serial(const struct point *point, const struct measurement *own,
                             const char *cache, struct reference *out)
{
    *out = (struct reference){.source = "serial"};
    char id[RECORD_CASE_ID], path[4096];
    if (cache) {
        TRY(reference_id(point, id));
        snprintf(path, sizeof path, "%s/%s.safetensors", cache, id);
        if (load_cached(point, path, id, out)) {
            snprintf(out->source, sizeof out->source, "serial");
            return OK;
        }
        *out = (struct reference){.source = "serial"};
    }
    TRY(compute(point, own, out));
    if (cache && isfinite(out->noise_floor) && store_cached(point, cache, path, id, out) != OK) {
        log_warn("%s; the reference will be computed again when it is needed", status_first()->text);
        status_clear();
    }
    return OK;
}

/* ---- comparing ---- */

enum status reference_compare(const struct reference *reference, const struct point *point,
                              const struct measurement *m, struct error_report *out)
{
    const struct problem *problem = &point->problem;
    const size_t height = (size_t)problem->latent_height, width = (size_t)problem->latent_width;
    *out = (struct error_report){.noise_floor = reference->noise_floor,
                                 .noise_floor_reason = reference->noise_floor_reason,
                                 .reference = reference->source};
    if (reference->values != m->values)
        return FAIL(ERR_INTERNAL, "the reference has %zu values, the result %zu", reference->values,
                    m->values);
    error_measure(m->x0, reference->x0, m->values / (height * width), height, width, &out->metrics);
    if (!reference->trajectory)
        return OK;
    out->per_step = calloc((size_t)m->steps + 1, sizeof *out->per_step);
    if (!out->per_step)
        return FAIL(ERR_MEMORY, "no memory for the error of %d steps", m->steps);
    out->steps = (size_t)m->steps;
    for (size_t step = 0; step < out->steps; step++)
        out->per_step[step] = error_rel_l2(m->trajectory + step * m->values,
                                           reference->trajectory + step * m->values, m->values);
    return OK;
}

void error_report_free(struct error_report *report)
{
    free(report->per_step);
    *report = (struct error_report){0};
}
