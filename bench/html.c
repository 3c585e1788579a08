/* Escaping and embedding. */
#include "bench/html.h"

#include "bench/json.h"

#include <stdlib.h>
#include <string.h>

void html_text(FILE *out, const char *text)
{
    for (; text && *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

/* RFC 4648 */
static void write_base64(FILE *out, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        unsigned int three = (unsigned int)bytes[i] << 16 |
                             (left > 1 ? (unsigned int)bytes[i + 1] << 8 : 0) |
                             (left > 2 ? bytes[i + 2] : 0);
        fputc(digits[three >> 18], out);
        fputc(digits[three >> 12 & 63], out);
        fputc(left > 1 ? digits[three >> 6 & 63] : '=', out);
        fputc(left > 2 ? digits[three & 63] : '=', out);
    }
}

enum status html_png(FILE *out, const char *path, const char *alt)
{
    static const char signature[] = "\x89PNG\r\n\x1a\n";
    char *bytes = NULL;
    size_t n = 0;
    TRY(json_read_file(path, &bytes, &n));
    if (n < sizeof signature || memcmp(bytes, signature, sizeof signature - 1) != 0) {
        free(bytes);
        return FAIL(ERR_FORMAT, "%s: not a PNG image", path);
    }
    fputs("<img alt=\"", out);
    html_text(out, alt);
    fputs("\" src=\"data:image/png;base64,", out);
    write_base64(out, (const unsigned char *)bytes, n);
    fputs("\">", out);
    free(bytes);
    return OK;
}

enum status html_svg(FILE *out, const char *path, const char *prefix)
{
    /* What precedes the name where ids are defined and used. */
    static const char *const before[] = {"id=\"", "id='", "href='#", "href=\"#", "url(#"};
    char *text = NULL;
    size_t bytes = 0;
    TRY(json_read_file(path, &text, &bytes));
    const char *p = strstr(text, "<svg");
    if (!p) {
        free(text);
        return FAIL(ERR_FORMAT, "%s: not an SVG figure", path);
    }
    while (*p) {
        size_t n = 0;
        for (size_t i = 0; i < sizeof before / sizeof *before && n == 0; i++)
            if (strncmp(p, before[i], strlen(before[i])) == 0)
                n = strlen(before[i]);
        if (n > 0)
            fprintf(out, "%.*s%s-", (int)n, p, prefix);
        else
            fputc(*p, out);
        p += n > 0 ? n : 1;
    }
    free(text);
    return OK;
}
