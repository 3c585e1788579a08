/* safetensors files, mapped read-only; a model in several files is one set of tensors. */
#include "common/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/dtype.h"
#include "common/json_scan.h"
#include "common/safetensors_header.h"
#include "common/safetensors_index.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor data is little-endian");

struct shard {
    char *path;
    void *map;
    size_t bytes;
    struct safetensors_header header;
};

struct safetensors {
    char *path;
    struct shard *shards;
    size_t nshards, count;
    const struct safetensors_tensor **in_order, **by_name;
};

/* A pipe or a device must not be waited for: O_NONBLOCK has no effect on a regular file. */
static enum status open_regular(const char *path, int *out, size_t *bytes)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return FAIL(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return FAIL(ERR_IO, "%s: not a regular file", path);
    }
    *out = fd;
    *bytes = (size_t)info.st_size;
    return OK;
}

static enum status map_file(struct shard *shard)
{
    int fd;
    TRY(open_regular(shard->path, &fd, &shard->bytes));
    void *map = MAP_FAILED;
    if (shard->bytes > 0)
        map = mmap(NULL, shard->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    int why = errno;
    close(fd);
    if (shard->bytes == 0)
        return FAIL(ERR_FORMAT, "%s: shorter than 8 bytes: it is empty", shard->path);
    if (map == MAP_FAILED)
        return FAIL(ERR_IO, "%s: cannot be mapped: %s", shard->path, strerror(why));
    shard->map = map;
    return OK;
}

/* Takes path, also when it fails. */
static enum status add_shard(struct safetensors *file, char *path)
{
    struct shard *shard = &file->shards[file->nshards++];
    *shard = (struct shard){.path = path};
    if (!path)
        return FAIL(ERR_MEMORY, "%s: no memory to open it", file->path);
    TRY(map_file(shard));
    TRY(safetensors_header_read(path, shard->map, shard->bytes, &shard->header));
    file->count += shard->header.count;
    return OK;
}

static enum status list_tensors(struct safetensors *file)
{
    size_t n = 0, room = file->count ? file->count : 1;
    file->in_order = malloc(room * sizeof *file->in_order);
    file->by_name = malloc(room * sizeof *file->by_name);
    if (!file->in_order || !file->by_name)
        return FAIL(ERR_MEMORY, "%s: no memory for its tensors", file->path);
    for (size_t i = 0; i < file->nshards; i++)
        for (size_t j = 0; j < file->shards[i].header.count; j++)
            file->in_order[n++] = &file->shards[i].header.tensors[j];
    memcpy(file->by_name, file->in_order, n * sizeof *file->by_name);
    const struct safetensors_tensor *second = safetensors_sort_names(file->by_name, n);
    char quoted[JSON_QUOTED];
    if (second)
        return FAIL(ERR_FORMAT, "%s: tensor %s: in two shards, %s is one", file->path,
                    json_quote(quoted, second->name), second->file);
    return OK;
}

static enum status check_index(const struct safetensors *file,
                               const struct safetensors_index *index)
{
    char quoted[JSON_QUOTED];
    const struct shard *shard = file->shards;
    for (size_t i = 0; i < index->count; i++) {
        const struct safetensors_index_entry *entry = &index->entries[i];
        if (i > 0 && strcmp(entry->shard, entry[-1].shard) != 0)
            shard++;
        const struct safetensors_tensor *t = safetensors_find(file, entry->tensor);
        if (!t || t->file != shard->path)
            return FAIL(ERR_FORMAT, "%s: tensor %s: not in its shard %s", file->path,
                        json_quote(quoted, entry->tensor), shard->path);
    }
    return OK;
}

static enum status open_shards(struct safetensors *file, const struct safetensors_index *index)
{
    size_t shards = 1;
    for (size_t i = 1; i < index->count; i++)
        shards += strcmp(index->entries[i].shard, index->entries[i - 1].shard) != 0;
    file->shards = calloc(shards, sizeof *file->shards);
    if (!file->shards)
        return FAIL(ERR_MEMORY, "%s: no memory for %zu shards", file->path, shards);
    for (size_t i = 0; i < index->count; i++)
        if (i == 0 || strcmp(index->entries[i].shard, index->entries[i - 1].shard) != 0)
            TRY(add_shard(file, safetensors_index_shard(file->path, index->entries[i].shard)));
    TRY(list_tensors(file));
    return check_index(file, index);
}

static enum status open_files(struct safetensors *file)
{
    if (safetensors_is_index(file->path)) {
        struct safetensors_index index;
        TRY(safetensors_index_read(file->path, &index));
        enum status status = open_shards(file, &index);
        safetensors_index_free(&index);
        return status;
    }
    file->shards = calloc(1, sizeof *file->shards);
    if (!file->shards)
        return FAIL(ERR_MEMORY, "%s: no memory to open it", file->path);
    TRY(add_shard(file, strdup(file->path)));
    return list_tensors(file);
}

enum status safetensors_open(const char *path, struct safetensors **out)
{
    struct safetensors *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return FAIL(ERR_MEMORY, "%s: no memory to open it", path);
    }
    enum status status = open_files(file);
    if (status == OK)
        *out = file;
    else
        safetensors_close(file);
    return status;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    for (size_t i = 0; i < file->nshards; i++) {
        struct shard *shard = &file->shards[i];
        safetensors_header_free(&shard->header);
        if (shard->map)
            munmap(shard->map, shard->bytes);
        free(shard->path);
    }
    free(file->shards);
    free(file->in_order);
    free(file->by_name);
    free(file->path);
    free(file);
}

size_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *file, size_t i)
{
    ASSERT_CMP(i, <, file->count);
    return file->in_order[i];
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, (*(const struct safetensors_tensor *const *)tensor)->name);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
    const struct safetensors_tensor *const *found =
        bsearch(name, file->by_name, file->count, sizeof *file->by_name, compare_name);
    return found ? *found : NULL;
}

static int compare_key(const void *key, const void *pair)
{
    return strcmp(key, ((const struct safetensors_pair *)pair)->key);
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
    for (size_t i = 0; i < file->nshards; i++) {
        const struct safetensors_header *h = &file->shards[i].header;
        const struct safetensors_pair *found = NULL;
        if (h->metadata_count > 0)
            found = bsearch(key, h->metadata, h->metadata_count, sizeof *h->metadata, compare_key);
        if (found)
            return found->value;
    }
    return NULL;
}

const char *safetensors_path(const struct safetensors *file)
{
    return file->path;
}

/* The mapping may be unaligned, so elements are copied out before they are looked at. */
static void read_halves(const struct safetensors_tensor *t, uint64_t first, size_t n,
                        float (*widen)(uint16_t), float *out)
{
    const char *from = (const char *)t->data + 2 * first;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        out[i] = widen(bits);
    }
}

enum status safetensors_read_floats(const struct safetensors *file,
                                    const struct safetensors_tensor *t, uint64_t first, size_t n,
                                    float *out)
{
    char quoted[JSON_QUOTED];
    (void)file;
    ASSERT_CMP(first, <=, t->elements);
    ASSERT_CMP(n, <=, t->elements - first);
    if (strcmp(t->dtype, "F32") == 0)
        memcpy(out, (const char *)t->data + 4 * first, 4 * n);
    else if (strcmp(t->dtype, "F16") == 0)
        read_halves(t, first, n, dtype_from_fp16, out);
    else if (strcmp(t->dtype, "BF16") == 0)
        read_halves(t, first, n, dtype_from_bf16, out);
    else
        return FAIL(ERR_FORMAT, "%s: tensor %s: dtype %s where F32, F16 or BF16 is needed", t->file,
                    json_quote(quoted, t->name), t->dtype);
    return OK;
}

/* Pages shared with neighbours go too: they come back when read. A failure costs memory only. */
void safetensors_forget(const struct safetensors_tensor *t)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)t->data / page * page;
    if (t->bytes > 0)
        madvise((void *)first, (uintptr_t)t->data + t->bytes - first, MADV_DONTNEED);
}

static enum status hash_file(const char *path, SHA2_CTX *hash)
{
    enum { CHUNK = 1 << 20 };
    int fd;
    size_t bytes;
    ssize_t got;
    TRY(open_regular(path, &fd, &bytes));
    unsigned char *chunk = malloc(CHUNK);
    if (!chunk) {
        close(fd);
        return FAIL(ERR_MEMORY, "%s: no memory to read it", path);
    }
    while ((got = read(fd, chunk, CHUNK)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0)
            SHA256Update(hash, chunk, (size_t)got);
    int why = errno;
    free(chunk);
    close(fd);
    return got == 0 ? OK : FAIL(ERR_IO, "%s: cannot be read: %s", path, strerror(why));
}

static enum status hash_shards(const char *path, SHA2_CTX *hash)
{
    struct safetensors_index index;
    TRY(safetensors_index_read(path, &index));
    enum status status = OK;
    for (size_t i = 0; i < index.count && status == OK; i++) {
        if (i > 0 && strcmp(index.entries[i].shard, index.entries[i - 1].shard) == 0)
            continue;
        char *shard = safetensors_index_shard(path, index.entries[i].shard);
        status = shard ? hash_file(shard, hash) : FAIL(ERR_MEMORY, "%s: no memory", path);
        free(shard);
    }
    safetensors_index_free(&index);
    return status;
}

enum status safetensors_sha256(const char *path, char out[65])
{
    SHA2_CTX hash;
    char hex[65];
    SHA256Init(&hash);
    TRY(safetensors_is_index(path) ? hash_shards(path, &hash) : hash_file(path, &hash));
    memcpy(out, SHA256End(&hash, hex), sizeof hex);
    return OK;
}
