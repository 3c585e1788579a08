/* From options to a problem: loads the model, draws the noise, checks the combination. */
#include "bench/point.h"

#include "bench/files.h"
#include "bench/platform_file.h"
#include "common/rng.h"
#include "common/safetensors.h"
#include "kernels/device_plugin.h"
#include "strategies/trajectory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODE_ALL = RUN_COMM + 1 }; /* the last choice of --mode */

/* ---- names to modules ---- */

static enum status refuse(struct point *point, const char *format, ...) PRINTF_LIKE(2, 3);
static enum status refuse(struct point *point, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(point->refusal.text, sizeof point->refusal.text, format, args);
    va_end(args);
    return FAIL(ERR_UNSUPPORTED, "%s", point->refusal.text);
}

/* "a, b, c" of the names in a list; for errors. */
#define NAME_LIST(list, text)                                                                      \
    do {                                                                                           \
        (text)[0] = 0;                                                                             \
        for (size_t i_ = 0; (list)[i_]; i_++)                                                      \
            snprintf((text) + strlen(text), sizeof(text) - strlen(text), "%s%s", i_ ? ", " : "",   \
                     (list)[i_]->name);                                                            \
    } while (0)

static enum status find_strategy(const struct option_set *o, struct point *point)
{
    char names[512];
    const char *name = option_text(o, &point_opt_strategy);
    point->strategy = strategy_find(name);
    if (point->strategy)
        return OK;
    NAME_LIST(strategy_list(), names);
    return FAIL(ERR_USAGE, "--strategy %s: no such strategy; known: %s", name, names);
}

enum status point_find_device(const char *name, const struct device_ops **out)
{
    char names[256];
    if (device_plugin_brings(name))
        TRY(device_plugin_load());
    *out = name[0] ? device_find(name) : device_list()[0];
    if (*out)
        return OK;
    NAME_LIST(device_list(), names);
    return FAIL(ERR_USAGE, "--device %s: no such device; known: %s", name, names);
}

enum status point_find_transport(const char *name, const struct device_ops *device,
                                 const struct comm_ops **out)
{
    char names[256];
    const struct comm_ops *const *list = comm_transports();
    *out = NULL;
    for (; *list && !*out; list++)
        if (name[0] ? !strcmp((*list)->name, name) : (*list)->memory == device->memory)
            *out = *list;
    NAME_LIST(comm_transports(), names);
    if (!*out)
        return FAIL(ERR_USAGE, "--transport %s: no such transport for device %s; known: %s", name,
                    device->name, names);
    if ((*out)->memory != device->memory)
        return FAIL(ERR_USAGE, "--transport %s cannot reach the memory of --device %s", (*out)->name,
                    device->name);
    return OK;
}

static enum status find_device(const struct option_set *o, struct point *point)
{
    const char *name = option_text(o, &point_opt_device);
    if (!name[0] && (option_text(o, &point_opt_platform)[0] || point->platform.name[0]))
        name = "sim";
    return point_find_device(name, &point->device);
}

/* In virtual time every run of a point is the same: one is enough unless more are asked for. */
static enum status find_platform(const struct option_set *o, struct point *point)
{
    const char *name = option_text(o, &point_opt_platform);
    if (point->device->memory != MEMORY_VIRTUAL) {
        if (name[0])
            return FAIL(ERR_USAGE, "--platform %s is for --device sim; %s measures this machine", name,
                        point->device->name);
        return OK;
    }
    if (!name[0] && !point->platform.name[0])
        return FAIL(ERR_USAGE, "--device sim needs a --platform: see bench list platforms");
    if (!point->platform.name[0])
        TRY(platform_load(name, &point->platform));
    if (!option_setting(o, &point_opt_warmup_runs)->is_given)
        point->warmup_runs = 0;
    if (!option_setting(o, &point_opt_repeat)->is_given)
        point->repeat = 1;
    if (point->platform.gpu.peak_flops[option_choice(o, &point_opt_dtype)] <= 0)
        return refuse(point, "platform %s has no peak for %s; name another --dtype",
                      point->platform.name, option_text(o, &point_opt_dtype));
    return OK;
}

/* ---- the model and the latent ---- */

static enum status load_model(const struct option_set *o, struct point *point)
{
    int kind = option_choice(o, &point_opt_kind);
    struct model_hints hints = {.heads = (int)option_int(o, &point_opt_heads),
                                .patch = (int)option_int(o, &point_opt_patch),
                                .vae_factor = (int)option_int(o, &point_opt_vae_factor),
                                .classes = (int)option_int(o, &point_opt_classes),
                                .kind = kind == 0 ? NULL : point_opt_kind.choices[kind],
                                .known_sha256 = point->known_sha256};
    char path[FILES_PATH];
    TRY(model_open(files_locate(option_text(o, &point_opt_model), path), &hints,
                   (uint64_t)option_int(o, &point_opt_seed),
                   point->device->memory == MEMORY_VIRTUAL, &point->model));
    point->problem.model = point->model;
    point->problem.shape = model_shape(point->model);
    return OK;
}

static enum status one_side(int pixels, const char *side, const struct model_shape *shape, int *latent,
                            int *grid)
{
    int unit = shape->vae_factor * shape->patch;
    if (pixels % unit)
        return FAIL(ERR_USAGE,
                    "--resolution: %s %d is not a multiple of %d (vae_factor %d x patch %d); use %d",
                    side, pixels, unit, shape->vae_factor, shape->patch,
                    pixels < unit ? unit : pixels / unit * unit);
    *latent = pixels / shape->vae_factor;
    *grid = *latent / shape->patch;
    return OK;
}

/* x_T's shape decides the resolution where the user gives none. */
static enum status init_extent(const struct option_set *o, const struct safetensors_tensor *x,
                               const struct problem *p, int *height, int *width)
{
    const struct option_setting *given = option_setting(o, &point_opt_resolution);
    *height = given->value.extent.height;
    *width = given->value.extent.width;
    if (!x || given->is_given || x->dims < 2)
        return OK;
    uint64_t h = x->shape[x->dims - 2], w = x->shape[x->dims - 1];
    if (h > 1 << 16 || w > 1 << 16)
        return FAIL(ERR_FORMAT, "--init: x_T of %llu x %llu is too large", (unsigned long long)h,
                    (unsigned long long)w);
    *height = (int)h * p->shape->vae_factor;
    *width = (int)w * p->shape->vae_factor;
    return OK;
}

static enum status check_init_shape(const struct problem *p, const char *path,
                                    const struct safetensors_tensor *x)
{
    uint64_t want[4] = {(uint64_t)p->frames, (uint64_t)p->shape->channels,
                        (uint64_t)p->latent_height, (uint64_t)p->latent_width};
    const uint64_t *from = p->shape->kind == MODEL_VIDEO ? want : want + 1;
    int dims = p->shape->kind == MODEL_VIDEO ? 4 : 3;
    if (x->dims == dims && memcmp(x->shape, from, (size_t)dims * sizeof *from) == 0)
        return OK;
    return FAIL(ERR_FORMAT,
                "--init %s: x_T must be [%s%llu, %llu, %llu] for this model, --frames and "
                "--resolution",
                path, dims == 4 ? "frames, " : "", (unsigned long long)want[1],
                (unsigned long long)want[2], (unsigned long long)want[3]);
}

static size_t latent_values(const struct problem *p)
{
    return (size_t)p->frames * p->tokens * p->token_values;
}

/* The start noise as an image, from the file or drawn, then in the order of tokens. */
static enum status make_noise(struct point *point, const struct safetensors *file,
                              const struct safetensors_tensor *x)
{
    const struct problem *p = &point->problem;
    size_t n = latent_values(p);
    float *image = malloc(n * sizeof *image);
    point->noise = malloc(n * sizeof *point->noise);
    enum status status = image && point->noise ? OK : FAIL(ERR_MEMORY, "no memory for the noise");
    if (status == OK && x)
        status = safetensors_read_floats(file, x, 0, n, image);
    else if (status == OK)
        rng_normals(p->seed, "x_T", 0, n, image);
    if (status == OK)
        trajectory_patchify(p, image, point->noise);
    point->problem.noise = point->noise;
    free(image);
    return status;
}

static enum status set_extent(const struct option_set *o, struct point *point,
                              const struct safetensors_tensor *x)
{
    struct problem *p = &point->problem;
    int height, width;
    TRY(init_extent(o, x, p, &height, &width));
    TRY(one_side(height, "height", p->shape, &p->latent_height, &p->grid_height));
    TRY(one_side(width, "width", p->shape, &p->latent_width, &p->grid_width));
    p->tokens = (size_t)p->grid_height * (size_t)p->grid_width;
    p->token_values = (size_t)(p->shape->channels * p->shape->patch * p->shape->patch);
    return OK;
}

static enum status set_latent(const struct option_set *o, struct point *point, const char *path,
                              const struct safetensors *file)
{
    const struct safetensors_tensor *x = file ? safetensors_find(file, "x_T") : NULL;
    if (file && !x)
        return FAIL(ERR_FORMAT, "--init %s: no tensor named x_T", path);
    TRY(set_extent(o, point, x));
    if (x)
        TRY(check_init_shape(&point->problem, path, x));
    return point->device->memory == MEMORY_VIRTUAL ? OK : make_noise(point, file, x);
}

static enum status load_latent(const struct option_set *o, struct point *point)
{
    const char *path = option_text(o, &point_opt_init);
    struct safetensors *file = NULL;
    if (path[0]) {
        TRY(safetensors_open(path, &file));
        enum status hashed = safetensors_sha256(path, point->init_sha256);
        if (hashed != OK) {
            safetensors_close(file);
            return hashed;
        }
    }
    enum status status = set_latent(o, point, path, file);
    safetensors_close(file);
    return status;
}

/* ---- the problem ---- */

static enum status set_problem(const struct option_set *o, struct point *point)
{
    struct problem *p = &point->problem;
    p->options = o;
    p->frames = (int)option_int(o, &point_opt_frames);
    p->steps = (int)option_int(o, &point_opt_steps);
    p->class_id = (int)option_int(o, &point_opt_class);
    p->cfg_scale = option_real(o, &point_opt_cfg_scale);
    p->cfg_degree = (int)option_int(o, &point_opt_cfg_degree);
    p->seed = (uint64_t)option_int(o, &point_opt_seed);
    p->dtype = (enum dtype)option_choice(o, &point_opt_dtype);
    p->batch = p->cfg_scale != 1 && p->cfg_degree == 1 ? 2 : 1;
    if (p->class_id >= p->shape->classes)
        return FAIL(ERR_USAGE, "--class %d: the model has classes 0 to %d", p->class_id,
                    p->shape->classes - 1);
    if (p->shape->kind != MODEL_VIDEO && p->frames != 1)
        return FAIL(ERR_USAGE, "--frames %d: the model makes single images", p->frames);
    if (p->cfg_degree == 2 && p->cfg_scale == 1)
        return FAIL(ERR_USAGE, "--cfg-degree 2 needs guidance: give a --cfg-scale other than 1");
    return OK;
}

static void set_measuring(const struct option_set *o, struct point *point)
{
    point->nranks = (int)option_int(o, &point_opt_gpus);
    point->threads = (int)option_int(o, &point_opt_threads);
    point->warmup_runs = (int)option_int(o, &point_opt_warmup_runs);
    point->repeat = (int)option_int(o, &point_opt_repeat);
    point->timeout_s = option_real(o, &point_opt_timeout);
    int mode = option_choice(o, &point_opt_mode);
    for (int m = RUN_FULL; m <= RUN_COMM; m++)
        point->runs_mode[m] = mode == m || mode == MODE_ALL;
}

static enum status resolve(const struct option_set *options, struct point *point)
{
    set_measuring(options, point);
    TRY(find_strategy(options, point));
    TRY(find_device(options, point));
    TRY(point_find_transport(option_text(options, &point_opt_transport), point->device, &point->transport));
    TRY(find_platform(options, point));
    TRY(load_model(options, point));
    TRY(set_problem(options, point));
    TRY(load_latent(options, point));
    if (point->device->has_dtype && !point->device->has_dtype(point->problem.dtype))
        return refuse(point, "device %s has no %s", point->device->name,
                      dtype_name(point->problem.dtype));
    return strategy_check(point->strategy, &point->problem, point->nranks, &point->layout,
                          &point->refusal);
}

enum status point_resolve(const struct option_set *options, struct point *point)
{
    *point = (struct point){.options = options};
    return resolve(options, point);
}

enum status point_resolve_on(const struct option_set *options, const struct platform *platform,
                             const char *model_sha256, struct point *point)
{
    *point = (struct point){.options = options, .platform = *platform, .known_sha256 = model_sha256};
    return resolve(options, point);
}

enum status point_resolve_known(const struct option_set *options, const char *model_sha256,
                                struct point *point)
{
    *point = (struct point){.options = options, .known_sha256 = model_sha256};
    return resolve(options, point);
}

void point_close(struct point *point)
{
    free(point->noise);
    model_close(point->model);
    point->noise = NULL;
    point->model = NULL;
}

void point_reference(const struct point *of, struct point *point)
{
    *point = *of;
    point->strategy = &strategy_serial;
    point->nranks = 1;
    point->problem.cfg_degree = 1;
    point->problem.batch = point->problem.cfg_scale != 1 ? 2 : 1;
    point->layout = (struct layout){.nranks = 1, .degree = {1, 1, 1, 1, 1}};
    point->runs_mode[RUN_FULL] = true;
    point->runs_mode[RUN_COMPUTE] = point->runs_mode[RUN_COMM] = false;
    point->noise = NULL; /* borrowed: problem.noise */
    point->model = NULL; /* borrowed: problem.model */
}
