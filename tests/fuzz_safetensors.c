/* The reader of weights on any bytes: whatever it accepts must be readable to the end. The entry
 * point is libFuzzer's; fuzz_driver.c calls it where libFuzzer is not at hand. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/log.h"
#include "common/safetensors.h"
#include "kernels/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_tensors(const struct safetensors *file)
{
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);
        float chunk[256];
        volatile uint8_t sum = 0;
        for (uint64_t byte = 0; byte < t->bytes; byte++)
            sum = (uint8_t)(sum + ((const uint8_t *)t->data)[byte]);
        for (uint64_t first = 0; first < t->elements; first += 256) {
            size_t n = t->elements - first < 256 ? (size_t)(t->elements - first) : 256;
            if (safetensors_read_floats(file, t, first, n, chunk) != OK)
                break;
        }
        ASSERT(safetensors_find(file, t->name) == t);
    }
    (void)safetensors_metadata(file, "heads");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct model_hints hints = {.heads = 1};
    char path[64];
    struct safetensors *file;
    struct model *model;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ASSERT_CMP(fd, >=, 0);
    ASSERT_CMP(write(fd, data, size), ==, (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    log_quiet(1);
    if (safetensors_open(path, &file) == OK) {
        read_tensors(file);
        safetensors_close(file);
    }
    if (model_open(path, &hints, 0, true, &model) == OK)
        model_close(model);
    status_clear();
    close(fd);
    return 0;
}
