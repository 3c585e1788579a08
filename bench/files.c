/* Writing files whole, finding shipped data. */
#include "bench/files.h"

#include "config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A device, a pipe: replacing it by a file would be a surprise. */
static bool is_special(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

enum status files_create(const char *path, struct files_output *out)
{
    out->stream = NULL;
    int n = snprintf(out->partial, sizeof out->partial, "%s.partial.%ld", path, (long)getpid());
    if (n >= (int)sizeof out->partial)
        return FAIL(ERR_USAGE, "%.80s...: the path is too long", path);
    snprintf(out->path, sizeof out->path, "%s", path);
    if (is_special(path))
        out->partial[0] = '\0';
    out->stream = fopen(*out->partial ? out->partial : path, "we");
    if (!out->stream)
        return FAIL(ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    return OK;
}

enum status files_commit(struct files_output *file)
{
    const bool is_partial = *file->partial != '\0';
    bool good = fflush(file->stream) == 0 && !ferror(file->stream) &&
                (!is_partial || fsync(fileno(file->stream)) == 0);
    int why = errno;
    good = fclose(file->stream) == 0 && good;
    file->stream = NULL;
    if (good && (!is_partial || rename(file->partial, file->path) == 0))
        return OK;
    why = good ? errno : why;
    if (is_partial)
        unlink(file->partial);
    return FAIL(ERR_IO, "%s: cannot write: %s", file->path, strerror(why));
}

void files_discard(struct files_output *file)
{
    if (!file->stream)
        return;
    fclose(file->stream);
    file->stream = NULL;
    if (*file->partial)
        unlink(file->partial);
}

enum status files_make_parent(const char *path)
{
    char folder[FILES_PATH];
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return FAIL(ERR_USAGE, "%.80s...: the path is too long", path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            return FAIL(ERR_IO, "%s: cannot create the folder: %s", folder, strerror(errno));
        *slash = '/';
    }
    return OK;
}

static const char *const roots[] = {DITTO_SOURCE_ROOT, DITTO_PREFIX_DATA};

static bool find_data(const char *name, char out[FILES_PATH])
{
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        int n = snprintf(out, FILES_PATH, "%s/%s", roots[i], name);
        if (n < FILES_PATH && access(out, R_OK) == 0)
            return true;
    }
    return false;
}

enum status files_find_data(const char *name, char out[FILES_PATH])
{
    if (find_data(name, out))
        return OK;
    return FAIL(ERR_IO, "%s: not found in %s or %s; install ditto or build it from its sources", name,
                roots[0], roots[1]);
}

const char *files_locate(const char *name, char out[FILES_PATH])
{
    bool is_given = *name == '/' || *name == '\0' || access(name, F_OK) == 0;
    return !is_given && find_data(name, out) ? out : name;
}
