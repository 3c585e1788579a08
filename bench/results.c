/* Appending to and reading JSON Lines. */
#include "bench/results.h"

#include "bench/record.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Length of the file up to and including its last newline. */
static enum status whole_lines(int fd, const char *path, off_t size, off_t *out)
{
    char block[4096];
    while (size > 0) {
        off_t first = size > (off_t)sizeof block ? size - (off_t)sizeof block : 0;
        ssize_t n = pread(fd, block, (size_t)(size - first), first);
        if (n <= 0)
            return FAIL(ERR_IO, "%s: cannot read: %s", path, n < 0 ? strerror(errno) : "it shrank");
        for (ssize_t i = n; i > 0; i--)
            if (block[i - 1] == '\n') {
                *out = first + i;
                return OK;
            }
        size = first;
    }
    *out = 0;
    return OK;
}

static enum status drop_torn_line(const struct results_file *file)
{
    struct stat info;
    off_t whole = 0;
    if (fstat(file->fd, &info) != 0)
        return FAIL(ERR_IO, "%s: cannot stat: %s", file->path, strerror(errno));
    TRY(whole_lines(file->fd, file->path, info.st_size, &whole));
    if (whole == info.st_size)
        return OK;
    log_warn("%s: dropping a torn last line of %lld bytes; its point will be missing, --resume adds it",
             file->path, (long long)(info.st_size - whole));
    if (ftruncate(file->fd, whole) != 0)
        return FAIL(ERR_IO, "%s: cannot truncate: %s", file->path, strerror(errno));
    return OK;
}

static enum status claim(struct results_file *file)
{
    struct stat info;
    if (fstat(file->fd, &info) != 0)
        return FAIL(ERR_IO, "%s: cannot stat: %s", file->path, strerror(errno));
    file->is_regular = S_ISREG(info.st_mode);
    if (!file->is_regular)
        return OK;
    if (flock(file->fd, LOCK_EX | LOCK_NB) != 0)
        return FAIL(ERR_USAGE, "%s: another program is writing to it; choose another --output",
                    file->path);
    return drop_torn_line(file);
}

enum status results_open(const char *path, struct results_file *out)
{
    *out = (struct results_file){.fd = STDOUT_FILENO, .path = "standard output"};
    if (!path)
        return OK;
    out->path = path;
    out->fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (out->fd < 0 && (errno == ENXIO || errno == EACCES || errno == EINVAL))
        out->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC); /* a device or a pipe */
    if (out->fd < 0)
        return FAIL(ERR_USAGE, "--output %s: cannot write: %s", path, strerror(errno));
    enum status status = claim(out);
    if (status != OK)
        results_close(out);
    return status;
}

static enum status write_whole(struct results_file *file, const char *line, size_t bytes)
{
    struct stat before;
    if (file->is_regular && fstat(file->fd, &before) != 0)
        return FAIL(ERR_IO, "%s: cannot stat: %s", file->path, strerror(errno));
    ssize_t n;
    do {
        n = write(file->fd, line, bytes);
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t)bytes && (!file->is_regular || fsync(file->fd) == 0))
        return OK;
    int why = n < 0 || n == (ssize_t)bytes ? errno : ENOSPC;
    if (file->is_regular && ftruncate(file->fd, before.st_size) != 0)
        log_warn("%s: the last line may be torn; the next writer drops it", file->path);
    return FAIL(ERR_IO, "%s: cannot write: %s", file->path, strerror(why));
}

enum status results_append(struct results_file *file, const cJSON *record)
{
    char *line = json_print(record);
    size_t bytes = strlen(line);
    line = realloc(line, bytes + 2);
    ASSERT(line != NULL);
    memcpy(line + bytes, "\n", 2);
    enum status status = write_whole(file, line, bytes + 1);
    free(line);
    return status;
}

void results_close(struct results_file *file)
{
    if (file->fd > STDERR_FILENO)
        close(file->fd);
    file->fd = -1;
}

static enum status add_line(struct results *results, const char *path, size_t number, char *line,
                            size_t bytes)
{
    char what[512];
    snprintf(what, sizeof what, "%.480s line %zu", path, number);
    cJSON *record = NULL;
    TRY(json_parse(what, line, bytes, &record));
    const char *schema = json_text(record, "schema");
    if (!schema || strcmp(schema, RECORD_SCHEMA) != 0) {
        cJSON_Delete(record);
        return FAIL(ERR_FORMAT, "%s: not a record of schema " RECORD_SCHEMA, what);
    }
    cJSON **records = realloc(results->records, (results->count + 1) * sizeof *records);
    if (!records) {
        cJSON_Delete(record);
        return FAIL(ERR_MEMORY, "%s: out of memory", what);
    }
    records[results->count++] = record;
    results->records = records;
    return OK;
}

static enum status add_lines(struct results *results, const char *path, char *text, size_t bytes)
{
    size_t number = 1;
    for (char *line = text; line < text + bytes; number++) {
        char *end = memchr(line, '\n', (size_t)(text + bytes - line));
        if (!end) {
            log_warn("%s: the last line is torn and left out; bench sweep --resume adds its point",
                     path);
            break;
        }
        *end = '\0';
        if (end > line)
            TRY(add_line(results, path, number, line, (size_t)(end - line)));
        line = end + 1;
    }
    return OK;
}

enum status results_read(const char *path, struct results *out)
{
    *out = (struct results){0};
    char *text = NULL;
    size_t bytes = 0;
    TRY(json_read_file(path, &text, &bytes));
    enum status status = add_lines(out, path, text, bytes);
    free(text);
    return status;
}

void results_free(struct results *results)
{
    for (size_t i = 0; i < results->count; i++)
        cJSON_Delete(results->records[i]);
    free(results->records);
    *results = (struct results){0};
}

static bool is_superseded(const struct results *results, size_t index)
{
    const char *status = json_text(results->records[index], "status");
    const char *id = json_text(results->records[index], "case_id");
    if (!status || !id || strcmp(status, "ok") == 0)
        return false;
    for (size_t i = index + 1; i < results->count; i++) {
        const char *later = json_text(results->records[i], "case_id");
        if (later && strcmp(later, id) == 0)
            return true;
    }
    return false;
}

void results_drop_superseded(struct results *results)
{
    size_t kept = 0;
    for (size_t i = 0; i < results->count; i++) {
        if (is_superseded(results, i))
            cJSON_Delete(results->records[i]);
        else
            results->records[kept++] = results->records[i];
    }
    results->count = kept;
}

/* ---- several files, filtered ---- */

static bool has_value(const cJSON *record, const char *key, const char *wanted)
{
    char path[80], text[40];
    snprintf(path, sizeof path, "config.%.60s", key);
    for (char *p = path; *p; p++)
        if (*p == '-')
            *p = '_';
    const cJSON *value = json_at(record, path);
    if (cJSON_IsNumber(value)) {
        snprintf(text, sizeof text, "%.17g", value->valuedouble);
        return strcmp(text, wanted) == 0;
    }
    return cJSON_IsString(value) && strcmp(value->valuestring, wanted) == 0;
}

static enum status filter(struct results *results, const char *where)
{
    char *copy = strdup(where), *rest = copy, *word;
    if (!copy)
        return FAIL(ERR_MEMORY, "--where: no memory");
    enum status status = OK;
    while (*where && status == OK && (word = strsep(&rest, ",")) != NULL) {
        char *equals = strchr(word, '=');
        if (!equals) {
            status = FAIL(ERR_USAGE, "--where %s: \"%s\" is no option=value", where, word);
            break;
        }
        *equals = '\0';
        size_t kept = 0;
        for (size_t i = 0; i < results->count; i++) {
            if (has_value(results->records[i], word, equals + 1))
                results->records[kept++] = results->records[i];
            else
                cJSON_Delete(results->records[i]);
        }
        results->count = kept;
    }
    free(copy);
    return status;
}

static enum status add_file(const char *path, struct results *out)
{
    struct results more;
    enum status status = results_read(path, &more);
    cJSON **grown = NULL;
    if (status == OK)
        grown = realloc(out->records, (out->count + more.count + 1) * sizeof *grown);
    if (!grown) {
        results_free(&more);
        return status != OK ? status : FAIL(ERR_MEMORY, "%s: no memory for the records", path);
    }
    out->records = grown;
    if (more.count > 0)
        memcpy(grown + out->count, more.records, more.count * sizeof *grown);
    out->count += more.count;
    free(more.records);
    return OK;
}

enum status results_read_all(const char *const *paths, size_t count, const char *where,
                             struct results *out)
{
    *out = (struct results){0};
    for (size_t i = 0; i < count; i++)
        TRY(add_file(paths[i], out));
    results_drop_superseded(out);
    TRY(filter(out, where));
    if (out->count == 0)
        return FAIL(ERR_USAGE, "%s: no records%s", paths[0], *where ? " match --where" : "");
    return OK;
}
