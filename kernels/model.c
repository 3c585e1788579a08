/* What a model is and where its weights come from: opening, and reading slices. */
#include "kernels/model.h"

#include <errno.h>
#include <inttypes.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/rng.h"
#include "common/safetensors.h"
#include "kernels/model_presets.h"
#include "kernels/model_shape.h"
#include "kernels/model_tensors.h"

struct model {
    char *name;
    struct model_shape shape;
    struct model_tensors tensors;
    struct safetensors *file; /* NULL: a preset */
    uint64_t seed;            /* of a preset */
    bool shapes_only;
    char sha256[65];
};

/* folder/name, or name beside the file `path`. NULL: out of memory. */
static char *join(const char *path, bool is_folder, const char *name)
{
    const char *slash = is_folder ? path + strlen(path) : strrchr(path, '/');
    int length = slash ? (int)(slash - path) : 0;
    char *joined;
    return asprintf(&joined, "%.*s%s%s", length, path, slash ? "/" : "", name) < 0 ? NULL : joined;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* The weights in a diffusers folder: one file, or an index of several. */
static enum status find_weights(const char *folder, char **out)
{
    static const char *const files[] = {
        "diffusion_pytorch_model.safetensors",
        "diffusion_pytorch_model.safetensors.index.json",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = join(folder, true, files[i]);
        if (!path)
            return FAIL(ERR_MEMORY, "%s: no memory to open it", folder);
        if (exists(path)) {
            *out = path;
            return OK;
        }
        free(path);
    }
    return FAIL(ERR_IO, "%s: a folder without a model: neither %s nor %s is in it", folder,
                files[0], files[1]);
}

static enum status fail_to_find(const char *name, int why)
{
    char presets[256] = "";
    for (const char *const *preset = model_presets(); *preset; preset++) {
        size_t length = strlen(presets);
        snprintf(presets + length, sizeof presets - length, " %s", *preset);
    }
    return FAIL(ERR_IO, "%s: neither a file nor a folder (%s) nor a preset (there are:%s)", name,
                strerror(why), presets);
}

static enum status find_files(const char *name, char **weights, char **config)
{
    struct stat info;
    if (stat(name, &info) != 0)
        return fail_to_find(name, errno);
    bool is_folder = S_ISDIR(info.st_mode);
    if (is_folder)
        TRY(find_weights(name, weights));
    else if (!(*weights = strdup(name)))
        return FAIL(ERR_MEMORY, "%s: no memory to open it", name);
    if (!(*config = join(name, is_folder, "config.json")))
        return FAIL(ERR_MEMORY, "%s: no memory to open it", name);
    if (!exists(*config)) {
        free(*config);
        *config = NULL;
    }
    return OK;
}

static enum status open_weights(struct model *m, const char *weights, const char *config,
                                const struct model_hints *hints)
{
    TRY(safetensors_open(weights, &m->file));
    TRY(model_shape_read(m->file, config, hints, &m->shape));
    TRY(model_tensors_list(&m->shape, &m->tensors));
    TRY(model_tensors_bind(&m->tensors, &m->shape, m->file));
    if (hints->known_sha256) {
        snprintf(m->sha256, sizeof m->sha256, "%s", hints->known_sha256);
        return OK;
    }
    if (!m->shapes_only)
        model_tensors_warn_nonfinite(&m->tensors, m->file);
    return safetensors_sha256(weights, m->sha256);
}

static enum status open_file(struct model *m, const struct model_hints *hints)
{
    char *weights = NULL, *config = NULL;
    enum status status = find_files(m->name, &weights, &config);
    if (status == OK)
        status = open_weights(m, weights, config, hints);
    free(weights);
    free(config);
    return status;
}

static enum status open_preset(struct model *m, const struct model_hints *hints)
{
    char text[128];
    SHA2_CTX hash;
    TRY(model_shape_preset(m->name, hints, &m->shape));
    TRY(model_tensors_list(&m->shape, &m->tensors));
    int length = snprintf(text, sizeof text, "preset %s seed %" PRIu64, m->name, m->seed);
    SHA256Init(&hash);
    SHA256Update(&hash, (const uint8_t *)text, (size_t)length);
    SHA256End(&hash, m->sha256);
    return OK;
}

enum status model_open(const char *name, const struct model_hints *hints, uint64_t seed,
                       bool shapes_only, struct model **out)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m || !(m->name = strdup(name))) {
        free(m);
        return FAIL(ERR_MEMORY, "%s: no memory to open it", name);
    }
    m->seed = seed;
    m->shapes_only = shapes_only;
    enum status status =
        model_presets_find(name, &m->shape) ? open_preset(m, hints) : open_file(m, hints);
    if (status == OK)
        *out = m;
    else
        model_close(m);
    return status;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    model_tensors_free(&m->tensors);
    safetensors_close(m->file);
    free(m->name);
    free(m);
}

const struct model_shape *model_shape(const struct model *m)
{
    return &m->shape;
}

const char *model_name(const struct model *m)
{
    return m->name;
}

const char *model_sha256(const struct model *m)
{
    return m->sha256;
}

bool model_is_preset(const struct model *m)
{
    return !m->file;
}

bool model_shapes_only(const struct model *m)
{
    return m->shapes_only;
}

bool model_has_tensor(const struct model *m, const char *tensor)
{
    return model_tensors_find(&m->tensors, tensor) != NULL;
}

static void draw(const struct model *m, const struct model_tensor *t, uint64_t first, size_t n,
                 float *out)
{
    rng_normals(m->seed, t->name, first, n, out);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(out[i] * t->std);
}

/* n elements, in the order of the whole tensor; the rows of several sources follow each other. */
static enum status read_floats(const struct model *m, const struct model_tensor *t, uint64_t first,
                               size_t n, float *out)
{
    if (!m->file) {
        draw(m, t, first, n, out);
        return OK;
    }
    uint64_t source_size = t->source[0]->elements;
    while (n > 0) {
        uint64_t begin = first % source_size, left = source_size - begin;
        size_t part = left < n ? (size_t)left : n;
        TRY(safetensors_read_floats(m->file, t->source[first / source_size], begin, part, out));
        first += part;
        out += part;
        n -= part;
    }
    return OK;
}

static enum status read_run(const struct model *m, const struct model_tensor *t, uint64_t first,
                            size_t n, enum dtype dtype, char *out)
{
    enum { CHUNK = 1024 };
    float chunk[CHUNK];
    if (dtype == DTYPE_FP32)
        return read_floats(m, t, first, n, (float *)out);
    for (size_t done = 0; done < n; done += CHUNK) {
        size_t part = n - done < CHUNK ? n - done : CHUNK;
        TRY(read_floats(m, t, first + done, part, chunk));
        dtype_convert(dtype, out + done * dtype_bytes(dtype), DTYPE_FP32, chunk, part);
    }
    return OK;
}

enum status model_read(const struct model *m, const char *tensor, size_t row0, size_t rows,
                       size_t col0, size_t cols, enum dtype dtype, void *out)
{
    const struct model_tensor *t = model_tensors_find(&m->tensors, tensor);
    if (m->shapes_only)
        return FAIL(ERR_INTERNAL, "%s: tensor \"%s\" is read, but only shapes are known", m->name,
                    tensor);
    if (!t)
        return FAIL(ERR_INTERNAL, "%s: tensor \"%s\": the model has none", m->name, tensor);
    if (row0 > t->rows || rows > t->rows - row0 || col0 > t->cols || cols > t->cols - col0)
        return FAIL(ERR_INTERNAL,
                    "%s: tensor \"%s\": rows %zu + %zu, columns %zu + %zu are outside [%zu,%zu]",
                    m->name, tensor, row0, rows, col0, cols, t->rows, t->cols);
    bool is_whole = cols == t->cols; /* whole rows are one run */
    size_t runs = is_whole ? 1 : rows, length = is_whole ? rows * cols : cols;
    for (size_t i = 0; i < runs; i++)
        TRY(read_run(m, t, (uint64_t)(row0 + i) * t->cols + col0, length, dtype,
                     (char *)out + i * length * dtype_bytes(dtype)));
    for (int i = 0; m->file && i < t->sources; i++)
        safetensors_forget(t->source[i]);
    return OK;
}
