/* Writing a safetensors file: beside its place, synced, read back, then renamed into its place. */
#include "common/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* JSON text growing in memory: a file position never moves back, so the length is known first. */
static void put_string(FILE *json, const char *text)
{
    fputc('"', json);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(json, "\\%c", c);
        else if (c < 0x20)
            fprintf(json, "\\u%04x", c);
        else
            fputc(c, json);
    }
    fputc('"', json);
}

static void put_metadata(FILE *json, const char *const *metadata)
{
    fputs("\"__metadata__\":{", json);
    for (size_t i = 0; metadata[i]; i += 2) {
        fputs(i ? "," : "", json);
        put_string(json, metadata[i]);
        fputc(':', json);
        put_string(json, metadata[i + 1]);
    }
    fputc('}', json);
}

static uint64_t tensor_bytes(const struct safetensors_output *t)
{
    uint64_t elements = 1;
    for (int i = 0; i < t->dims; i++)
        elements *= t->shape[i];
    return elements * sizeof(float);
}

static void put_tensor(FILE *json, const struct safetensors_output *t, uint64_t begin)
{
    put_string(json, t->name);
    fputs(":{\"dtype\":\"F32\",\"shape\":[", json);
    for (int i = 0; i < t->dims; i++)
        fprintf(json, "%s%" PRIu64, i ? "," : "", t->shape[i]);
    fprintf(json, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, begin + tensor_bytes(t));
}

/* The 8 bytes of length and the JSON, padded so that the data starts on a multiple of 8. */
static enum status make_header(const char *path, const struct safetensors_output *tensors,
                               size_t count, const char *const *metadata, char **out, size_t *bytes)
{
    FILE *json = open_memstream(out, bytes);
    if (!json)
        return FAIL(ERR_MEMORY, "%s: no memory for its header", path);
    uint64_t begin = 0;
    fwrite("\0\0\0\0\0\0\0", 1, 8, json);
    fputc('{', json);
    if (metadata)
        put_metadata(json, metadata);
    for (size_t i = 0; i < count; i++) {
        fputs(metadata || i ? "," : "", json);
        put_tensor(json, &tensors[i], begin);
        begin += tensor_bytes(&tensors[i]);
    }
    fputc('}', json);
    while (ftell(json) % 8 != 0)
        fputc(' ', json);
    if (fclose(json) != 0) {
        free(*out);
        return FAIL(ERR_MEMORY, "%s: no memory for its header", path);
    }
    for (int i = 0; i < 8; i++)
        (*out)[i] = (char)((uint64_t)(*bytes - 8) >> (8 * i));
    return OK;
}

static enum status write_all(const char *path, int fd, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t done = write(fd, from, bytes);
        if (done < 0 && errno != EINTR)
            return FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
        if (done > 0) {
            from += done;
            bytes -= (size_t)done;
        }
    }
    return OK;
}

static enum status write_contents(const char *path, int fd, const char *header, size_t bytes,
                                  const struct safetensors_output *tensors, size_t count)
{
    TRY(write_all(path, fd, header, bytes));
    for (size_t i = 0; i < count; i++)
        TRY(write_all(path, fd, tensors[i].data, tensor_bytes(&tensors[i])));
    if (fsync(fd) != 0)
        return FAIL(ERR_IO, "%s: cannot be synced: %s", path, strerror(errno));
    return OK;
}

/* A new file beside `path`, with the mode that the user's umask gives (mkstemp would make it 0600).
 */
static int create_beside(const char *path, char **name)
{
    static atomic_uint serial;
    for (int attempt = 0; attempt < 100; attempt++) {
        if (asprintf(name, "%s.%ld-%u.part", path, (long)getpid(), atomic_fetch_add(&serial, 1)) <
            0)
            return -1;
        int fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            return fd;
        free(*name);
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

/* What we could not read ourselves (a name that is not UTF-8, a duplicate) is not put into place.
 */
static enum status read_back(const char *name)
{
    struct safetensors *file;
    TRY(safetensors_open(name, &file));
    safetensors_close(file);
    return OK;
}

/* Makes the rename itself last. A file system that cannot sync a folder has nothing to sync. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

static enum status write_file(const char *path, const char *header, size_t bytes,
                              const struct safetensors_output *tensors, size_t count)
{
    char *name;
    int fd = create_beside(path, &name);
    if (fd < 0)
        return FAIL(ERR_IO, "%s: cannot be created: %s", path, strerror(errno));
    enum status status = write_contents(path, fd, header, bytes, tensors, count);
    if (close(fd) != 0 && status == OK)
        status = FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (status == OK)
        status = read_back(name);
    if (status == OK && rename(name, path) != 0)
        status = FAIL(ERR_IO, "%s: cannot be replaced: %s", path, strerror(errno));
    if (status != OK)
        unlink(name);
    else
        sync_folder(path);
    free(name);
    return status;
}

enum status safetensors_write(const char *path, const struct safetensors_output *tensors,
                              size_t count, const char *const *metadata)
{
    char *header;
    size_t bytes;
    TRY(make_header(path, tensors, count, metadata, &header, &bytes));
    enum status status = write_file(path, header, bytes, tensors, count);
    free(header);
    return status;
}
