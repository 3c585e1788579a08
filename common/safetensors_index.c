/* The index of a model in several files: {"metadata": ..., "weight_map": {tensor: shard, ...}}. */
#include "common/safetensors_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INDEX_BYTES = 100000000 };

bool safetensors_is_index(const char *path)
{
    static const char suffix[] = ".safetensors.index.json";
    size_t n = strlen(path);
    return n >= sizeof suffix - 1 && strcmp(path + n - (sizeof suffix - 1), suffix) == 0;
}

static int compare_entries(const void *a, const void *b)
{
    const struct safetensors_index_entry *x = a, *y = b;
    int shards = strcmp(x->shard, y->shard);
    return shards ? shards : strcmp(x->tensor, y->tensor);
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_index_entry *)a)->tensor,
                  ((const struct safetensors_index_entry *)b)->tensor);
}

static enum status read_entry(struct json_scan *s, struct safetensors_index_entry *entry)
{
    TRY(json_key(s, &entry->tensor));
    TRY(json_string(s, &entry->shard));
    if (!*entry->shard || strchr(entry->shard, '/') || strstr(entry->shard, ".."))
        return JSON_FAIL(s, "a shard is a file name beside the index, without / or ..");
    return OK;
}

static enum status read_weight_map(struct safetensors_index *index)
{
    struct json_scan *s = &index->file.scan;
    struct json_list object;
    size_t room = 0;
    bool more;
    if (index->entries)
        return JSON_FAIL(s, "a duplicate key, weight_map");
    TRY(json_enter(s, '{', &object));
    for (;;) {
        TRY(json_next(s, &object, &more));
        if (!more)
            return OK;
        if (index->count == room) {
            room = room ? 2 * room : 64;
            void *larger = realloc(index->entries, room * sizeof *index->entries);
            if (!larger)
                return FAIL(ERR_MEMORY, "%s: no memory for its weight_map", s->path);
            index->entries = larger;
        }
        TRY(read_entry(s, &index->entries[index->count]));
        index->count++;
    }
}

static enum status check_entries(struct safetensors_index *index)
{
    char quoted[JSON_QUOTED];
    struct safetensors_index_entry *entries = index->entries;
    if (index->count == 0)
        return FAIL(ERR_FORMAT, "%s: no weight_map that names tensors", index->file.scan.path);
    qsort(entries, index->count, sizeof *entries, compare_tensors);
    for (size_t i = 1; i < index->count; i++)
        if (compare_tensors(&entries[i - 1], &entries[i]) == 0)
            return FAIL(ERR_FORMAT, "%s: tensor %s: a duplicate key", index->file.scan.path,
                        json_quote(quoted, entries[i].tensor));
    qsort(entries, index->count, sizeof *entries, compare_entries);
    return OK;
}

static enum status read_index(struct safetensors_index *index)
{
    struct json_scan *s = &index->file.scan;
    struct json_list object;
    const char *key;
    bool more;
    TRY(json_enter(s, '{', &object));
    for (;;) {
        TRY(json_next(s, &object, &more));
        if (!more)
            break;
        TRY(json_key(s, &key));
        if (strcmp(key, "weight_map") == 0)
            TRY(read_weight_map(index));
        else
            TRY(json_skip(s));
    }
    TRY(json_end(s));
    return check_entries(index);
}

enum status safetensors_index_read(const char *path, struct safetensors_index *out)
{
    struct safetensors_index index = {0};
    TRY(json_file_read(path, MAX_INDEX_BYTES, &index.file));
    enum status status = read_index(&index);
    if (status == OK)
        *out = index;
    else
        safetensors_index_free(&index);
    return status;
}

void safetensors_index_free(struct safetensors_index *index)
{
    json_file_free(&index->file);
    free(index->entries);
    *index = (struct safetensors_index){0};
}

char *safetensors_index_shard(const char *index_path, const char *shard)
{
    const char *slash = strrchr(index_path, '/');
    int folder = slash ? (int)(slash - index_path) + 1 : 0;
    char *path;
    return asprintf(&path, "%.*s%s", folder, index_path, shard) < 0 ? NULL : path;
}
