/* Where a file has the tensors that its model needs, and whether they are what they should be. */
#include "kernels/model_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_scan.h"
#include "common/log.h"

/* The dtypes that are read, and the exponent bits that are all set in an infinity or a NaN. */
static const struct float_format {
    const char *dtype;
    size_t bytes;
    uint32_t exponent;
} float_formats[] = {
    {"F32", 4, 0x7F800000},
    {"F16", 2, 0x7C00},
    {"BF16", 2, 0x7F80},
};

/* The tensors of the file that the model uses, so that the others can be named. */
struct used {
    const struct safetensors_tensor **list;
    size_t count;
};

static const struct float_format *format_of(const struct safetensors_tensor *t)
{
    for (size_t i = 0; i < sizeof float_formats / sizeof *float_formats; i++)
        if (strcmp(t->dtype, float_formats[i].dtype) == 0)
            return &float_formats[i];
    return NULL;
}

/* "[64,2,2,2]" */
static void print_shape(char *out, size_t size, int dims, const uint64_t *shape)
{
    size_t n = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < dims && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%" PRIu64, i ? "," : "", shape[i]);
    if (n < size)
        snprintf(out + n, size - n, "]");
}

static enum status check_source(const struct model_tensor *t, const struct safetensors_tensor *s)
{
    bool same = s->dims == t->dims;
    for (int i = 0; same && i < t->dims; i++)
        same = s->shape[i] == t->shape[i];
    if (!same) {
        char has[192], needs[96];
        print_shape(has, sizeof has, s->dims, s->shape);
        print_shape(needs, sizeof needs, t->dims, t->shape);
        return FAIL(ERR_FORMAT, "%s: tensor \"%s\": shape %s where the model needs %s", s->file,
                    s->name, has, needs);
    }
    if (!format_of(s))
        return FAIL(ERR_FORMAT, "%s: tensor \"%s\": dtype %s where F32, F16 or BF16 is needed",
                    s->file, s->name, s->dtype);
    return OK;
}

static enum status find_source(struct used *used, const struct safetensors *file, const char *name,
                               const struct safetensors_tensor **out)
{
    *out = safetensors_find(file, name);
    if (!*out)
        return FAIL(ERR_FORMAT, "%s: tensor \"%s\": missing", safetensors_path(file), name);
    used->list[used->count++] = *out;
    return OK;
}

/* Diffusers builds these layers into every block, and every checkpoint repeats the same values. */
static enum status check_copies(struct used *used, const struct model_tensor *t, int blocks,
                                const struct safetensors *file)
{
    const struct safetensors_tensor *first = t->source[0], *copy;
    const char *prefix = model_tensors_block_prefix(LAYOUT_DIFFUSERS);
    const char *rest = strchr(first->name + strlen(prefix), '.');
    for (int block = 1; block < blocks; block++) {
        char name[MODEL_NAME_BYTES];
        snprintf(name, sizeof name, "%s%d%s", prefix, block, rest);
        TRY(find_source(used, file, name, &copy));
        TRY(check_source(t, copy));
        if (copy->bytes != first->bytes || memcmp(copy->data, first->data, copy->bytes) != 0)
            return FAIL(ERR_FORMAT,
                        "%s: tensor \"%s\": differs from block 0's, of which it should be a copy",
                        copy->file, name);
    }
    return OK;
}

static int compare_addresses(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const struct safetensors_tensor *const *)a;
    uintptr_t y = (uintptr_t) * (const struct safetensors_tensor *const *)b;
    return (x > y) - (x < y);
}

static void log_unused(struct used *used, const struct safetensors *file)
{
    enum { NAMED = 4 };
    char names[NAMED * 100] = "";
    size_t count = safetensors_count(file), extra = count - used->count;
    if (extra == 0)
        return;
    qsort(used->list, used->count, sizeof *used->list, compare_addresses);
    for (size_t i = 0, named = 0; i < count && named < NAMED; i++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);
        if (bsearch(&t, used->list, used->count, sizeof *used->list, compare_addresses))
            continue;
        size_t length = strlen(names);
        char quoted[JSON_QUOTED];
        snprintf(names + length, sizeof names - length, "%s%s", named++ ? ", " : "",
                 json_quote(quoted, t->name));
    }
    log_info("%s: %zu tensor%s not part of the model, ignored: %s%s", safetensors_path(file), extra,
             extra == 1 ? "" : "s", names, extra > NAMED ? " ..." : "");
}

static enum status bind_all(struct model_tensors *all, const struct model_shape *shape,
                            const struct safetensors *file, struct used *used)
{
    for (size_t i = 0; i < all->count; i++) {
        struct model_tensor *t = &all->list[i];
        for (int j = 0; j < t->sources; j++) {
            TRY(find_source(used, file, t->source_name[j], &t->source[j]));
            TRY(check_source(t, t->source[j]));
        }
        if (t->copied)
            TRY(check_copies(used, t, shape->blocks, file));
    }
    return OK;
}

enum status model_tensors_bind(struct model_tensors *all, const struct model_shape *shape,
                               const struct safetensors *file)
{
    /* names differ, so no more tensors can be found than the file has */
    struct used used = {.list = malloc(safetensors_count(file) * sizeof *used.list)};
    if (!used.list)
        return FAIL(ERR_MEMORY, "%s: no memory for its tensors", safetensors_path(file));
    enum status status = bind_all(all, shape, file, &used);
    if (status == OK)
        log_unused(&used, file);
    free(used.list);
    return status;
}

static uint64_t count_nonfinite(const struct safetensors_tensor *t)
{
    const struct float_format *format = format_of(t);
    const char *at = t->data;
    uint64_t count = 0;
    for (uint64_t i = 0; i < t->elements; i++, at += format->bytes) {
        uint32_t bits = 0;
        memcpy(&bits, at, format->bytes);
        count += (bits & format->exponent) == format->exponent;
    }
    return count;
}

void model_tensors_warn_nonfinite(const struct model_tensors *all, const struct safetensors *file)
{
    uint64_t count = 0;
    const char *first = NULL;
    for (size_t i = 0; i < all->count; i++)
        for (int j = 0; j < all->list[i].sources; j++) {
            uint64_t found = count_nonfinite(all->list[i].source[j]);
            safetensors_forget(all->list[i].source[j]);
            if (found > 0 && !first)
                first = all->list[i].source[j]->name;
            count += found;
        }
    if (count > 0)
        log_warn("%s: %" PRIu64
                 " weights are NaN or infinite, the first in tensor \"%s\": images will "
                 "be too; take an intact copy of the file",
                 safetensors_path(file), count, first);
}
