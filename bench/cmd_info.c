/* bench info: what is in a weights file or a model. */
#include "bench/cli.h"
#include "bench/files.h"
#include "bench/point.h"
#include "common/safetensors.h"
#include "kernels/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct option *const info_options[] = {
    &point_opt_heads, &point_opt_patch, &point_opt_vae_factor, &point_opt_classes, &point_opt_kind,
    NULL};

static void print_tensor(const struct safetensors_tensor *tensor)
{
    char shape[200] = "";
    size_t used = 0;
    for (int d = 0; d < tensor->dims && used < sizeof shape; d++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRIu64, d ? ", " : "",
                                 tensor->shape[d]);
    printf("  %-52s %-5s [%s]\n", tensor->name, tensor->dtype, shape);
}

/* NaN and infinite values; dtypes that are no floats have none. */
static enum status count_non_finite(const struct safetensors *file,
                                    const struct safetensors_tensor *tensor, uint64_t *count)
{
    enum { BLOCK = 4096 };
    float values[BLOCK];
    if (strcmp(tensor->dtype, "F32") && strcmp(tensor->dtype, "F16") && strcmp(tensor->dtype, "BF16"))
        return OK;
    for (uint64_t first = 0; first < tensor->elements; first += BLOCK) {
        uint64_t left = tensor->elements - first;
        size_t n = left < BLOCK ? (size_t)left : BLOCK;
        TRY(safetensors_read_floats(file, tensor, first, n, values));
        for (size_t i = 0; i < n; i++)
            *count += !isfinite(values[i]);
    }
    return OK;
}

static enum status print_tensors(const struct safetensors *file)
{
    uint64_t elements = 0, bytes = 0, bad = 0;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_tensor *tensor = safetensors_at(file, i);
        print_tensor(tensor);
        elements += tensor->elements;
        bytes += tensor->bytes;
        TRY(count_non_finite(file, tensor, &bad));
    }
    printf("  %zu tensors, %" PRIu64 " values, %" PRIu64 " bytes, %" PRIu64 " values not finite\n",
           safetensors_count(file), elements, bytes, bad);
    static const char *const keys[] = {"heads", "patch", "vae_factor", "classes", "kind", "format"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (safetensors_metadata(file, keys[i]))
            printf("  metadata %s: %s\n", keys[i], safetensors_metadata(file, keys[i]));
    return OK;
}

static void print_model(const struct model *model)
{
    const struct model_shape *s = model_shape(model);
    printf("model %s\n  kind %s, tensor names and numerics of the %s layout\n  sha256 %s\n"
           "  blocks %d, hidden %d, heads %d, head size %d, MLP %d\n"
           "  patch %d, channels %d in, %d out, classes %d, pixels per latent pixel %d\n",
           model_name(model), s->kind == MODEL_VIDEO ? "video" : "dit",
           s->layout == LAYOUT_DIFFUSERS ? "diffusers" : "original", model_sha256(model), s->blocks,
           s->hidden, s->heads, s->head_dim, s->mlp_hidden, s->patch, s->channels, s->out_channels,
           s->classes, s->vae_factor);
}

static enum status show_model(const struct cli *cli, const char *name, bool is_weights)
{
    struct option_set options = {0};
    enum status status = cli_options(cli, &options);
    struct model *model = NULL;
    if (status == OK) {
        int kind = option_choice(&options, &point_opt_kind);
        const struct model_hints hints = {
            .heads = (int)option_int(&options, &point_opt_heads),
            .patch = (int)option_int(&options, &point_opt_patch),
            .vae_factor = (int)option_int(&options, &point_opt_vae_factor),
            .classes = (int)option_int(&options, &point_opt_classes),
            .kind = kind > 0 ? point_opt_kind.choices[kind] : NULL};
        status = model_open(name, &hints, 0, !is_weights, &model);
    }
    if (status == OK)
        print_model(model);
    model_close(model);
    option_set_free(&options);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static enum status run(const struct cli *cli)
{
    char path[FILES_PATH];
    const char *name = files_locate(cli->operands[0], path);
    struct stat info;
    bool exists = stat(name, &info) == 0;
    bool is_file = exists && !S_ISDIR(info.st_mode);
    if (is_file || ends_with(name, ".safetensors") || ends_with(name, ".json")) {
        struct safetensors *file = NULL;
        TRY(safetensors_open(name, &file));
        printf("file %s\n", safetensors_path(file));
        enum status status = print_tensors(file);
        safetensors_close(file);
        TRY(status);
    }
    enum status status = show_model(cli, name, exists);
    /* Any safetensors file may be looked at; most hold no model. */
    if (is_file && status == ERR_FORMAT) {
        printf("no model: %s\n", status_first()->text);
        status_clear();
        return OK;
    }
    return status;
}

const struct command command_info = {
    .name = "info",
    .summary = "what is in a weights file, a model folder or a preset",
    .synopsis = "FILE.safetensors|DIR|PRESET [OPTIONS]",
    .description = "Lists tensors with dtype and shape, metadata, values that are not finite, and the "
                   "model that ditto makes of it. The options say what the file does not.",
    .examples = "  bench info models/dit-fashion.safetensors\n  bench info dit-xl-2\n",
    .operands_min = 1,
    .operands_max = 1,
    .options = info_options,
    .run = run,
};
