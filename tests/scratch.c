/* A folder for the files that a test makes, and what is expected of a failure. */
#include "scratch.h"

#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/safetensors.h"

enum { PATHS = 8, PATH_BYTES = 4096 };
static char folder[PATH_BYTES / 2];

static const char *join(const char *parent, const char *name)
{
    static char paths[PATHS][PATH_BYTES];
    static unsigned next;
    char *path = paths[next++ % PATHS];
    snprintf(path, PATH_BYTES, "%s/%s", parent, name);
    return path;
}

int scratch_make(void **state)
{
    const char *parent = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/ditto-test-XXXXXX", parent ? parent : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

int scratch_remove(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_path(const char *name)
{
    return join(folder, name);
}

const char *scratch_write(const char *name, const void *bytes, size_t count)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    return path;
}

const char *scratch_safetensors(const char *name, const char *json, size_t data_bytes)
{
    size_t length = strlen(json), size = 8 + length + data_bytes;
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, json, length);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + length + i] = (unsigned char)i;
    const char *path = scratch_write(name, bytes, size);
    free(bytes);
    return path;
}

int scratch_mkdir(const char *name)
{
    return mkdir(scratch_path(name), 0777);
}

size_t scratch_count(void)
{
    DIR *dir = opendir(folder);
    size_t count = 0;
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

const char *source_path(const char *name)
{
    const char *root = getenv("DITTO_TEST_ROOT");
    return join(root ? root : ".", name);
}

void expect_failure(enum status got, enum status code, const char *const *parts)
{
    struct failure failure = *status_first();
    status_clear();
    assert_string_equal(status_name(got), status_name(code));
    assert_string_equal(status_name(failure.code), status_name(code));
    for (; *parts; parts++)
        if (!strstr(failure.text, *parts))
            fail_msg("\"%s\" is not in the message \"%s\"", *parts, failure.text);
}

void expect_refused(const char *path, enum status code, const char *const *parts)
{
    struct safetensors *file = NULL;
    expect_failure(safetensors_open(path, &file), code, parts);
    assert_null(file);
}
