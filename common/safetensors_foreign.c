/* Other files that people pass where weights are expected. */
#include "common/safetensors_header.h"

#include <string.h>
#include <strings.h>

const char *safetensors_foreign(const void *file, uint64_t size)
{
#define CONVERT                                                                                    \
    "convert it with PyTorch: w = torch.load(FILE, map_location='cpu', weights_only=True); "       \
    "safetensors.torch.save_file({k: v.contiguous() for k, v in w.items()}, 'FILE.safetensors')"
    static const struct {
        const char *start, *text;
    } starts[] = {
        {"version https://git-lfs", "a Git-LFS pointer, not the weights; fetch them: git lfs pull"},
        {"PK\x03\x04", "a zip checkpoint (.pt, .bin); " CONVERT},
        {"\x80\x02", "a pickle checkpoint (.pt, .bin); " CONVERT},
        {"\x80\x03", "a pickle checkpoint (.pt, .bin); " CONVERT},
        {"\x80\x04", "a pickle checkpoint (.pt, .bin); " CONVERT},
        {"\x80\x05", "a pickle checkpoint (.pt, .bin); " CONVERT},
    };
#undef CONVERT
    static const char *const html[] = {"<!doctype", "<html", "<head", "<?xml"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        size_t n = strlen(starts[i].start);
        if (size >= n && memcmp(file, starts[i].start, n) == 0)
            return starts[i].text;
    }
    const char *text = (const char *)file, *end = text + (size < 512 ? size : 512);
    while (text < end && (*text == '\n' || *text == '\r' || *text == '\t' || *text == ' '))
        text++;
    for (size_t i = 0; i < sizeof html / sizeof *html; i++)
        if ((size_t)(end - text) >= strlen(html[i]) &&
            strncasecmp(text, html[i], strlen(html[i])) == 0)
            return "an HTML page, not the weights; download the file itself, not the page about it";
    return NULL;
}
