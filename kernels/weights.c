/* Slices of weights in device memory. On host devices the ranks of a process that hold the same slice
 * share one copy: a table of slices, each loaded once by the first rank that asks and freed with the last. */
#include "kernels/weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct request {
    const struct model *model;
    const char *tensor;
    const struct weights_piece *pieces;
    int count;
    size_t col0, cols, rows;
    enum dtype dtype;
};

enum slice_state { SLICE_LOADING, SLICE_READY, SLICE_FAILED };

struct slice {
    struct slice *next;
    const struct model *model;
    char *tensor;
    struct weights_piece pieces[WEIGHTS_MAX_PIECES];
    int count;
    size_t col0, cols;
    enum dtype dtype;
    int holders;
    enum slice_state state;
    enum status failure;
    void *data;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t table_changed = PTHREAD_COND_INITIALIZER;
static struct slice *table;

static enum status read_pieces(const struct request *r, void *out)
{
    size_t row_bytes = r->cols * dtype_bytes(r->dtype);
    char *at = out;
    for (int i = 0; i < r->count; i++) {
        TRY(model_read(r->model, r->tensor, r->pieces[i].row0, r->pieces[i].rows, r->col0, r->cols,
                       r->dtype, at));
        at += r->pieces[i].rows * row_bytes;
    }
    return OK;
}

/* ---- shared slices ---- */

static bool slice_matches(const struct slice *s, const struct request *r)
{
    return s->model == r->model && s->count == r->count && s->col0 == r->col0 && s->cols == r->cols &&
           s->dtype == r->dtype && strcmp(s->tensor, r->tensor) == 0 &&
           memcmp(s->pieces, r->pieces, (size_t)r->count * sizeof *r->pieces) == 0;
}

static void slice_free(struct slice *s)
{
    free(s->data);
    free(s->tensor);
    free(s);
}

/* Called with the lock held. */
static void slice_drop(struct slice *s)
{
    if (--s->holders > 0)
        return;
    struct slice **at = &table;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    slice_free(s);
}

static void slice_release(void *context)
{
    pthread_mutex_lock(&table_lock);
    slice_drop(context);
    pthread_mutex_unlock(&table_lock);
}

static struct slice *slice_new(const struct request *r, size_t bytes)
{
    struct slice *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->tensor = strdup(r->tensor);
    if (!s->tensor || posix_memalign(&s->data, 64, bytes ? bytes : 64)) {
        s->data = NULL;
        slice_free(s);
        return NULL;
    }
    s->model = r->model;
    s->count = r->count;
    memcpy(s->pieces, r->pieces, (size_t)r->count * sizeof *r->pieces);
    s->col0 = r->col0;
    s->cols = r->cols;
    s->dtype = r->dtype;
    return s;
}

/* The slice, held once more, or NULL without memory; *is_mine: the caller must load it. Lock held. */
static struct slice *slice_take(const struct request *r, size_t bytes, bool *is_mine)
{
    *is_mine = false;
    for (struct slice *s = table; s; s = s->next)
        if (slice_matches(s, r)) {
            s->holders++;
            return s;
        }
    struct slice *s = slice_new(r, bytes);
    if (!s)
        return NULL;
    *is_mine = true;
    s->holders = 1;
    s->next = table;
    table = s;
    return s;
}

static void slice_finish(struct slice *s, enum status status)
{
    pthread_mutex_lock(&table_lock);
    s->state = status == OK ? SLICE_READY : SLICE_FAILED;
    s->failure = status;
    pthread_cond_broadcast(&table_changed);
    pthread_mutex_unlock(&table_lock);
}

static enum status slice_wait(struct slice *s)
{
    pthread_mutex_lock(&table_lock);
    while (s->state == SLICE_LOADING)
        pthread_cond_wait(&table_changed, &table_lock);
    enum status status = s->state == SLICE_FAILED ? s->failure : OK;
    pthread_mutex_unlock(&table_lock);
    return status == OK ? OK : FAIL(status, "tensor %s could not be loaded by another rank", s->tensor);
}

static enum status load_shared(struct arena *arena, const struct request *r, size_t bytes,
                               struct devmem *out)
{
    bool is_mine;
    pthread_mutex_lock(&table_lock);
    struct slice *s = slice_take(r, bytes, &is_mine);
    pthread_mutex_unlock(&table_lock);
    if (!s)
        return FAIL(ERR_MEMORY, "no memory for %zu bytes of %s", bytes, r->tensor);
    if (is_mine)
        slice_finish(s, read_pieces(r, s->data));
    enum status status = slice_wait(s);
    struct devmem memory = {(uintptr_t)s->data};
    if (status == OK)
        status = arena_adopt(arena, MEMORY_WEIGHTS, memory, bytes, slice_release, s);
    if (status == OK)
        *out = memory;
    else
        slice_release(s);
    return status;
}

/* ---- one copy a rank ---- */

static enum status load_own(struct device *device, struct arena *arena, const struct request *r,
                            size_t bytes, struct devmem *out)
{
    TRY(arena_alloc(arena, MEMORY_WEIGHTS, bytes, out));
    if (model_shapes_only(r->model))
        return OK;
    void *staging = malloc(bytes ? bytes : 1);
    if (!staging)
        return FAIL(ERR_MEMORY, "no memory for %zu bytes of %s", bytes, r->tensor);
    enum status status = read_pieces(r, staging);
    if (status == OK)
        status = lane_upload(device->lanes, *out, staging, bytes);
    free(staging);
    return status;
}

enum status weights_load(struct device *device, struct arena *arena, const struct model *model,
                         const char *tensor, const struct weights_piece *pieces, int count,
                         size_t col0, size_t cols, struct devmem *out)
{
    ASSERT_CMP(count, <=, WEIGHTS_MAX_PIECES);
    struct request request = {.model = model, .tensor = tensor, .pieces = pieces, .count = count,
                              .col0 = col0, .cols = cols, .dtype = device->dtype};
    for (int i = 0; i < count; i++)
        request.rows += pieces[i].rows;
    size_t bytes = request.rows * cols * dtype_bytes(device->dtype);
    bool is_host = device->lanes->ops->memory == MEMORY_HOST && !model_shapes_only(model);
    return is_host ? load_shared(arena, &request, bytes, out)
                   : load_own(device, arena, &request, bytes, out);
}
