/* The header of one safetensors file. Names are compared after decoding and sorted, never searched
 * one by one: a header of 100 MB holds millions of tensors. */
#include "common/safetensors_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_scan.h"

static const uint64_t max_header_bytes = 100000000;

/* Every dtype of the format, in bits: F4 and F6 pack several elements into a byte. */
static const struct dtype_size {
    const char *name;
    unsigned bits;
} dtype_sizes[] = {
    {"F32", 32},        {"F16", 16},        {"BF16", 16},   {"F64", 64},    {"I64", 64},
    {"I32", 32},        {"I16", 16},        {"I8", 8},      {"U64", 64},    {"U32", 32},
    {"U16", 16},        {"U8", 8},          {"BOOL", 8},    {"C64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8},     {"F8_E4M3FNUZ", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F8_E5M2FNUZ", 8}, {"F4", 4},
};

struct reader {
    struct json_scan scan;
    struct safetensors_header *header;
    size_t tensors_room, metadata_room;
    const char *data;
    uint64_t data_bytes;
    bool has_metadata;
};

/* Room for one more element in a growing array. */
static void *grow(void *array, size_t count, size_t *room, size_t element)
{
    if (count < *room)
        return array;
    size_t wanted = *room ? 2 * *room : 64;
    void *larger = realloc(array, wanted * element);
    if (larger)
        *room = wanted;
    return larger;
}

static enum status find_dtype(struct json_scan *s, const char *name, const struct dtype_size **out)
{
    for (size_t i = 0; i < sizeof dtype_sizes / sizeof *dtype_sizes; i++)
        if (strcmp(dtype_sizes[i].name, name) == 0) {
            *out = &dtype_sizes[i];
            return OK;
        }
    return JSON_FAIL(s, "an unknown dtype");
}

static enum status read_shape(struct json_scan *s, struct safetensors_tensor *t)
{
    struct json_list list;
    bool more;
    t->dims = 0;
    t->elements = 1;
    TRY(json_enter(s, '[', &list));
    for (;;) {
        TRY(json_next(s, &list, &more));
        if (!more)
            return OK;
        if (t->dims == SAFETENSORS_MAX_DIMS)
            return JSON_FAIL(s, "a shape of more than 8 dimensions");
        uint64_t *extent = &t->shape[t->dims++];
        TRY(json_unsigned(s, extent));
        if (__builtin_mul_overflow(t->elements, *extent, &t->elements))
            return JSON_FAIL(s, "a shape whose number of elements overflows");
    }
}

static enum status read_offsets(struct json_scan *s, uint64_t range[2])
{
    struct json_list list;
    bool more;
    TRY(json_enter(s, '[', &list));
    for (int i = 0; i < 3; i++) {
        TRY(json_next(s, &list, &more));
        if (more != (i < 2))
            return JSON_FAIL(s, "data_offsets takes two numbers");
        if (more)
            TRY(json_unsigned(s, &range[i]));
    }
    return OK;
}

static enum status check_range(struct reader *r, struct safetensors_tensor *t, unsigned bits,
                               const uint64_t range[2])
{
    struct json_scan *s = &r->scan;
    uint64_t all_bits;
    if (range[0] > range[1])
        return JSON_FAIL(s, "data_offsets begin after their end");
    if (range[1] > r->data_bytes)
        return JSON_FAIL(s, "data_offsets reach past the end of the file");
    if (__builtin_mul_overflow(t->elements, (uint64_t)bits, &all_bits))
        return JSON_FAIL(s, "a shape whose number of bytes overflows");
    t->bytes = range[1] - range[0];
    if (all_bits % 8 != 0 || all_bits / 8 != t->bytes)
        return FAIL(ERR_FORMAT,
                    "%s: %sdata_offsets hold %" PRIu64
                    " bytes but shape times dtype size is %" PRIu64,
                    s->path, s->subject, t->bytes, all_bits / 8);
    t->data = r->data + range[0];
    return OK;
}

static enum status read_tensor(struct reader *r, struct safetensors_tensor *t)
{
    enum { DTYPE, SHAPE, OFFSETS, FIELDS };
    static const char *const fields[FIELDS] = {"dtype", "shape", "data_offsets"};
    struct json_scan *s = &r->scan;
    struct json_list object;
    const char *key, *dtype;
    const struct dtype_size *size = NULL;
    uint64_t range[2] = {0};
    bool seen[FIELDS] = {false}, more;

    TRY(json_enter(s, '{', &object));
    for (;;) {
        TRY(json_next(s, &object, &more));
        if (!more)
            break;
        TRY(json_key(s, &key));
        int field = 0;
        while (field < FIELDS && strcmp(key, fields[field]) != 0)
            field++;
        if (field == FIELDS)
            return JSON_FAIL(s, "a field other than dtype, shape and data_offsets");
        if (seen[field])
            return JSON_FAIL(s, "a duplicate key");
        seen[field] = true;
        if (field == DTYPE) {
            TRY(json_string(s, &dtype));
            TRY(find_dtype(s, dtype, &size));
        } else if (field == SHAPE) {
            TRY(read_shape(s, t));
        } else {
            TRY(read_offsets(s, range));
        }
    }
    for (int field = 0; field < FIELDS; field++)
        if (!seen[field])
            return FAIL(ERR_FORMAT, "%s: %s%s is missing", s->path, s->subject, fields[field]);
    t->dtype = size->name;
    return check_range(r, t, size->bits, range);
}

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_pair *)a)->key,
                  ((const struct safetensors_pair *)b)->key);
}

static enum status read_metadata(struct reader *r)
{
    struct json_scan *s = &r->scan;
    struct safetensors_header *h = r->header;
    struct json_list object;
    bool more;
    if (r->has_metadata)
        return JSON_FAIL(s, "a duplicate key");
    r->has_metadata = true;
    TRY(json_enter(s, '{', &object));
    for (;;) {
        TRY(json_next(s, &object, &more));
        if (!more)
            break;
        struct safetensors_pair *larger =
            grow(h->metadata, h->metadata_count, &r->metadata_room, sizeof *larger);
        if (!larger)
            return FAIL(ERR_MEMORY, "%s: no memory for its metadata", s->path);
        h->metadata = larger;
        TRY(json_key(s, &larger[h->metadata_count].key));
        TRY(json_string(s, &larger[h->metadata_count].value));
        h->metadata_count++;
    }
    if (h->metadata_count > 1)
        qsort(h->metadata, h->metadata_count, sizeof *h->metadata, compare_pairs);
    for (size_t i = 1; i < h->metadata_count; i++)
        if (compare_pairs(&h->metadata[i - 1], &h->metadata[i]) == 0) {
            char quoted[JSON_QUOTED];
            return FAIL(ERR_FORMAT, "%s: %sa duplicate key, %s", s->path, s->subject,
                        json_quote(quoted, h->metadata[i].key));
        }
    return OK;
}

static enum status read_entry(struct reader *r, const char *name)
{
    char quoted[JSON_QUOTED], subject[JSON_QUOTED + 16];
    struct safetensors_header *h = r->header;
    enum status status;
    if (strcmp(name, "__metadata__") == 0) {
        r->scan.subject = "__metadata__: ";
        status = read_metadata(r);
    } else {
        struct safetensors_tensor *larger =
            grow(h->tensors, h->count, &r->tensors_room, sizeof *larger);
        if (!larger)
            return FAIL(ERR_MEMORY, "%s: no memory for its tensors", r->scan.path);
        h->tensors = larger;
        larger[h->count] = (struct safetensors_tensor){.name = name, .file = r->scan.path};
        snprintf(subject, sizeof subject, "tensor %s: ", json_quote(quoted, name));
        r->scan.subject = subject;
        status = read_tensor(r, &larger[h->count++]);
    }
    r->scan.subject = "";
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct safetensors_tensor *const *)a)->name,
                  (*(const struct safetensors_tensor *const *)b)->name);
}

static int compare_ranges(const void *a, const void *b)
{
    const struct safetensors_tensor *x = *(const struct safetensors_tensor *const *)a;
    const struct safetensors_tensor *y = *(const struct safetensors_tensor *const *)b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* an empty one comes first */
}

/* The ranges, put in order, follow each other from the start of the data to its end. */
static enum status check_ranges(const struct reader *r, const struct safetensors_tensor **sorted)
{
    const struct safetensors_header *h = r->header;
    const char *path = r->scan.path;
    uint64_t end = 0;
    if (h->count > 1)
        qsort(sorted, h->count, sizeof *sorted, compare_ranges);
    for (size_t i = 0; i < h->count; i++) {
        char quoted[JSON_QUOTED];
        uint64_t begin = (uint64_t)((const char *)sorted[i]->data - r->data);
        json_quote(quoted, sorted[i]->name);
        if (begin < end)
            return FAIL(ERR_FORMAT, "%s: tensor %s: data_offsets overlap another tensor's", path,
                        quoted);
        if (begin > end)
            return FAIL(ERR_FORMAT, "%s: tensor %s: data_offsets %s", path, quoted,
                        i == 0 ? "do not start at 0: the first of the data belongs to no tensor"
                               : "leave a gap before them");
        end = begin + sorted[i]->bytes;
    }
    if (end != r->data_bytes)
        return FAIL(ERR_FORMAT, "%s: data_offsets end at %" PRIu64 ", the data at %" PRIu64, path,
                    end, r->data_bytes);
    return OK;
}

static enum status check_whole(const struct reader *r)
{
    const struct safetensors_header *h = r->header;
    char quoted[JSON_QUOTED];
    const struct safetensors_tensor **sorted = malloc((h->count ? h->count : 1) * sizeof *sorted);
    if (!sorted)
        return FAIL(ERR_MEMORY, "%s: no memory for its tensors", r->scan.path);
    for (size_t i = 0; i < h->count; i++)
        sorted[i] = &h->tensors[i];
    const struct safetensors_tensor *second = safetensors_sort_names(sorted, h->count);
    enum status status = second ? FAIL(ERR_FORMAT, "%s: tensor %s: a duplicate key", r->scan.path,
                                       json_quote(quoted, second->name))
                                : check_ranges(r, sorted);
    free(sorted);
    return status;
}

static enum status read_header(struct reader *r)
{
    struct json_scan *s = &r->scan;
    struct json_list object;
    bool more;
    TRY(json_enter(s, '{', &object));
    for (;;) {
        const char *name;
        TRY(json_next(s, &object, &more));
        if (!more)
            break;
        TRY(json_key(s, &name));
        TRY(read_entry(r, name));
    }
    TRY(json_end(s));
    return check_whole(r);
}

/* The length in the first 8 bytes, after which the JSON starts. */
static enum status check_length(const char *path, const unsigned char *file, uint64_t size,
                                uint64_t *out)
{
    const char *foreign = safetensors_foreign(file, size);
    uint64_t length = 0;
    for (unsigned i = 0; i < 8 && i < size; i++)
        length |= (uint64_t)file[i] << (8 * i);
    bool fits = size >= 8 && length <= max_header_bytes && length <= size - 8;
    if (foreign && !(fits && length > 0 && file[8] == '{'))
        return FAIL(ERR_FORMAT, "%s: %s", path, foreign);
    if (size < 8)
        return FAIL(ERR_FORMAT, "%s: shorter than 8 bytes, the length of a header", path);
    if (length > max_header_bytes)
        return FAIL(ERR_FORMAT,
                    "%s: a header of %" PRIu64 " bytes, above the limit of %" PRIu64
                    ": not a safetensors file, or a damaged one",
                    path, length, max_header_bytes);
    if (!fits)
        return FAIL(ERR_FORMAT, "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64, path,
                    length, size);
    *out = length;
    return OK;
}

const struct safetensors_tensor *safetensors_sort_names(const struct safetensors_tensor **tensors,
                                                        size_t count)
{
    if (count > 1)
        qsort(tensors, count, sizeof *tensors, compare_names);
    for (size_t i = 1; i < count; i++)
        if (strcmp(tensors[i - 1]->name, tensors[i]->name) == 0)
            return tensors[i];
    return NULL;
}

enum status safetensors_header_read(const char *path, const void *file, uint64_t size,
                                    struct safetensors_header *out)
{
    uint64_t length = 0;
    TRY(check_length(path, file, size, &length));
    const char *json = (const char *)file + 8;
    struct safetensors_header header = {.text = malloc(length + 1)};
    if (!header.text)
        return FAIL(ERR_MEMORY, "%s: no memory for a header of %" PRIu64 " bytes", path, length);
    struct reader r = {
        .scan = {.path = path,
                 .subject = "",
                 .offset = 8,
                 .begin = json,
                 .at = json,
                 .end = json + length,
                 .text = header.text},
        .header = &header,
        .data = json + length,
        .data_bytes = size - 8 - length,
    };
    enum status status = length > 0 && *json == '{'
                             ? read_header(&r)
                             : JSON_FAIL(&r.scan, "bad JSON: the header does not start with {");
    if (status == OK)
        *out = header;
    else
        safetensors_header_free(&header);
    return status;
}

void safetensors_header_free(struct safetensors_header *h)
{
    free(h->tensors);
    free(h->metadata);
    free(h->text);
    *h = (struct safetensors_header){0};
}
