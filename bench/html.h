/* Text, files and figures inside an HTML page. */
#ifndef BENCH_HTML_H
#define BENCH_HTML_H

#include "common/status.h"
#include <stdio.h>

/* As element content or a quoted attribute, whatever it holds; NULL writes nothing. */
void html_text(FILE *, const char *text);
/* <img> with a PNG as a data URI. ERR_IO, ERR_FORMAT (not a PNG): nothing is written. */
enum status html_png(FILE *, const char *path, const char *alt) WARN_UNUSED;
/* The <svg> element of a file that gnuplot wrote. Its ids get `prefix`, as several stand in one page. */
enum status html_svg(FILE *, const char *path, const char *prefix) WARN_UNUSED;

#endif
